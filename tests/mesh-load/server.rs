//! The server's figures from the kernel.

use std::time::Duration;

use crate::Failure;

/// kB resident.
pub(crate) fn resident(pid: u32) -> Result<u64, Failure> {
    memory(pid, "VmRSS:")
}

/// kB resident at most, since it started.
pub(crate) fn most_resident(pid: u32) -> Result<u64, Failure> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, key: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("the server has no memory")?.parse()?)
}

/// Processor time of all its threads, as the kernel counts it in nanoseconds.
pub(crate) fn ran(pid: u32) -> Result<Duration, Failure> {
    let mut ran = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanos = text.split(' ').next().ok_or("the server has no time")?;
        ran += Duration::from_nanos(nanos.parse()?);
    }
    Ok(ran)
}
