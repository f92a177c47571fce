//! Configuration as it was written, together with what the sources beside its own make of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::Finding;
use sources::aggregate::Report;
use sources::catalogue::ConfigObject;
use sources::contribution::SourceId;

use crate::secrets::redact_finding;

/// The object without what messages quote of values that may be secrets.
fn redacted(mut row: Arc<ConfigObject>) -> Arc<ConfigObject> {
    let hide = |all: &[Finding]| -> Vec<_> { all.iter().map(redact_finding).collect() };
    let (findings, notes) = (hide(&row.findings), hide(&row.notes));
    // A row without secrets stays shared.
    if (&findings, &notes) != (&row.findings, &row.notes) {
        let row = Arc::make_mut(&mut row);
        (row.findings, row.notes) = (findings, notes);
    }
    row
}

/// By source, kind, namespace and name.
type SourceObjectKey = (SourceId, Arc<str>, Arc<str>, Arc<str>);

/// Objects, for those who look.
#[derive(Debug)]
pub(super) struct DebugView {
    reports: BTreeMap<SourceObjectKey, Vec<Report>>,
    pub(super) rows: Vec<Arc<ConfigObject>>,
}

impl DebugView {
    pub(super) fn new(reports: Vec<Report>) -> Self {
        let mut by_object: BTreeMap<SourceObjectKey, Vec<Report>> = BTreeMap::new();
        for report in reports {
            let name = (report.namespace.clone(), report.name.clone());
            let key = (report.source.clone(), report.kind.into(), name.0, name.1);
            by_object.entry(key).or_default().push(report);
        }
        Self {
            reports: by_object,
            rows: Vec::new(),
        }
    }

    /// The objects of one source.
    pub(super) fn add(
        &mut self,
        source: &SourceId,
        rows: impl IntoIterator<Item = Arc<ConfigObject>>,
    ) {
        for row in rows {
            let row = self.with_reports(source, redacted(row));
            self.rows.push(row);
        }
    }

    /// An object that is not accepted is another version than the one which lost.
    fn with_reports(&self, source: &SourceId, mut row: Arc<ConfigObject>) -> Arc<ConfigObject> {
        if self.reports.is_empty() || !row.is_accepted {
            return row;
        }
        let name = (row.namespace.clone(), row.name.clone());
        let key = (source.clone(), row.kind.clone(), name.0, name.1);
        if let Some(reports) = self.reports.get(&key) {
            let one = Arc::make_mut(&mut row);
            one.is_accepted = !reports.iter().any(|report| report.whole);
            let findings = reports.iter().map(|report| match report.whole {
                true => Finding::error("", report.message.as_str()),
                false => Finding::warning("", report.message.as_str()),
            });
            one.findings.extend(findings);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::Registry;
    use serde_json::Value;

    #[test]
    fn a_loss_is_reported_at_the_object_of_its_source() {
        let source = |registry| SourceId {
            registry,
            cluster: "local".into(),
        };
        let report = |name: &str, whole| Report {
            source: source(Registry::External),
            kind: "ServiceEntry",
            namespace: "demo".into(),
            name: name.into(),
            message: format!("{name} is not used"),
            whole,
        };
        let row = |name: &str, is_accepted: bool| {
            Arc::new(ConfigObject {
                api_version: "networking.istio.io/v1".into(),
                kind: "ServiceEntry".into(),
                namespace: "demo".into(),
                name: name.into(),
                metadata: Value::Null,
                spec: Value::Null.into(),
                origin: sources::catalogue::Origin::file("a.yaml"),
                is_accepted,
                findings: vec![Finding::warning("", "old")],
                notes: Vec::new(),
                revision: sources::Revision::default(),
            })
        };
        let reports = [("a", true), ("b", false), ("b", false), ("c", true)];
        let mut view = DebugView::new(reports.map(|(name, whole)| report(name, whole)).into());
        let rows = [
            row("a", true),
            row("b", true),
            row("c", false),
            row("d", true),
        ];
        view.add(&source(Registry::External), rows);
        view.add(&source(Registry::Kubernetes), [row("a", true)]);
        let found: Vec<_> = view
            .rows
            .iter()
            .map(|row| (&*row.name, row.is_accepted, row.findings.len()))
            .collect();
        assert_eq!(
            found,
            [
                ("a", false, 2),
                ("b", true, 3),
                ("c", false, 1),
                ("d", true, 1),
                ("a", true, 1),
            ]
        );
    }
}
