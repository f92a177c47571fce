//! The report of a source: objects that are not served as written, for logs, pages and metrics.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::config::collections::any_kind_of;
use api::config::{Finding, FindingList, ServedInstead};
use serde_json::json;

use super::config_object::ConfigObject;
use super::entry::{EntryId, UncheckedObject};
use super::origin::Origin;
use crate::kind::Revision;

/// An object that is not served as it is written; or a file or directory that cannot be read, which has no name.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub id: EntryId,
    /// In a file, the line of the first fault.
    pub origin: Origin,
    pub serving: ServedInstead,
    pub findings: Arc<[Finding]>,
    /// The object as it is written, if its reader shows it.
    pub written: Option<Arc<ConfigObject>>,
    /// The refused version, of an API server's object.
    pub revision: Revision,
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(&self.origin, &self.id, to)?;
        write!(to, "{}: ", self.serving.as_str())?;
        FindingList(&self.findings).fmt(to)
    }
}

/// The kind in the place of that of an object: a file that cannot be read, or not all of it.
pub const FILE: &str = "File";

impl Refused {
    /// The kind and the name under which it is shown: an object without a name by its file.
    #[must_use]
    pub fn kind_and_name(&self) -> (&str, Cow<'_, str>) {
        if let Some(config_object) = &self.written {
            return (&config_object.kind, config_object.full_name());
        }
        if self.id.is_whole() {
            return (self.id.kind(), Cow::Borrowed(&self.id.name));
        }
        let name = match &self.origin {
            Origin::File { path, .. } => path,
            Origin::Cluster { object, .. } => object,
            Origin::Source(name) => name,
        };
        (FILE, Cow::Borrowed(name))
    }

    /// The object as pages show it, with its errors; `None` for one of Kubernetes' own kinds, which is no configuration.
    #[must_use]
    pub fn as_written(&self) -> Option<ConfigObject> {
        if let Some(object) = &self.written {
            return Some((**object).clone());
        }
        let (kind, full) = self.kind_and_name();
        let api_version = match any_kind_of(self.id.collection) {
            _ if kind == FILE => String::new(),
            Some(kind) => {
                let version = kind.versions.last().copied().unwrap_or_default();
                format!("{}/{version}", kind.group)
            }
            None => return None,
        };
        let (namespace, name) = match kind {
            FILE => ("", &*full),
            _ => self.id.namespace_and_name(),
        };
        let metadata = match namespace {
            "" => json!({"name": name}),
            namespace => json!({"namespace": namespace, "name": name}),
        };
        Some(ConfigObject {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            metadata,
            // It stands where it was written.
            spec: json!({}).into(),
            origin: self.origin.clone(),
            is_accepted: false,
            findings: self.findings.to_vec(),
            notes: Vec::new(),
            revision: self.revision.clone(),
        })
    }

    /// The findings as text, without the place.
    #[must_use]
    pub fn text(&self) -> String {
        let text = self.to_string();
        let place = format!("{}: ", self.origin);
        text.strip_prefix(&place).unwrap_or(&text).to_owned()
    }

    /// Returns the fault without its version, to compare it, and the line for the log.
    #[must_use]
    pub fn line(&self) -> (String, String) {
        with_fault(&self.origin, self.to_string())
    }
}

/// An object that has warnings, or that this release does not serve as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warned {
    pub id: EntryId,
    /// The origin, as in [`Refused`].
    pub origin: Origin,
    pub warnings: Arc<[Finding]>,
    /// The parts that discovery does not serve as they are written; the log has no line for them.
    pub notes: Arc<[Finding]>,
    /// False for a refused object, or a duplicate: another object of its name may be served.
    pub is_accepted: bool,
}

impl fmt::Display for Warned {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(&self.origin, &self.id, to)?;
        FindingList(&self.warnings).fmt(to)
    }
}

impl Warned {
    /// As [`Refused::line`].
    #[must_use]
    pub fn line(&self) -> (String, String) {
        with_fault(&self.origin, self.to_string())
    }
}

/// The line without the version in its place, and the line.
fn with_fault(origin: &Origin, line: String) -> (String, String) {
    let rest = line.strip_prefix(&origin.to_string()).unwrap_or(&line);
    (format!("{}{rest}", origin.without_version()), line)
}

fn place(origin: &Origin, id: &EntryId, to: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(to, "{origin}: ")?;
    if *id == EntryId::default() {
        return Ok(());
    }
    write!(to, "{id}: ")
}

/// The report of a source, sorted by file, or by kind and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigReport {
    pub refused: Vec<Refused>,
    pub warned: Vec<Warned>,
    /// Objects that are served.
    pub served: usize,
    /// The origin of each Ingress, by name: findings about resources made from it carry it.
    pub ingresses: Arc<BTreeMap<Arc<str>, Origin>>,
    /// Objects of kinds that are accepted and neither checked nor served.
    pub unchecked: Arc<BTreeMap<EntryId, UncheckedObject>>,
}

