//! Converts a template's output to the types that Kubernetes wants.
//!
//! Stock templates print numbers where strings are wanted, leave keys without a value, and name fields that Kubernetes has
//! long removed. So the field's type decides, not the text. Only a template's output is converted; a user's pod is checked
//! ([`shape`]) and never changed.

use std::fmt;

use api::text::first_letters;
use serde_json::{Map, Value};

use crate::schema::{Kind, ObjectType};
use crate::yaml::{self, Node, Scalar};

/// Settings for reading a template's output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TypingOptions {
    /// Drops `restartPolicy` of containers without a warning: old templates set `Always` on an init container, or in its
    /// `securityContext`, and since Kubernetes 1.28 that would keep it running for ever.
    pub(crate) drop_restart_policy: bool,
    /// `null` stays where one value is wanted, because it deletes; otherwise it is as good as absent.
    pub(crate) nulls: bool,
    /// `$patch` and its like stay.
    pub(crate) directives: bool,
}

/// Facts that typing collects for its caller.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypingReport {
    /// Paths of fields that no Kubernetes has there, and of directives without an effect.
    pub(crate) pruned: Vec<String>,
    /// Scalars that became strings, and on which no other value depends.
    pub(crate) texts: Vec<Text>,
    trail: Vec<usize>,
}

/// A scalar that is a text where it went.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    /// The offset in the template's output.
    pub(crate) begin: usize,
    pub(crate) plain: bool,
    /// The path in the typed value: the index of the entry or element, from the outermost on.
    pub(crate) trail: Box<[usize]>,
}

impl TypingReport {
    /// Reads the part with index `step` of the value that is being built.
    pub(crate) fn below<T>(&mut self, step: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        self.trail.push(step);
        let value = read(self);
        self.trail.pop();
        value
    }

    fn note(&mut self, begin: Option<usize>, scalar: &Scalar) {
        let trail = &self.trail;
        self.texts.extend(begin.map(|begin| Text {
            begin,
            plain: scalar.plain,
            trail: trail.as_slice().into(),
        }));
    }
}

/// A value that cannot be converted to the type of its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeError {
    pub(crate) path: String,
    pub(crate) cause: String,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.cause)
    }
}

impl std::error::Error for TypeError {}

