//! The configuration file as it is written: its keys and their types, without their effect on a pod.

use std::collections::BTreeMap;

use crate::decision::Policy;
use crate::selector::Selector;
use crate::template::Delimiters;
use crate::yaml::{self, Node, Value as Tree};

/// The form in which the agent takes the application's probes. Each form includes the earlier ones, and an agent ends at the start
/// if it gets a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Probers {
    /// For agents up to 1.4: the bare httpGet of readiness and liveness.
    Legacy,
    /// For agents of 1.5 and 1.6: `httpGet` by name.
    WithoutStartup,
    /// For agents of 1.7 and 1.8: that of startup probes, too. 1.7.0 and 1.7.1 do not know them yet.
    CurrentHttp,
    /// For agents of 1.9 to 1.11: with `timeoutSeconds`, as their injectors sent it.
    Http,
    /// For agents of 1.12.
    TcpSocket,
    /// For agents of 1.13 to 1.24.
    Grpc,
    /// For agents since 1.25, and our own: hooks, too.
    Current,
}

impl Probers {
    /// The word for it in the file, or for the one nearest to it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::WithoutStartup | Self::CurrentHttp => "current-http",
            Self::Http | Self::TcpSocket | Self::Grpc | Self::Current => "current",
        }
    }
}

/// The parsed file.
#[derive(Default)]
pub(crate) struct File {
    pub(crate) policy: Policy,
    pub(crate) template: Option<String>,
    pub(crate) templates: Option<Vec<(String, String)>>,
    pub(crate) default_templates: Option<Vec<String>>,
    pub(crate) aliases: BTreeMap<String, Vec<String>>,
    pub(crate) rewrite_probes: Option<bool>,
    pub(crate) injected_annotations: BTreeMap<String, String>,
    pub(crate) delimiters: Option<Delimiters>,
    pub(crate) probers: Option<Probers>,
    pub(crate) add_labels: Option<bool>,
}

impl File {
    pub(crate) fn read(node: Option<&Node>, warnings: &mut Vec<String>) -> Result<Self, String> {
        let mut file = Self {
            policy: Policy {
                enabled: true,
                ..Policy::default()
            },
            ..Self::default()
        };
        let Some(node) = node else { return Ok(file) };
        let Tree::Map(entries) = &node.value else {
            return Err(format!("line {}: want an object", node.line));
        };
        let mut unknown = Vec::new();
        for (key, value) in entries {
            if is_null(value) {
                continue;
            }
            let is_known = file
                .key(key, value)
                .map_err(|cause| format!("line {}: {key}: {cause}", value.line))?;
            if !is_known {
                unknown.push(key.as_str());
            }
        }
        // Charts since 1.9 write a guard there, for injectors that know no `templates`.
        if file.templates.is_some() {
            file.template = None;
        }
        if unknown.contains(&"kind") && file.template.is_none() && file.templates.is_none() {
            object(entries)?;
        }
        if !unknown.is_empty() {
            warnings.push(format!("unknown keys are ignored: {}", unknown.join(", ")));
        }
        Ok(file)
    }

