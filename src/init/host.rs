//! What the start finds out about the machine.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use crate::config::Host;
use crate::sys;

/// The CPU limit of the cgroup that the container sees as its root: v2, then v1.
const CPU_MAX: &str = "/sys/fs/cgroup/cpu.max";
const CPU_QUOTA: &str = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us";
const CPU_PERIOD: &str = "/sys/fs/cgroup/cpu/cpu.cfs_period_us";

/// Looks once, and at the CPU limit when it is asked for; the rest of the agent's life believes it. The descriptor is to be
/// closed when there is time.
#[must_use]
pub(crate) fn look() -> (Host, Option<OwnedFd>) {
    let (addresses, socket) = sys::interface_addresses();
    let host = Host {
        addresses,
        cpu_limit,
    };
    (host, socket)
}

fn cpu_limit() -> Option<u32> {
    let mut text = [0; 64];
    if let Some(limit) = line(CPU_MAX, &mut text) {
        return cpus(limit);
    }
    let quota = line(CPU_QUOTA, &mut text)?;
    if quota.starts_with('-') {
        // None, and each of these files is as dear as ten other system calls.
        return None;
    }
    let mut period = [0; 64];
    cpus(&[quota.trim(), " ", line(CPU_PERIOD, &mut period)?].concat())
}

/// A file of one short line.
fn line<'t>(path: &str, text: &'t mut [u8; 64]) -> Option<&'t str> {
    let read = File::open(path).ok()?.read(text).ok()?;
    str::from_utf8(text.get(..read)?).ok()
}

/// `QUOTA PERIOD` as whole CPUs, rounded up; `max`, and v1's -1, are no limit.
fn cpus(limit: &str) -> Option<u32> {
    let (quota, period) = limit.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    if quota == 0 || period == 0 {
        return None;
    }
    u32::try_from(quota.div_ceil(period)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_rounded_up() {
        for (text, expected) in [
            ("150000 100000\n", Some(2)),
            ("200000 100000", Some(2)),
            ("1000 100000", Some(1)),
            ("max 100000\n", None),
            ("-1 100000\n", None),
            ("100000 0", None),
            ("", None),
        ] {
            assert_eq!(cpus(text), expected, "{text:?}");
        }
    }
}
