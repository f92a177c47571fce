//! Gauges of the state at the moment of a scrape.

use api::config::Effect;
use api::config::collections::{any_kind_of, kind_of};
use mcp::session::State;
use prometheus_client::registry::Registry;

use super::engine::GalleyEngine;
use super::metrics::GalleyMetrics;
use crate::exposition::{ExpositionFormat, up_to};
use crate::file_states::FileStates;
use crate::{log, process};

impl GalleyMetrics {
    /// Sets the gauges, one caller at a time.
    fn show(&self, engine: &GalleyEngine) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let Self {
            instances,
            refused,
            warnings,
            without_effect,
            session,
            ..
        } = self;
        instances.clear();
        refused.clear();
        warnings.clear();
        without_effect.clear();
        let current = engine.state_snapshot();
        for published in &current.published {
            for collection in published.snapshot.collections() {
                let count = collection.members().len();
                if count > 0 {
                    let label = [("collection", collection.name().to_string())];
                    instances.get_or_create(&label).set(number(count));
                    let kind = kind_of(collection.name());
                    if let Some(kind) = kind.filter(|kind| kind.effect == Effect::None) {
                        let label = [("kind", kind.kind.to_owned())];
                        without_effect.get_or_create(&label).set(number(count));
                    }
                }
            }
        }
        let unchecked = current.report.unchecked.keys();
        for kind in unchecked.filter_map(|id| any_kind_of(id.collection)) {
            let label = [("kind", kind.kind.to_owned())];
            without_effect.get_or_create(&label).inc();
        }
        for report in [&*current.report, &current.generated] {
            for ((collection, state), count) in report.counts() {
                let label = [
                    ("collection", collection.to_owned()),
                    ("state", state.as_str().to_owned()),
                ];
                refused.get_or_create(&label).inc_by(number(count));
            }
            for (collection, count) in report.warnings() {
                let label = [("collection", collection.to_owned())];
                warnings.get_or_create(&label).inc_by(number(count));
            }
        }
        for each in State::ALL {
            let label = [("state", each.as_str().to_owned())];
            let is_it = i64::from(each == current.session.state);
            session.get_or_create(&label).set(is_it);
        }
    }

    /// Renders all metrics as text.
    pub(super) fn text(
        &self,
        registry: &Registry,
        engine: Option<&GalleyEngine>,
        files: &FileStates,
        format: ExpositionFormat,
    ) -> String {
        if let Some(engine) = engine {
            self.show(engine);
        }
        self.files.show(&files.get());
        if let Some(bytes) = process::resident() {
            self.resident.set(bytes);
        }
        up_to(&self.lost_lines, log::lost_lines());
        format.text(registry)
    }
}