    /// Reads the value of a key; returns false for an unknown one.
    fn key(&mut self, key: &str, value: &Node) -> Result<bool, String> {
        match key {
            "policy" => {
                self.policy.enabled = match text(value)? {
                    "enabled" => true,
                    "disabled" => false,
                    other => return Err(format!("want enabled or disabled, got {other:?}")),
                }
            }
            "template" => self.template = Some(text(value)?.to_owned()),
            "templates" => self.templates = Some(texts(value)?),
            "alwaysInjectSelector" => self.policy.always = selectors(value)?,
            "neverInjectSelector" => self.policy.never = selectors(value)?,
            "injectedAnnotations" => {
                self.injected_annotations = texts(value)?.into_iter().collect();
            }
            "delimiters" => {
                self.delimiters = match list(value)?.as_slice() {
                    [left, right] if !left.is_empty() && !right.is_empty() => {
                        Some(Delimiters::new(left, right))
                    }
                    _ => return Err("want two strings that are not empty".to_owned()),
                }
            }
            "probers" => {
                self.probers = match text(value)? {
                    "legacy" => Some(Probers::Legacy),
                    "current-http" => Some(Probers::CurrentHttp),
                    "current" => Some(Probers::Current),
                    other => {
                        return Err(format!(
                            "want legacy, current-http or current, got {other:?}"
                        ));
                    }
                }
            }
            "addLabels" => self.add_labels = Some(boolean(value)?),
            "rewriteAppHTTPProbe" => self.rewrite_probes = Some(boolean(value)?),
            // An empty list means the default, as in Istio.
            "defaultTemplates" => {
                self.default_templates = Some(list(value)?).filter(|names| !names.is_empty());
            }
            "aliases" => self.aliases = lists(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the delimiters. Istio wrote its templates with brackets up to 1.4, and with Go's braces since then.
    pub(crate) fn delimiters(&self) -> Delimiters {
        let braces = Delimiters::new("{{", "}}");
        match (&self.delimiters, &self.template) {
            (Some(delimiters), _) => delimiters.clone(),
            (None, Some(text)) if !text.contains("{{") || text.contains("[[") => {
                Delimiters::new("[[", "]]")
            }
            (None, _) => braces,
        }
    }
}

/// Refuses an object of Kubernetes: without this its pods would silently get the built-in template.
fn object(entries: &[(String, Node)]) -> Result<(), String> {
    let value = |key: &str| entries.iter().find(|(known, _)| known == key);
    let Some(((_, kind), _)) = value("kind").zip(value("apiVersion")) else {
        return Ok(());
    };
    let has_file = value("data").is_some_and(|(_, data)| match &data.value {
        Tree::Map(data) => data.iter().any(|(key, _)| key == "config"),
        Tree::Scalar(_) | Tree::List(_) => false,
    });
    let where_it_is = if has_file {
        "the file is its data.config"
    } else {
        "the file has the text of data.config of a ConfigMap"
    };
    let kind = text(kind).unwrap_or_default();
    Err(format!(
        "this is an object of Kubernetes ({kind}), not its file: {where_it_is}"
    ))
}

fn is_null(node: &Node) -> bool {
    matches!(&node.value, Tree::Scalar(scalar) if yaml::is_null(scalar))
}

fn text(node: &Node) -> Result<&str, String> {
    match &node.value {
        Tree::Scalar(scalar) => Ok(&scalar.text),
        Tree::List(_) | Tree::Map(_) => Err("want a string".to_owned()),
    }
}

fn boolean(node: &Node) -> Result<bool, String> {
    match &node.value {
        Tree::Scalar(scalar) => scalar
            .boolean()
            .ok_or_else(|| "want true or false".to_owned()),
        Tree::List(_) | Tree::Map(_) => Err("want true or false".to_owned()),
    }
}

fn texts(node: &Node) -> Result<Vec<(String, String)>, String> {
    match &node.value {
        Tree::Map(entries) => entries
            .iter()
            .map(|(key, value)| {
                Ok((
                    key.clone(),
                    if is_null(value) { "" } else { text(value)? }.to_owned(),
                ))
            })
            .collect(),
        Tree::Scalar(_) | Tree::List(_) => Err("want an object of strings".to_owned()),
    }
}

fn list(node: &Node) -> Result<Vec<String>, String> {
    match &node.value {
        Tree::List(items) => items
            .iter()
            .map(|item| text(item).map(str::to_owned))
            .collect(),
        Tree::Scalar(_) | Tree::Map(_) => Err("want a list of strings".to_owned()),
    }
}

fn lists(node: &Node) -> Result<BTreeMap<String, Vec<String>>, String> {
    match &node.value {
        Tree::Map(entries) => entries
            .iter()
            .map(|(key, value)| Ok((key.clone(), list(value)?)))
            .collect(),
        Tree::Scalar(_) | Tree::List(_) => Err("want an object of lists".to_owned()),
    }
}

fn selectors(node: &Node) -> Result<Vec<Selector>, String> {
    match &node.value {
        Tree::List(items) => items
            .iter()
            .filter(|item| !is_null(item))
            .map(Selector::read)
            .collect(),
        Tree::Scalar(_) | Tree::Map(_) => Err("want a list of selectors".to_owned()),
    }
}
