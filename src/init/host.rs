//! What the start finds out about the machine.

#![forbid(unsafe_code)]

use std::fs;

use crate::config::Host;
use crate::sys;

/// The CPU limit of the cgroup that the container sees as its root: v2, then v1.
const CPU_MAX: &str = "/sys/fs/cgroup/cpu.max";
const CPU_QUOTA: &str = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us";
const CPU_PERIOD: &str = "/sys/fs/cgroup/cpu/cpu.cfs_period_us";

/// Looks once; the rest of the agent's life believes it.
#[must_use]
pub(crate) fn look() -> Host {
    Host {
        addresses: sys::interface_addresses(),
        cpu_limit: cpu_limit(),
    }
}

fn cpu_limit() -> Option<u32> {
    let limit = fs::read_to_string(CPU_MAX).or_else(|_| {
        Ok::<_, std::io::Error>(
            [
                fs::read_to_string(CPU_QUOTA)?.trim(),
                " ",
                &fs::read_to_string(CPU_PERIOD)?,
            ]
            .concat(),
        )
    });
    cpus(&limit.ok()?)
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
