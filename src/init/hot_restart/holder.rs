//! The holder of an abstract name: another Envoy, or a process that means harm.

#![forbid(unsafe_code)]

use std::fmt;
use std::fs;
use std::path::Path;

use crate::regular;

/// The longest text of /proc that is looked into, in bytes. Chosen: a hundred thousand sockets.
const TEXT_BYTES: u64 = 16 << 20;

/// The holder of an abstract name, as far as /proc tells.
#[derive(Debug)]
pub(crate) struct Holder {
    pid: Option<(String, String)>,
}

impl Holder {
    /// Looks the name up; slow (it reads all of /proc), so only when there is something to report.
    #[must_use]
    pub(crate) fn of(name: &str) -> Self {
        let table = read(Path::new("/proc/net/unix"));
        let held_by = |line: &&str| {
            line.split_once('@')
                .is_some_and(|(_, held)| held.trim_end_matches('@') == name)
        };
        let inode = table
            .lines()
            .find(held_by)
            .and_then(|line| line.split_ascii_whitespace().nth(6));
        Self {
            pid: inode.and_then(|inode| process_with(&["socket:[", inode, "]"].concat())),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pid {
            Some((pid, name)) => write!(f, "process {pid} ({name})"),
            None => f.write_str("a process that /proc does not show here"),
        }
    }
}

/// A text of the kernel's; empty where it does not tell.
fn read(path: &Path) -> String {
    let bytes = regular::read(path, TEXT_BYTES).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn process_with(link: &str) -> Option<(String, String)> {
    let mut found = None;
    let processes = Path::new("/proc");
    let listed = sys::names(processes, &mut |pid| {
        // "self" and the like are other names of processes.
        let is_process = pid.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let process = processes.join(pid);
        if is_process && holds(&process.join("fd"), link) {
            let comm = read(&process.join("comm"));
            let pid = pid.to_string_lossy().into_owned();
            found = Some((pid, comm.trim().to_owned()));
        }
        found.is_none()
    });
    listed.ok().and(found)
}

/// Whether one of the descriptors in this directory is the link's.
fn holds(descriptors: &Path, link: &str) -> bool {
    let mut holds = false;
    let listed = sys::names(descriptors, &mut |descriptor| {
        let target = fs::read_link(descriptors.join(descriptor));
        holds = target.is_ok_and(|target| target.as_os_str() == link);
        !holds
    });
    listed.is_ok() && holds
}
