//! Metrics of the files that a role follows.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{FileState, ReloadResult};
use crate::exposition::{GaugeFamily, up_to};

/// A clone has the same metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileMetrics {
    valid: GaugeFamily<1>,
    reloads: Family<[(&'static str, String); 2], Counter>,
    not_after: GaugeFamily<1>,
}

impl FileMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let valid = "1 if the current content of the file is in use";
        registry.register("gudgeon_config_valid", valid, self.valid.clone());
        let reloads = "Reloads of changed files";
        registry.register("gudgeon_config_reloads", reloads, self.reloads.clone());
    }

    /// Registers the ends of certificates, by file.
    pub(crate) fn register_ends(&self, registry: &mut Registry) {
        let not_after = "End of the served certificate, in seconds since 1970";
        let ends = self.not_after.clone();
        registry.register("gudgeon_tls_not_after_seconds", not_after, ends);
    }

    /// Sets the metrics of files whose states are kept.
    pub(crate) fn show(&self, files: &BTreeMap<&'static str, FileState>) {
        for (name, state) in files {
            let file = ("file", (*name).to_owned());
            self.set_valid(name, state.error.is_none() && !state.is_gone);
            for (result, count) in [
                (ReloadResult::Used, state.good),
                (ReloadResult::Broken, state.broken),
            ] {
                let labels = [file.clone(), ("result", result.as_str().to_owned())];
                up_to(&self.reloads.get_or_create(&labels), count);
            }
            if let Some(end) = state.not_after {
                let since = end.duration_since(UNIX_EPOCH).unwrap_or_default();
                let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
                self.not_after.get_or_create(&[file]).set(seconds);
            }
        }
    }

    /// Sets whether the present content of a file is in use.
    fn set_valid(&self, name: &'static str, is_valid: bool) {
        let labels = [("file", name.to_owned())];
        self.valid.get_or_create(&labels).set(i64::from(is_valid));
    }

    /// Counts a reload of a file whose state is not kept.
    pub(crate) fn reloaded(&self, name: &'static str, result: ReloadResult) {
        self.set_valid(name, result == ReloadResult::Used);
        let result = ("result", result.as_str().to_owned());
        let labels = [("file", name.to_owned()), result];
        self.reloads.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_valid_whose_present_content_is_in_use() {
        let metrics = FileMetrics::default();
        let good = FileState::default();
        let broken = FileState {
            error: Some("line 1".to_owned()),
            ..FileState::default()
        };
        let gone = FileState {
            is_gone: true,
            ..FileState::default()
        };
        for (state, is_valid) in [(good, 1), (broken, 0), (gone, 0)] {
            metrics.show(&BTreeMap::from([("file", state.clone())]));
            let labels = [("file", "file".to_owned())];
            let valid = metrics.valid.get_or_create(&labels).get();
            assert_eq!(valid, is_valid, "{state:?}");
        }
    }
}
