//! The server's figures from the kernel.

use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;

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

/// Processor time of all its threads, also of those that have ended, in nanoseconds as the kernel counts it. Its pool's threads
/// end when they have had nothing to do for a while, so that a walk over `/proc/PID/task` fails now and then.
pub(crate) fn ran(pid: u32) -> Result<Duration, Failure> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.try_into()?))
        .map_err(|cause| format!("cannot find the clock of process {pid}: {cause}"))?;
    Ok(clock.now()?.into())
}
