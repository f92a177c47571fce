//! Kubernetes label selectors.

use std::collections::BTreeSet;

use api::names::{is_label_key, is_label_value};
use serde_json::{Map, Value};

use crate::yaml::{self, Node, Value as Tree};

/// A label selector; an empty one matches nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    ///
    /// The selector is invalid; the error names the invalid part.
    pub(crate) fn read(node: &Node) -> Result<Self, String> {
        let Tree::Map(entries) = &node.value else {
            return Err("a selector must be an object".to_owned());
        };
        let mut requirements = Vec::new();
        for (key, value) in entries {
            match key.as_str() {
                "matchLabels" => requirements.extend(labels(value)?),
                "matchExpressions" => {
                    for expression in list(value, "matchExpressions")? {
                        requirements.push(requirement(expression)?);
                    }
                }
                other => return Err(format!("unknown key {other:?} in a selector")),
            }
        }
        Ok(Self(requirements))
    }

    #[must_use]
    pub(crate) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let label = |key: &str| {
            labels
                .and_then(|labels| labels.get(key))
                .and_then(Value::as_str)
        };
        !self.0.is_empty()
            && self.0.iter().all(|requirement| match requirement {
                Requirement::In(key, values) => {
                    label(key).is_some_and(|value| values.contains(value))
                }
                // A label that is absent is in no list.
                Requirement::NotIn(key, values) => {
                    label(key).is_none_or(|value| !values.contains(value))
                }
                Requirement::Exists(key) => label(key).is_some(),
                Requirement::DoesNotExist(key) => label(key).is_none(),
            })
    }
}

fn is_null(node: &Node) -> bool {
    matches!(&node.value, Tree::Scalar(scalar) if yaml::is_null(scalar))
}

fn list<'a>(node: &'a Node, name: &str) -> Result<&'a [Node], String> {
    match &node.value {
        Tree::List(items) => Ok(items),
        _ if is_null(node) => Ok(&[]),
        Tree::Scalar(_) | Tree::Map(_) => Err(format!("{name} of a selector must be a list")),
    }
}

fn text(node: &Node, name: &str) -> Result<String, String> {
    match &node.value {
        Tree::Scalar(scalar) if !yaml::is_null(scalar) => Ok(scalar.text.clone()),
        Tree::Scalar(_) | Tree::List(_) | Tree::Map(_) => {
            Err(format!("{name} of a selector must be a string"))
        }
    }
}

/// Checks a key of a selector. No pod has a label with an invalid key, so that `In` would select no pod and `NotIn` all.
fn label_key(key: String) -> Result<String, String> {
    match is_label_key(&key) {
        true => Ok(key),
        false => Err(format!("{key:?} is not a label key, in a selector")),
    }
}

/// Checks a value of a selector, for the same reason.
fn label_value(value: String) -> Result<String, String> {
    match is_label_value(&value) {
        true => Ok(value),
        false => Err(format!("{value:?} is not a label value, in a selector")),
    }
}

fn labels(node: &Node) -> Result<Vec<Requirement>, String> {
    match &node.value {
        Tree::Map(entries) => entries
            .iter()
            .map(|(key, value)| {
                let value = label_value(text(value, "matchLabels")?)?;
                let key = label_key(key.clone())?;
                Ok(Requirement::In(key, BTreeSet::from([value])))
            })
            .collect(),
        _ if is_null(node) => Ok(Vec::new()),
        Tree::Scalar(_) | Tree::List(_) => {
            Err("matchLabels of a selector must be an object".to_owned())
        }
    }
}