/// The position of the reader in the output. Only an error writes it as a path.
#[derive(Debug, Clone, Copy)]
enum Path<'a> {
    Root(&'a str),
    Key(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => f.write_str(root),
            Self::Key(Self::Root(""), key) => f.write_str(key),
            Self::Key(above, key) => write!(f, "{above}.{key}"),
            Self::Index(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

impl Path<'_> {
    fn error(&self, cause: String) -> TypeError {
        TypeError {
            path: self.to_string(),
            cause,
        }
    }
}

/// Returns the value of `node` as `kind` wants it; `None` is absent. `path` is the beginning of messages.
///
/// # Errors
///
/// The value has another type than `kind`; the error has its path.
pub(crate) fn typed(
    node: &Node,
    kind: Kind,
    path: &str,
    reading: TypingOptions,
    report: &mut TypingReport,
) -> Result<Option<Value>, TypeError> {
    Reader { reading, report }.value(node, kind, &Path::Root(path))
}

struct Reader<'a> {
    reading: TypingOptions,
    report: &'a mut TypingReport,
}

impl Reader<'_> {
    fn value(
        &mut self,
        node: &Node,
        kind: Kind,
        path: &Path<'_>,
    ) -> Result<Option<Value>, TypeError> {
        if let yaml::Value::Scalar(scalar) = &node.value
            && yaml::is_null(scalar)
        {
            // A key without a value, which templates often print, does not delete the user's field.
            let heading = matches!(kind, Kind::List(_) | Kind::Map(_) | Kind::Object(_));
            return Ok((self.reading.nulls && !heading).then_some(Value::Null));
        }
        match (kind, &node.value) {
            (Kind::Object(object), yaml::Value::Map(entries)) => {
                self.object(entries, object, path).map(Some)
            }
            (Kind::Map(element), yaml::Value::Map(entries)) => {
                self.map(entries, element.kind(), path).map(Some)
            }
            (Kind::List(element), yaml::Value::List(items)) => {
                self.list(items, element.kind(), path).map(Some)
            }
            (Kind::Any, _) => Ok(Some(yaml::to_json(node))),
            (_, yaml::Value::Scalar(found)) => {
                if matches!(kind, Kind::Text | Kind::Quantity) {
                    self.report.note(node.begin, found);
                }
                scalar(found, kind)
                    .map(Some)
                    .map_err(|cause| path.error(cause))
            }
            (_, yaml::Value::Map(_)) => {
                Err(path.error(format!("want {}, got an object", type_name(kind))))
            }
            (_, yaml::Value::List(_)) => {
                Err(path.error(format!("want {}, got a list", type_name(kind))))
            }
        }
    }

    /// Reads the value at the `step`th position.
    fn below(
        &mut self,
        step: usize,
        node: &Node,
        kind: Kind,
        path: &Path<'_>,
    ) -> Result<Option<Value>, TypeError> {
        self.report.trail.push(step);
        let value = self.value(node, kind, path);
        self.report.trail.pop();
        value
    }

    fn object(
        &mut self,
        entries: &[(String, Node)],
        object: ObjectType,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        let mut fields = Map::new();
        for (key, node) in entries {
            if self.reading.drop_restart_policy
                && key == "restartPolicy"
                && matches!(object.name(), "Container" | "SecurityContext")
            {
                continue;
            }
            if self.reading.directives && key.starts_with('$') {
                directive(key, node).map_err(|cause| Path::Key(path, key).error(cause))?;
                if key != PATCH {
                    self.report.pruned.push(Path::Key(path, key).to_string());
                }
                fields.insert(key.clone(), yaml::to_json(node));
                continue;
            }
            let Some(field) = object.field(key) else {
                self.report.pruned.push(Path::Key(path, key).to_string());
                continue;
            };
            let texts = self.report.texts.len();
            if let Some(value) =
                self.below(fields.len(), node, field.kind, &Path::Key(path, key))?
            {
                fields.insert(key.clone(), value);
            }
            // Elements are identified by their names.
            if key == "name" {
                self.report.texts.truncate(texts);
            }
        }
        Ok(Value::Object(fields))
    }

    fn map(
        &mut self,
        entries: &[(String, Node)],
        element: Kind,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        let mut fields = Map::new();
        for (key, node) in entries {
            if let Some(value) = self.below(fields.len(), node, element, &Path::Key(path, key))? {
                fields.insert(key.clone(), value);
            }
        }
        Ok(Value::Object(fields))
    }

    fn list(&mut self, items: &[Node], element: Kind, path: &Path<'_>) -> Result<Value, TypeError> {
        let mut values = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            match self.below(values.len(), node, element, &Path::Index(path, index))? {
                // Go reads null in a list of strings as the empty one, and the others keep their places.
                Some(Value::Null) | None if element == Kind::Text => {
                    values.push(Value::String(String::new()));
                }
                Some(Value::Null) | None => {}
                Some(value) => values.push(value),
            }
        }
        Ok(Value::Array(values))
    }
}

/// The directive that has an effect.
const PATCH: &str = "$patch";

/// An unknown word in a `$patch` is an error of the template.
fn directive(key: &str, node: &Node) -> Result<(), String> {
    match &node.value {
        yaml::Value::Scalar(scalar)
            if matches!(scalar.text.as_str(), "replace" | "delete" | "merge") =>
        {
            Ok(())
        }
        _ if key != PATCH => Ok(()),
        yaml::Value::Scalar(_) | yaml::Value::List(_) | yaml::Value::Map(_) => {
            Err("want delete, replace or merge".to_owned())
        }
    }
}

