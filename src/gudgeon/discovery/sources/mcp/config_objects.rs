//! Objects of all sources as they are written, for pages: with the findings of the reader, where it is in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::collections::any_kind_of;
use api::config::{self, Finding, Kind};
use serde_json::Value;
use sources::catalogue::{ConfigObject, ConfigReport, EntryId, Origin, Refused, UncheckedObject};
use sources::memory::LastVersion;

use super::super::debug_view::DebugView;
use super::{FollowedSource, McpSources, SourceOrigin};

/// The report of each source in this process.
fn reports(sources: &[FollowedSource]) -> impl Iterator<Item = Arc<ConfigReport>> {
    sources.iter().filter_map(|source| match &source.origin {
        SourceOrigin::Local(local) => Some(local.report()),
        SourceOrigin::Link(_) | SourceOrigin::Port(..) => None,
    })
}

/// The kind of each object that is accepted and neither checked nor served.
pub(super) fn unchecked_kinds(sources: &[FollowedSource]) -> Vec<&'static Kind> {
    let all = reports(sources).flat_map(|report| {
        let ids = report.unchecked.keys();
        let kinds = ids.filter_map(|id| any_kind_of(id.collection));
        kinds.collect::<Vec<_>>()
    });
    all.collect()
}

impl McpSources {
    /// Adds all objects, used or not.
    pub(in super::super) fn config_objects(&self, all: &mut DebugView) {
        let (sources, rules, services) = {
            // The event loop takes this lock: rows are made and redacted without it.
            let state = self.state();
            let rules: Vec<_> = state.rules.last_versions().collect();
            let services: Vec<_> = state.services.last_versions().collect();
            (state.sources.clone(), rules, services)
        };
        let reports: Vec<_> = reports(&sources).collect();
        all.add(&self.rules, received(rules, &reports).map(Arc::new));
        let services = services.into_iter().map(LastVersion::config_object);
        all.add(&self.services, services.map(Arc::new));
        for report in &reports {
            let refused = report.refused.iter().filter_map(Refused::as_written);
            let unchecked = report.unchecked.iter();
            let unchecked = unchecked.filter_map(|(id, object)| unchecked_object(id, object));
            all.add(&self.rules, refused.chain(unchecked).map(Arc::new));
        }
        let refused = sources.iter().flat_map(FollowedSource::refused_objects);
        all.add(&self.rules, refused.map(Arc::new));
    }
}

/// The objects that were received. Bytes do not say all that the text did: those of a reader in this process have its warnings.
fn received(
    rules: Vec<LastVersion>,
    reports: &[Arc<ConfigReport>],
) -> impl Iterator<Item = ConfigObject> {
    let warnings = warnings(reports);
    rules.into_iter().map(move |last| {
        let mut row = last.config_object();
        let name = match &*row.namespace {
            "" => Arc::clone(&row.name),
            namespace => format!("{namespace}/{}", row.name).into(),
        };
        let is_local = !matches!(row.origin, Origin::Source(_));
        let own = warnings.get(&(&*row.kind, name));
        if let Some(own) = own.filter(|_| is_local && row.is_accepted) {
            row.findings = own.to_vec();
        }
        row
    })
}

/// Warnings of the objects that are served, by kind and name. A duplicate, or a refused version of one, has warnings of its own.
fn warnings(reports: &[Arc<ConfigReport>]) -> BTreeMap<(&str, Arc<str>), Arc<[Finding]>> {
    let warned = reports.iter().flat_map(|report| &report.warned);
    let accepted = warned.filter(|one| one.is_accepted);
    let by_name = accepted.map(|one| {
        let key = (one.id.kind(), Arc::clone(&one.id.name));
        (key, Arc::clone(&one.warnings))
    });
    by_name.collect()
}

fn unchecked_object(id: &EntryId, object: &UncheckedObject) -> Option<ConfigObject> {
    let mut value: Value = serde_json::from_str(&object.json).ok()?;
    let (_, findings) = config::check(&value);
    let mut take = |name| value.get_mut(name).map(Value::take).unwrap_or_default();
    let (metadata, spec) = (take("metadata"), take("spec"));
    let api_version = take("apiVersion").as_str()?.into();
    let (namespace, name) = id.namespace_and_name();
    Some(ConfigObject {
        api_version,
        kind: id.kind().into(),
        namespace: namespace.into(),
        name: name.into(),
        metadata,
        spec: spec.into(),
        origin: object.origin.clone(),
        is_accepted: true,
        findings,
        notes: Vec::new(),
        revision: sources::Revision::default(),
    })
}

#[cfg(test)]
mod tests {
    use sources::catalogue::Warned;

    use super::*;

    #[test]
    fn a_duplicate_keeps_its_warnings_to_itself() {
        let warned = |line: usize, is_accepted: bool| Warned {
            id: EntryId {
                collection: "istio/networking/v1alpha3/gateways",
                name: "n/a".into(),
            },
            origin: Origin::file("a.yaml").at(line),
            warnings: [Finding::warning("spec", format!("of line {line}"))].into(),
            notes: Arc::default(),
            is_accepted,
        };
        let report = ConfigReport {
            warned: vec![warned(1, true), warned(20, false)],
            ..ConfigReport::default()
        };
        let reports = [Arc::new(report)];
        let all = warnings(&reports);
        let all: Vec<_> = all.values().map(|all| all[0].message.as_str()).collect();
        assert_eq!(all, ["of line 1"]);
    }
}