/// Log lines of one change at most.
const MAX_LINES: usize = 100;

impl ConfigReport {
    /// Returns the lines that `before` does not have, at most `MAX_LINES`, and the number of those cut. Another version of an
    /// object that has the same fault is no news.
    #[must_use]
    pub fn new_lines(&self, before: &Self) -> (Vec<String>, usize) {
        let faults: BTreeSet<String> = before.lines().map(|(fault, _)| fault).collect();
        let new = self.lines().filter(|(fault, _)| !faults.contains(fault));
        let mut new: Vec<_> = new.map(|(_, line)| line).collect();
        let more = new.len().saturating_sub(MAX_LINES);
        new.truncate(MAX_LINES);
        (new, more)
    }

    /// Each fault without its version, and the line that tells it.
    fn lines(&self) -> impl Iterator<Item = (String, String)> {
        let refused = self.refused.iter().map(Refused::line);
        let warned = self.warned.iter().filter(|one| !one.warnings.is_empty());
        refused.chain(warned.map(Warned::line))
    }

    /// Counts the refused objects by collection and by the version that is served in their place.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, ServedInstead), usize> {
        let mut counts = BTreeMap::new();
        for one in &self.refused {
            *counts.entry((one.id.collection, one.serving)).or_default() += 1;
        }
        counts
    }

    /// Counts the warnings by collection.
    #[must_use]
    pub fn warnings(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for one in self.warned.iter().filter(|one| !one.warnings.is_empty()) {
            *counts.entry(one.id.collection).or_default() += one.warnings.len();
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, serving: ServedInstead) -> Refused {
        Refused {
            id: EntryId {
                collection: "istio/networking/v1alpha3/gateways",
                name: name.into(),
            },
            origin: Origin::file("a.yaml").at(3),
            serving,
            findings: [Finding::error("spec", "is bad"), Finding::error("", "x")].into(),
            written: None,
            revision: Revision::default(),
        }
    }

    #[test]
    fn another_version_with_the_same_fault_is_no_news() {
        let of = |version: &str, fault: &str| {
            let origin = Origin::of_cluster(&"Kubernetes".into(), &"demo/b", version);
            let id = refused("demo/b", ServedInstead::Nothing).id;
            let refused = Refused {
                origin: origin.clone(),
                findings: [Finding::error("spec", fault)].into(),
                ..refused("demo/b", ServedInstead::Nothing)
            };
            let warned = Warned {
                id,
                origin,
                warnings: [Finding::warning("spec", fault)].into(),
                notes: Arc::default(),
                is_accepted: true,
            };
            ConfigReport {
                refused: vec![refused],
                warned: vec![warned],
                ..ConfigReport::default()
            }
        };
        let before = of("7", "is bad");
        assert_eq!(of("8", "is bad").new_lines(&before), (Vec::new(), 0));
        let (lines, _) = of("8", "is worse").new_lines(&before);
        let begins = |line: &String| line.starts_with("Kubernetes/demo/b@8: ");
        assert!(lines.len() == 2 && lines.iter().all(begins), "{lines:?}");
    }

    #[test]
    fn new_findings_are_logged_once() {
        let unread = Refused {
            id: EntryId::default(),
            ..refused("", ServedInstead::Old)
        };
        let warned = Warned {
            id: refused("b", ServedInstead::Old).id,
            origin: Origin::file("b.yaml").at(1),
            warnings: [Finding::warning("spec", "is old")].into(),
            notes: [Finding::warning("spec", "is noted")].into(),
            is_accepted: true,
        };
        let before = ConfigReport {
            refused: vec![refused("n/a", ServedInstead::Old)],
            ..ConfigReport::default()
        };
        let now = ConfigReport {
            refused: vec![refused("n/a", ServedInstead::Old), unread],
            warned: vec![warned],
            served: 1,
            ..ConfigReport::default()
        };
        assert_eq!(
            now.new_lines(&before),
            (
                vec![
                    "a.yaml:3: stale: spec: is bad; x".to_owned(),
                    "b.yaml:1: Gateway b: warning: spec: is old".to_owned()
                ],
                0
            )
        );
        assert_eq!(
            before.new_lines(&ConfigReport::default()).0,
            ["a.yaml:3: Gateway n/a: stale: spec: is bad; x"]
        );
        assert_eq!(now.counts().values().copied().collect::<Vec<_>>(), [1, 1]);
        assert_eq!(now.warnings().values().copied().collect::<Vec<_>>(), [1]);
        let many = ConfigReport {
            refused: (0..150)
                .map(|at| refused(&at.to_string(), ServedInstead::Nothing))
                .collect(),
            ..ConfigReport::default()
        };
        let (lines, more) = many.new_lines(&before);
        assert_eq!((lines.len(), more), (100, 50));
    }
}
