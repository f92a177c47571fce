//! The resources that the agent's own process has used, for the metrics.

#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use crate::host;
use crate::log;

/// The resources that the agent's own process has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Bytes; `None` without /proc, like the next.
    pub(crate) resident: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) open_files_limit: Option<u64>,
    pub(crate) lost_log_lines: u64,
}

impl Usage {
    /// As it is now.
    #[must_use]
    pub(crate) fn read() -> Self {
        let mut descriptors: u64 = 0;
        let listed = sys::names(Path::new("/proc/self/fd"), &mut |_| {
            descriptors = descriptors.saturating_add(1);
            true
        });
        Self {
            cpu: sys::cpu_time(),
            resident: resident(),
            // One of them is the directory itself.
            open_files: listed.ok().map(|()| descriptors.saturating_sub(1)),
            open_files_limit: sys::open_files_soft_limit(),
            lost_log_lines: log::lost_lines(),
        }
    }
}

/// The second field of statm, in pages.
fn resident() -> Option<u64> {
    let mut text = [0; 128];
    let (_, rest) = host::line("/proc/self/statm", &mut text)?.split_once(' ')?;
    let (pages, _) = rest.split_once(' ')?;
    let pages: u64 = pages.parse().ok()?;
    pages.checked_mul(sys::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_this_process_is_plausible() {
        let usage = Usage::read();
        assert!(usage.resident.unwrap() > 100 * 1024, "{usage:?}");
        assert!(usage.open_files.unwrap() >= 3, "{usage:?}");
        assert!(usage.open_files_limit >= usage.open_files, "{usage:?}");
        assert!(usage.cpu > Duration::ZERO, "{usage:?}");
    }
}