/// A scalar that is not null, as its place wants it.
fn scalar(scalar: &Scalar, kind: Kind) -> Result<Value, String> {
    let refused = || format!("want {}, got {}", type_name(kind), described(scalar));
    match kind {
        Kind::Text | Kind::Quantity => Ok(Value::String(scalar.text.clone())),
        Kind::Boolean => scalar.boolean().map(Value::Bool).ok_or_else(refused),
        Kind::Number => yaml::number(scalar).map(Value::Number).ok_or_else(refused),
        Kind::Integer => match yaml::number(scalar) {
            Some(number) if number.is_i64() || number.is_u64() => Ok(Value::Number(number)),
            Some(_) => Err(format!("want a whole number, got {}", described(scalar))),
            None => Err(refused()),
        },
        Kind::IntegerOrText => Ok(match yaml::number(scalar) {
            Some(number) if number.is_i64() => Value::Number(number),
            _ => Value::String(scalar.text.clone()),
        }),
        Kind::Any => Ok(yaml::scalar_to_json(scalar)),
        Kind::List(_) | Kind::Map(_) | Kind::Object(_) => Err(refused()),
    }
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "a string",
        Kind::Boolean => "a boolean",
        Kind::Integer | Kind::Number => "a number",
        Kind::Quantity => "a quantity",
        Kind::IntegerOrText => "a number or a string",
        Kind::Any => "any value",
        Kind::List(_) => "a list",
        Kind::Map(_) | Kind::Object(_) => "an object",
    }
}

/// Renders a scalar for a message: in quotes, by which the log recognizes a possible secret, and shortened.
fn described(scalar: &Scalar) -> String {
    match yaml::number(scalar) {
        _ if scalar.plain && scalar.boolean().is_some() => scalar.text.clone(),
        Some(_) => number(&scalar.text),
        None => quoted(&scalar.text),
    }
}

/// The longest number without quotes. They are in every sentence, and no secret.
const MAX_UNQUOTED_DIGITS: usize = 3;

fn number(text: &str) -> String {
    if text.len() > MAX_UNQUOTED_DIGITS {
        format!("the number {}", quoted(text))
    } else {
        text.to_owned()
    }
}

fn quoted(text: &str) -> String {
    format!("{:?}", first_letters(text, 64))
}

/// Checks that a user's value has the shape of `kind`; unknown fields pass, and the value is not changed.
///
/// # Errors
///
/// A value has another type than its field, or is nested too deeply; the error has its path.
pub(crate) fn shape(value: &Value, kind: Kind, path: &str) -> Result<(), TypeError> {
    check(value, kind, &Path::Root(path), 0)
}