fn requirement(node: &Node) -> Result<Requirement, String> {
    let get = |key: &str| {
        yaml::get(node, key).ok_or_else(|| format!("an expression of a selector has no {key}"))
    };
    let (key, operator) = (
        label_key(text(get("key")?, "key")?)?,
        text(get("operator")?, "operator")?,
    );
    let mut values = BTreeSet::new();
    for value in yaml::get(node, "values").map_or(Ok(&[][..]), |values| list(values, "values"))? {
        values.insert(label_value(text(value, "values")?)?);
    }
    match (operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(Requirement::In(key, values)),
        ("NotIn", false) => Ok(Requirement::NotIn(key, values)),
        ("Exists", true) => Ok(Requirement::Exists(key)),
        ("DoesNotExist", true) => Ok(Requirement::DoesNotExist(key)),
        ("In" | "NotIn", true) => Err(format!("{operator} of a selector wants values")),
        ("Exists" | "DoesNotExist", false) => {
            Err(format!("{operator} of a selector wants no values"))
        }
        _ => Err(format!("unknown operator {operator:?} in a selector")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Selector, String> {
        Selector::read(&yaml::read(text).unwrap().unwrap())
    }

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels = json!({"a": "1", "empty": ""});
        let rows = [
            ("{}", false),
            ("matchLabels: {}", false),
            ("matchLabels: {a: 1}", true),
            ("matchLabels: {a: '1', b: x}", false),
            ("matchLabels: {empty: ''}", true),
            ("matchLabels: {example.com/a.b_c: x}", false),
            (
                "matchExpressions: [{key: a, operator: In, values: ['1', '2']}]",
                true,
            ),
            (
                "matchExpressions: [{key: b, operator: In, values: ['1']}]",
                false,
            ),
            (
                "matchExpressions: [{key: a, operator: NotIn, values: ['1']}]",
                false,
            ),
            (
                "matchExpressions: [{key: b, operator: NotIn, values: ['1']}]",
                true,
            ),
            ("matchExpressions: [{key: empty, operator: Exists}]", true),
            (
                "matchExpressions: [{key: empty, operator: DoesNotExist}]",
                false,
            ),
            (
                "matchExpressions: [{key: b, operator: DoesNotExist, values: []}]",
                true,
            ),
            (
                "{matchLabels: {a: 1}, matchExpressions: [{key: a, operator: Exists}, {key: b, operator: Exists}]}",
                false,
            ),
        ];
        for (text, wanted) in rows {
            assert_eq!(
                read(text).unwrap().matches(labels.as_object()),
                wanted,
                "{text}"
            );
        }
        assert!(
            read("matchExpressions: [{key: b, operator: DoesNotExist}]")
                .unwrap()
                .matches(None)
        );
    }

    #[test]
    fn an_error_names_the_invalid_part_of_a_selector() {
        let rows = [
            (
                "matchExpressions: [{key: a, operator: In}]",
                "In of a selector wants values",
            ),
            (
                "matchExpressions: [{key: a, operator: in, values: [x]}]",
                "unknown operator \"in\" in a selector",
            ),
            (
                "matchExpressions: [{key: a, operator: Exists, values: [x]}]",
                "Exists of a selector wants no values",
            ),
            (
                "matchExpressions: [{operator: Exists}]",
                "an expression of a selector has no key",
            ),
            (
                "matchFields: []",
                "unknown key \"matchFields\" in a selector",
            ),
            (
                "matchLabels: {\"a b\": c}",
                "\"a b\" is not a label key, in a selector",
            ),
            (
                "matchLabels: {-a: x}",
                "\"-a\" is not a label key, in a selector",
            ),
            (
                "matchLabels: {a: x y}",
                "\"x y\" is not a label value, in a selector",
            ),
            (
                "matchExpressions: [{key: a b, operator: Exists}]",
                "\"a b\" is not a label key, in a selector",
            ),
            (
                "matchExpressions: [{key: '', operator: DoesNotExist}]",
                "\"\" is not a label key, in a selector",
            ),
            (
                "matchExpressions: [{key: a, operator: NotIn, values: [x y]}]",
                "\"x y\" is not a label value, in a selector",
            ),
            ("[]", "a selector must be an object"),
        ];
        for (text, wanted) in rows {
            assert_eq!(read(text).unwrap_err(), wanted, "{text}");
        }
    }
}
