//! All objects of a kind, read once: for commands that look at a cluster and end.

use kube::core::Request;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde_json::Value;

use crate::connect::{Cluster, REQUEST};
use crate::failure::{Action, Cause, Failure};
use crate::kind::Resource;

/// Objects of a page: a page of large ones still fits into an answer.
const PAGE: u32 = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListedPage {
    metadata: ListedEnd,
    /// Servers before 1.22 write null for metadata of no objects.
    items: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListedEnd {
    #[serde(rename = "continue")]
    token: String,
}

/// Removes the fields that nothing reads.
fn trimmed(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object
        .pointer_mut("/metadata")
        .and_then(Value::as_object_mut)
    {
        metadata.remove("managedFields");
    }
    object
}

impl Cluster {
    /// Returns the objects of a kind in all namespaces; `None` if the server does not have the kind. `bare`: their metadata
    /// alone, so that nothing else of them leaves the server. More than `most` objects are an error.
    ///
    /// # Errors
    /// The request failed.
    pub async fn list_all(
        &self,
        resource: Resource,
        bare: bool,
        most: usize,
    ) -> Result<Option<Vec<Value>>, Failure> {
        let action = Action {
            verb: "list",
            resource: resource.to_string(),
            name: None,
        };
        let mut all = Vec::new();
        let mut token = None;
        loop {
            let params = ListParams {
                limit: Some(PAGE),
                continue_token: token,
                ..ListParams::default()
            };
            let request = Request::new(resource.path(None));
            let request = match bare {
                true => request.list_metadata(&params),
                false => request.list(&params),
            };
            let page = match self
                .exchange(&action, REQUEST)
                .json::<ListedPage>(request)
                .await
            {
                Ok(page) => page,
                Err(failure) if failure.code() == Some(404) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            all.extend(page.items.into_iter().flatten().map(trimmed));
            if all.len() > most {
                let cause = Cause::Malformed(format!("there are more than {most} objects"));
                return Err(Failure { action, cause });
            }
            token = Some(page.metadata.token).filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(Some(all));
            }
        }
    }

    /// The namespace of the kubeconfig's context, or of the pod.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.client.default_namespace()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_looks_at_is_dropped() {
        let object = json!({"metadata": {"name": "a", "managedFields": [{}]}, "spec": {"b": 1}, "status": {"c": 1}});
        assert_eq!(
            trimmed(object),
            json!({"metadata": {"name": "a"}, "spec": {"b": 1}})
        );
        assert_eq!(trimmed(json!("a")), json!("a"));
    }

    #[test]
    fn a_list_of_nothing_may_be_null() {
        for text in [r#"{"items": null, "metadata": {}}"#, r#"{"metadata": {}}"#] {
            let page: ListedPage = serde_json::from_str(text).unwrap();
            assert!(page.items.is_none() && page.metadata.token.is_empty());
        }
    }
}
