use super::*;

fn seen(status: &Value, managers: &Value) -> SeenStatus {
    let object = json!({
        "apiVersion": "g/v1", "kind": "K", "spec": {},
        "metadata": {"name": "a", "namespace": "n", "generation": 3, "managedFields": managers},
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_status_is_written_where_it_says_something_else() {
    let ours = json!([{"manager": MANAGER, "subresource": "status"}]);
    let others = json!([{"manager": "kubectl"}, {"manager": MANAGER, "subresource": "scale"}]);
    let messages = [json!({"level": "WARNING", "message": "x"})];
    let bare =
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "namespace": "n"}});
    let mut full = bare.clone();
    full["status"] = json!({"validationMessages": messages, "observedGeneration": "3"});
    let old = json!({"validationMessages": messages, "observedGeneration": "2"});
    let number = json!({"validationMessages": messages, "observedGeneration": 3});
    for (status, managers, messages, wanted) in [
        (&json!({}), &others, &messages[..], Some(&full)),
        (&old, &ours, &messages, Some(&full)),
        (&number, &ours, &messages, Some(&full)),
        (&full["status"], &ours, &messages, None),
        // The same of whoever wrote it.
        (&full["status"], &others, &messages, None),
        (&full["status"], &ours, &[], Some(&bare)),
        (
            &json!({"validationMessages": [{"by": "another"}]}),
            &others,
            &[],
            None,
        ),
    ] {
        let patch = seen(status, managers).patch("g/v1", "K", messages);
        assert_eq!(patch.as_ref(), wanted, "{status} {managers} {messages:?}");
    }
}
