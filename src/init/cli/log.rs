//! The flags of the log.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use super::proxy::ProxyFlags;
use crate::log::{Level, LogConfig, LogTarget};
use crate::values;

impl ProxyFlags {
    /// Returns the form and destination of the log, as far as they can be understood: faults of the other flags are told there,
    /// too.
    pub(crate) fn log(&self, default: LogTarget) -> LogConfig {
        let mut targets = Vec::new();
        for target in self.list("log-target") {
            let target = match target {
                "" => continue,
                "stdout" => LogTarget::Stdout,
                "stderr" => LogTarget::Stderr,
                file => LogTarget::File(PathBuf::from(file)),
            };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        if targets.is_empty() {
            targets.push(default);
        }
        let json = self.scalar("log-as-json").map(values::switch);
        LogConfig {
            level: Level::Info,
            json: json.is_some_and(|json| json == Ok(true)),
            targets,
        }
    }
}
