//! The files that discovery follows, by the names that the injector has for the same.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::exposition::{GaugeFamily, up_to};
use crate::file_states::FileState;

#[derive(Debug, Default)]
pub(super) struct FileMetrics {
    valid: GaugeFamily<1>,
    reloads: Family<[(&'static str, String); 2], Counter>,
    not_after: GaugeFamily<1>,
}

impl FileMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let valid = "1 if the current content of the file is in use";
        registry.register("gudgeon_config_valid", valid, self.valid.clone());
        let reloads = "Reloads of changed files";
        registry.register("gudgeon_config_reloads", reloads, self.reloads.clone());
        let not_after = "End of the served certificate, in seconds since 1970";
        let ends = self.not_after.clone();
        registry.register("gudgeon_tls_not_after_seconds", not_after, ends);
    }

    pub(super) fn show(&self, files: &BTreeMap<&'static str, FileState>) {
        for (name, state) in files {
            let file = ("file", (*name).to_owned());
            let valid = self.valid.get_or_create(std::array::from_ref(&file));
            valid.set(i64::from(state.error.is_none()));
            for (result, count) in [("ok", state.good), ("broken", state.broken)] {
                let labels = [file.clone(), ("result", result.to_owned())];
                up_to(&self.reloads.get_or_create(&labels), count);
            }
            if let Some(end) = state.not_after {
                let since = end.duration_since(UNIX_EPOCH).unwrap_or_default();
                let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
                self.not_after.get_or_create(&[file]).set(seconds);
            }
        }
    }
}
