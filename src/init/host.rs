//! Facts about the machine that the start finds out.

#![forbid(unsafe_code)]

use std::io::Read as _;
use std::os::fd::OwnedFd;

use crate::config::HostFacts;
use crate::search;

/// The CPU limit of the cgroup that the container sees as its root: v2, then v1.
const CPU_MAX: &str = "/sys/fs/cgroup/cpu.max";
const CPU_QUOTA: &str = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us";
const CPU_PERIOD: &str = "/sys/fs/cgroup/cpu/cpu.cfs_period_us";

/// Looks once, and at the CPU limit when it is asked for; the rest of the agent's life believes it. The descriptor is to be
/// closed when there is time.
#[must_use]
pub(crate) fn look() -> (HostFacts, Option<OwnedFd>) {
    let (addresses, socket) = sys::interface_addresses();
    let host = HostFacts {
        addresses,
        cpu_limit,
    };
    (host, socket)
}

/// The memory controller of a cgroup: its name in a line of `/proc/self/cgroup`, the place where such are mounted, and the file
/// that counts kills for the want of memory. v2, then v1.
const MEMORY: [(&str, &str, &str); 2] = [
    ("0::", "/sys/fs/cgroup", "/memory.events"),
    (":memory:", "/sys/fs/cgroup/memory", "/memory.oom_control"),
];

/// Out-of-memory kills in the agent's cgroup; `None` where /sys/fs/cgroup does not tell.
#[must_use]
pub(crate) fn oom_kills() -> Option<u64> {
    let mut text = [0; 1024];
    let own = line("/proc/self/cgroup", &mut text).unwrap_or_default();
    MEMORY.iter().find_map(|(mark, mount, file)| {
        let path = own
            .lines()
            .find_map(|line| Some(search::split_once(line, mark)?.1))
            .map_or("", |path| path.trim_end_matches('/'));
        // A container may see its own cgroup as the root, whatever it is called outside.
        [path, ""].iter().find_map(|path| {
            let mut text = [0; 256];
            kills(line(&[*mount, *path, *file].concat(), &mut text)?)
        })
    })
}

fn kills(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

fn cpu_limit() -> Option<u32> {
    let mut text = [0; 64];
    if let Some(limit) = line(CPU_MAX, &mut text) {
        return cpus(limit);
    }
    let quota = line(CPU_QUOTA, &mut text)?;
    if quota.starts_with('-') {
        // None; and reading one of these files takes as long as ten other system calls.
        return None;
    }
    let mut period = [0; 64];
    cpus(&[quota.trim(), " ", line(CPU_PERIOD, &mut period)?].concat())
}

/// A short file.
pub(crate) fn line<'t>(path: &str, text: &'t mut [u8]) -> Option<&'t str> {
    let mut file = sys::open(path.as_ref(), sys::OPEN_READ, 0).ok()?;
    let read = file.read(text).ok()?;
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
    fn kills_are_counted_by_either_cgroup() {
        let v2 = "low 0\nhigh 0\nmax 17\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(kills(v2), Some(2));
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n";
        assert_eq!(kills(v1), Some(7));
        // Before Linux 4.13.
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\n"), None);
    }

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