fn check(value: &Value, kind: Kind, path: &Path<'_>, depth: usize) -> Result<(), TypeError> {
    if depth > yaml::MAX_DEPTH {
        return Err(path.error(format!("nested deeper than {}", yaml::MAX_DEPTH)));
    }
    match (kind, value) {
        (_, Value::Null) | (Kind::Any, _) => Ok(()),
        (Kind::Text, Value::String(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Integer | Kind::Number, Value::Number(_)) => Ok(()),
        (Kind::Quantity | Kind::IntegerOrText, Value::String(_) | Value::Number(_)) => Ok(()),
        (Kind::Object(object), Value::Object(entries)) => {
            for (key, value) in entries {
                if let Some(field) = object.field(key) {
                    check(value, field.kind, &Path::Key(path, key), depth + 1)?;
                }
            }
            Ok(())
        }
        (Kind::Map(element), Value::Object(entries)) => {
            entries.iter().try_for_each(|(key, value)| {
                check(value, element.kind(), &Path::Key(path, key), depth + 1)
            })
        }
        (Kind::List(element), Value::Array(items)) => {
            items.iter().enumerate().try_for_each(|(index, value)| {
                check(value, element.kind(), &Path::Index(path, index), depth + 1)
            })
        }
        (_, other) => {
            let is_scalar = matches!(other, Value::Number(_) | Value::Bool(_));
            let advice = if kind == Kind::Text && is_scalar {
                "; quote it"
            } else {
                ""
            };
            let (want, other_type) = (type_name(kind), of_json(other));
            Err(path.error(format!("want {want}, got {other_type}{advice}")))
        }
    }
}

fn of_json(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => number(&value.to_string()),
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;
    use serde_json::json;

    fn container(text: &str) -> (Result<Value, String>, Vec<String>) {
        let mut report = TypingReport::default();
        let node = yaml::read(text).unwrap().unwrap();
        let reading = TypingOptions {
            drop_restart_policy: true,
            ..TypingOptions::default()
        };
        let made = typed(
            &node,
            Kind::Object(schema::object("Container").unwrap()),
            "containers[0]",
            reading,
            &mut report,
        );
        (
            made.map(|value| value.unwrap_or(Value::Null))
                .map_err(|error| error.to_string()),
            report.pruned,
        )
    }

    #[test]
    fn the_place_decides_what_a_scalar_is() {
        let rows = [
            (
                "args: [1, 1.50, true, null, ~, yes, '']",
                json!({"args": ["1", "1.50", "true", "", "", "yes", ""]}),
            ),
            ("image:", json!({})),
            ("name: 0644", json!({"name": "0644"})),
            (
                "env: [{name: A, value: 15000}, {name: B, value: null}, null]",
                json!({"env": [{"name": "A", "value": "15000"}, {"name": "B"}]}),
            ),
            (
                "resources: {limits: {cpu: 2, memory: 1.5Gi, x: 0.1}}",
                json!({"resources": {"limits": {"cpu": "2", "memory": "1.5Gi", "x": "0.1"}}}),
            ),
            (
                "livenessProbe: {httpGet: {port: http}}",
                json!({"livenessProbe": {"httpGet": {"port": "http"}}}),
            ),
            (
                "livenessProbe: {httpGet: {port: 80}, periodSeconds: 0o17}",
                json!({"livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 15}}),
            ),
            (
                "livenessProbe: {httpGet: {port: '80'}}",
                json!({"livenessProbe": {"httpGet": {"port": "80"}}}),
            ),
            ("tty: yes\nstdin: off", json!({"tty": true, "stdin": false})),
            (
                "restartPolicy: Always\nsecurityContext: {restartPolicy: Always, runAsUser: 0}",
                json!({"securityContext": {"runAsUser": 0}}),
            ),
        ];
        for (text, wanted) in rows {
            assert_eq!(container(text).0, Ok(wanted), "{text}");
        }
    }

    #[test]
    fn values_of_a_wrong_type_are_errors_with_their_path() {
        let rows = [
            (
                "ports: [{containerPort: x}]",
                "containers[0].ports[0].containerPort: want a number, got \"x\"",
            ),
            (
                "ports: [{containerPort: '80'}]",
                "containers[0].ports[0].containerPort: want a number, got \"80\"",
            ),
            (
                "ports: [{containerPort: 1.5}]",
                "containers[0].ports[0].containerPort: want a whole number, got 1.5",
            ),
            (
                "ports: [{containerPort: 87654.5}]",
                "containers[0].ports[0].containerPort: want a whole number, got the number \"87654.5\"",
            ),
            ("tty: 1", "containers[0].tty: want a boolean, got 1"),
            (
                "tty: 87654321",
                "containers[0].tty: want a boolean, got the number \"87654321\"",
            ),
            (
                "tty: 'true'",
                "containers[0].tty: want a boolean, got \"true\"",
            ),
            ("args: x", "containers[0].args: want a list, got \"x\""),
            ("args: {}", "containers[0].args: want a list, got an object"),
            (
                "resources: []",
                "containers[0].resources: want an object, got a list",
            ),
            (
                "env: [{name: []}]",
                "containers[0].env[0].name: want a string, got a list",
            ),
        ];
        for (text, wanted) in rows {
            assert_eq!(container(text).0, Err(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn null_deletes_what_is_one_value_and_no_list_or_object() {
        let reading = TypingOptions {
            nulls: true,
            directives: true,
            ..TypingOptions::default()
        };
        let text = "containers:\ninitContainers: ~\ndnsConfig: null\nnodeSelector:\nhostname:\npriority: ~\nhostIPC: null\n\
            affinity: {$patch: delete}\nsecurityContext: {runAsUser: null, sysctls: null}\noverhead: {cpu: ~}\n\
            tolerations: [null, {key: ~}]\nreadinessGates: []\n";
        let node = yaml::read(text).unwrap().unwrap();
        let spec = Kind::Object(schema::object("PodSpec").unwrap());
        let made = typed(&node, spec, "spec", reading, &mut TypingReport::default()).unwrap();
        let wanted = json!({"hostname": null, "priority": null, "hostIPC": null, "affinity": {"$patch": "delete"},
            "securityContext": {"runAsUser": null}, "overhead": {"cpu": null}, "tolerations": [{"key": null}], "readinessGates": []});
        assert_eq!(made, Some(wanted));
    }

    #[test]
    fn directives_without_an_effect_are_told() {
        let text = "{$patch: merge, volumes: [{name: a, $retainKeys: [name]}], '$setElementOrder/volumes': [{name: a}]}";
        let node = yaml::read(text).unwrap().unwrap();
        let spec = Kind::Object(schema::object("PodSpec").unwrap());
        let reading = TypingOptions {
            drop_restart_policy: false,
            nulls: true,
            directives: true,
        };
        let mut report = TypingReport::default();
        typed(&node, spec, "spec", reading, &mut report).unwrap();
        assert_eq!(
            report.pruned,
            [
                "spec.volumes[0].$retainKeys",
                "spec.$setElementOrder/volumes"
            ]
        );
    }

    #[test]
    fn unknown_fields_are_pruned() {
        let (made, pruned) =
            container("future: 1\nports: [{containerPort: 80, x: {y: 1}}]\nenvFrom: []\n");
        assert_eq!(
            made,
            Ok(json!({"ports": [{"containerPort": 80}], "envFrom": []}))
        );
        assert_eq!(pruned, ["containers[0].future", "containers[0].ports[0].x"]);
    }

    #[test]
    fn a_users_pod_is_looked_at_only() {
        let pod = Kind::Object(schema::object("Pod").unwrap());
        let good = json!({"future": [1], "metadata": {"annotations": null}, "spec": {"containers": [{"name": "a", "x": 1}], "overhead": {"cpu": 1}}});
        assert_eq!(shape(&good, pod, ""), Ok(()));
        let rows = [
            (
                json!({"spec": {"containers": "x"}}),
                "spec.containers: want a list, got \"x\"",
            ),
            (
                json!({"metadata": {"annotations": {"a": 1}}}),
                "metadata.annotations.a: want a string, got 1; quote it",
            ),
            (
                json!({"metadata": {"annotations": {"a": 87_654_321}}}),
                "metadata.annotations.a: want a string, got the number \"87654321\"; quote it",
            ),
            (
                json!({"metadata": {"labels": {"a": true}}}),
                "metadata.labels.a: want a string, got true; quote it",
            ),
            (
                json!({"spec": {"containers": [{}, 7]}}),
                "spec.containers[1]: want an object, got 7",
            ),
            (
                json!({"spec": {"hostNetwork": "true"}}),
                "spec.hostNetwork: want a boolean, got \"true\"",
            ),
        ];
        for (bad, wanted) in rows {
            assert_eq!(shape(&bad, pod, "").unwrap_err().to_string(), wanted);
        }
    }
}
