//! Generates the table of Kubernetes' types from k8s-openapi, and checks the file.
//!
//! `GUDGEON_WRITE_TABLE=1 cargo test -p gudgeon-inject --test table` writes it for a new Kubernetes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test reads files, and fails where it cannot go on"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

const HEAD: &str = "\
# core/v1 Pod as the newest known Kubernetes has it, one type a line: NAME FIELD=TYPE ...
# Generated from k8s-openapi by tests/table.rs, never edited. [X] is a list, {X} a map, ! a field that is required.
";

#[test]
fn the_table_is_generated() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.txt");
    let wanted = generate();
    if std::env::var_os("GUDGEON_WRITE_TABLE").is_some() {
        std::fs::write(file, &wanted).unwrap();
    }
    assert!(
        std::fs::read_to_string(file).unwrap_or_default() == wanted,
        "schema.txt is not what k8s-openapi says"
    );
}

fn generate() -> String {
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    let mut root = generator
        .root_schema_for::<k8s_openapi::api::core::v1::Pod>()
        .to_value();
    // The server writes `status`, which no template has.
    root["properties"].as_object_mut().unwrap().remove("status");
    let Value::Object(definitions) = root["$defs"].take() else {
        panic!("no definitions")
    };
    let mut lines = BTreeMap::new();
    let mut waiting = vec![("Pod".to_owned(), root)];
    while let Some((name, schema)) = waiting.pop() {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut line = name.clone();
        for (field, inner) in schema["properties"].as_object().unwrap() {
            let kind = kind(inner, &definitions, &mut waiting);
            let mark = if required.contains(&field.as_str()) {
                "!"
            } else {
                ""
            };
            write!(line, " {field}{mark}={kind}").unwrap();
        }
        lines.insert(name, line);
        waiting.retain(|(name, _)| !lines.contains_key(name));
    }
    let mut text = HEAD.to_owned();
    for line in lines.values() {
        writeln!(text, "{line}").unwrap();
    }
    text
}

/// Returns the table's notation of a schema; queues the objects that it refers to.
fn kind(
    schema: &Value,
    definitions: &serde_json::Map<String, Value>,
    waiting: &mut Vec<(String, Value)>,
) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let long = reference.trim_start_matches("#/$defs/");
        let short = long.rsplit('.').next().unwrap();
        let definition = &definitions[long];
        return match short {
            "Quantity" => "quantity".to_owned(),
            "IntOrString" => "int-or-string".to_owned(),
            _ if definition["properties"].is_object() => {
                waiting.push((short.to_owned(), definition.clone()));
                short.to_owned()
            }
            _ if definition["type"] == "object" => "any".to_owned(),
            _ => kind(definition, definitions, waiting),
        };
    }
    match schema["type"].as_str().unwrap() {
        "array" => format!("[{}]", kind(&schema["items"], definitions, waiting)),
        "object" => format!(
            "{{{}}}",
            kind(&schema["additionalProperties"], definitions, waiting)
        ),
        simple @ ("string" | "integer" | "number" | "boolean") => simple.to_owned(),
        other => panic!("{other} is not known here"),
    }
}
