//! The agent's processes: pid ⇄ what it is, the proxies' command lines, start, signals and reaping. What
//! follows is in the core.
//!
//! # PDEATHSIG
//!
//! With hot restart on, Envoy asks the kernel for SIGTERM when its parent dies (`PR_SET_PDEATHSIG`), and "parent" means
//! the thread that forked it: forked by a helper thread, Envoy stopped with exit 0 when that thread ended (tried with
//! Envoy 1.40). So the agent has one thread. The good side: no Envoy outlives its agent.
//!
//! # Envoy's flags for a hot restart
//!
//! Envoy 1.40, each tried by hand. A flag given twice ends Envoy with 1; so do `--flag=value` and `-lvalue`.
//!
//! - `--restart-epoch` (0): up by one per successful restart; a number that failed may be tried again.
//! - `--base-id` (0): times 10 in names, so 0x0FFFFFFF at most. `--use-dynamic-base-id` is for epoch 0 only, so the agent
//!   looks for a free one itself (`--base-id auto`).
//! - `--drain-time-s` (600): also of `/drain_listeners?graceful`. `--drain-strategy` (gradual): connections close with a
//!   chance that grows to 1 in that time; `immediate`: all at once.
//! - `--parent-shutdown-time-s` (900): from the child's LIVE; must be longer than the drain.
//! - `--disable-hot-restart`: no file, no sockets, no PDEATHSIG.
//! - `--skip-hot-restart-parent-stats` (since 1.31): a child never asks its parent for counters.
//! - `--skip-hot-restart-on-no-parent` (since 1.30): an epoch > 0 starts without a parent, if the shared memory is there.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::config::{IpVersion, Launch};
use crate::supervisor::{CompanionId, Epoch, ExitStatus};
use sys::{ChildSetup, End, Inherited, Pid, Streams};

/// The purpose of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildKind {
    Proxy(Epoch),
    /// A `--validate` run.
    Validator,
    Companion(CompanionId),
    /// A helper program for one probe, by its serial number.
    Probe(u64),
    /// The command of `run`.
    Command,
}

/// Reaps one dead child, known or adopted; `None` when none is left to reap now.
#[must_use]
pub(crate) fn reap() -> Option<(Pid, ExitStatus)> {
    let (pid, end) = sys::reap()?;
    let how = match end {
        End::Code(code) => ExitStatus::Code(code),
        End::Signal(number) => ExitStatus::Signal(number),
    };
    Some((pid, how))
}

/// Two proxies, a validator, a command, eight companions and eight probes.
const MAX_CHILDREN: usize = 20;

/// The children that have not been reaped, adopted ones left out.
#[derive(Debug, Default)]
pub(crate) struct Children {
    started: Vec<(Pid, ChildKind)>,
    /// Children of the program that became pintle by exec: a shell's log reader, say. They are reaped, and never signalled.
    inherited: Vec<Pid>,
}

impl Children {
    /// To be made before any child is started. Without /proc nobody is known, and nobody is ended either.
    pub(crate) fn at_start() -> Self {
        let inherited = if sys::has_children() {
            sys::children().unwrap_or_default()
        } else {
            Vec::new()
        };
        Self {
            started: Vec::new(),
            inherited,
        }
    }

    /// Whether it was there before the agent was.
    #[must_use]
    pub(crate) fn inherited(&self, pid: Pid) -> bool {
        self.inherited.contains(&pid)
    }

    /// Starts `binary` with `arguments` as a child of this kind.
    ///
    /// # Errors
    /// What would have been the code of a shell: 127 not found, 126 not executable, 71 otherwise; and why.
    pub(crate) fn spawn(
        &mut self,
        kind: ChildKind,
        launch: &Launch,
        arguments: &[OsString],
    ) -> Result<Pid, (ExitStatus, io::Error)> {
        let setup = ChildSetup {
            inherited: Inherited::get(),
            user: launch.user.map(|user| (user.uid, user.gid)),
            oom_score_adj: launch.oom_score_adj,
            no_new_privs: launch.no_new_privs,
            raise_open_files: true,
            take_terminal: false,
        };
        let streams = if kind == ChildKind::Validator {
            // Its "configuration OK" is not for the proxy's log; what it complains of is.
            Streams::Silent
        } else {
            Streams::Inherited
        };
        self.keep(
            kind,
            sys::spawn(launch.binary.as_os_str(), arguments, setup, streams),
        )
    }

    /// Starts a companion or the command of `run`: as the agent itself was started, found by `PATH` unless it has a
    /// slash.
    ///
    /// # Errors
    /// As for `spawn`.
    pub(crate) fn spawn_plain(
        &mut self,
        kind: ChildKind,
        words: &[OsString],
    ) -> Result<Pid, (ExitStatus, io::Error)> {
        let mut words = words.iter().map(OsString::as_os_str);
        // No program has the empty name: it is not found.
        let program = words.next().unwrap_or_default();
        let setup = ChildSetup {
            inherited: Inherited::get(),
            user: None,
            oom_score_adj: None,
            no_new_privs: false,
            raise_open_files: false,
            // A person who runs a command by hand types to it.
            take_terminal: kind == ChildKind::Command,
        };
        let started = sys::spawn(program, words, setup, Streams::Inherited);
        self.keep(kind, started)
    }

    /// Starts `pintle-probe` with a socket as its stdin and stdout.
    ///
    /// # Errors
    /// As for `spawn`.
    pub(crate) fn spawn_probe(
        &mut self,
        serial: u64,
        program: &Path,
        arguments: &[String],
        socket: &UnixStream,
    ) -> io::Result<Pid> {
        let setup = ChildSetup {
            inherited: Inherited::get(),
            user: None,
            oom_score_adj: None,
            no_new_privs: true,
            raise_open_files: false,
            take_terminal: false,
        };
        let streams = Streams::Socket(socket.as_fd());
        self.keep(
            ChildKind::Probe(serial),
            sys::spawn(program.as_os_str(), arguments, setup, streams),
        )
        .map_err(|(_, error)| error)
    }

    fn keep(
        &mut self,
        kind: ChildKind,
        started: io::Result<Pid>,
    ) -> Result<Pid, (ExitStatus, io::Error)> {
        let pid = started.map_err(|error| (ExitStatus::NotStarted(spawn_code(&error)), error))?;
        if self.started.capacity() == 0 {
            // Once and for all: a list that grows later stays above the memory that it grew over.
            self.started.reserve_exact(MAX_CHILDREN);
        }
        self.started.push((pid, kind));
        Ok(pid)
    }

    /// Forgets a child that has been reaped; `None` for an adopted orphan.
    pub(crate) fn reaped(&mut self, pid: Pid) -> Option<ChildKind> {
        // Its number may come again.
        self.inherited.retain(|known| *known != pid);
        let at = self.started.iter().position(|(known, _)| *known == pid)?;
        Some(self.started.swap_remove(at).1)
    }

    #[must_use]
    pub(crate) fn knows(&self, pid: Pid) -> bool {
        self.started.iter().any(|(known, _)| *known == pid)
    }

    #[must_use]
    pub(crate) fn pid(&self, kind: ChildKind) -> Option<Pid> {
        self.started
            .iter()
            .find(|(_, known)| *known == kind)
            .map(|(pid, _)| *pid)
    }

    /// A child that never was, for tests of what is told about children.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, pid: i32, kind: ChildKind) {
        self.started.push((Pid::pretend(pid), kind));
    }

    pub(crate) fn signal(&self, kind: ChildKind, signal: i32) {
        if let Some(pid) = self.pid(kind) {
            sys::kill(pid, signal);
        }
    }

    /// Whether somebody has stopped it.
    #[must_use]
    pub(crate) fn is_stopped(&self, kind: ChildKind) -> bool {
        self.pid(kind).is_some_and(sys::is_stopped)
    }

    /// Ends a child at once, with all that it may have started (a wrapper script's Envoy, say).
    pub(crate) fn kill(&self, kind: ChildKind) {
        if let Some(pid) = self.pid(kind) {
            sys::kill_group(pid, sys::signal::SIGKILL);
        }
    }

    pub(crate) fn kill_all(&self) {
        for (pid, _) in &self.started {
            sys::kill_group(*pid, sys::signal::SIGKILL);
        }
    }
}

/// The code that a shell gives for a command that it cannot start.
#[must_use]
pub(crate) fn spawn_code(error: &io::Error) -> u8 {
    // ENOENT; EACCES, ENOEXEC, ENOTDIR, EISDIR, ETXTBSY, ENAMETOOLONG, ELOOP.
    match error.raw_os_error() {
        Some(2) => 127,
        Some(13 | 8 | 20 | 21 | 26 | 36 | 40) => 126,
        _ => 71,
    }
}

/// The arguments that differ from one epoch to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) epoch: Epoch,
    pub(crate) base_id: u32,
    /// The file after `-c`.
    pub(crate) file: &'a Path,
    /// An override beside a custom file.
    pub(crate) config_yaml: Option<&'a str>,
}

/// Envoy's arguments, in pilot-agent's order, so that scripts that read a command line find what they know.
#[must_use]
pub(crate) fn arguments(launch: &Launch, run: Run<'_>) -> Vec<OsString> {
    let mut list = ArgumentList(Vec::with_capacity(32));
    let number = |value: u64| OsString::from(value.to_string());
    list.pair("-c", run.file.as_os_str());
    list.pair("--restart-epoch", &number(run.epoch.0.into()));
    list.pair("--drain-time-s", &number(launch.drain_time.as_secs()));
    list.pair(
        "--parent-shutdown-time-s",
        &number(launch.parent_shutdown_time.as_secs()),
    );
    list.pair("--service-cluster", launch.service_cluster.as_ref());
    list.pair("--service-node", launch.service_node.as_ref());
    let names = launch
        .max_obj_name_len
        .or_else(|| launch.legacy_args.then_some(LEGACY_NAME_LENGTH));
    if let Some(length) = names {
        list.pair("--max-obj-name-len", &number(length.into()));
    }
    if let Some(version) = launch.local_address_ip_version {
        let version = match version {
            IpVersion::V4 => "v4",
            IpVersion::V6 => "v6",
        };
        list.pair("--local-address-ip-version", version.as_ref());
    }
    let unknown = if launch.legacy_args {
        "--allow-unknown-fields"
    } else {
        "--allow-unknown-static-fields"
    };
    list.add(unknown.as_ref());
    list.optional("-l", launch.log_level.as_deref().map(OsStr::new));
    list.optional(
        "--component-log-level",
        launch.component_log_level.as_deref().map(OsStr::new),
    );
    list.optional("--config-yaml", run.config_yaml.map(OsStr::new));
    list.optional(
        "--concurrency",
        launch.concurrency.map(|n| number(n.into())).as_deref(),
    );
    if launch.disable_hot_restart {
        list.add("--disable-hot-restart".as_ref());
    } else if run.base_id != 0 {
        list.pair("--base-id", &number(run.base_id.into()));
    }
    for word in &launch.extra {
        list.add(word);
    }
    list.0
}

/// Words of a command line. Not given to `extend`, which is code for each shape of what it takes: 0.5 kB.
struct ArgumentList(Vec<OsString>);

impl ArgumentList {
    #[inline(never)]
    fn add(&mut self, word: &OsStr) {
        self.0.push(word.to_os_string());
    }

    fn pair(&mut self, flag: &str, value: &OsStr) {
        self.add(flag.as_ref());
        self.add(value);
    }

    fn optional(&mut self, flag: &str, value: Option<&OsStr>) {
        if let Some(value) = value {
            self.pair(flag, value);
        }
    }
}

/// `--max-obj-name-len` of pilot-agent 1.1.5.
const LEGACY_NAME_LENGTH: u32 = 189;

/// The arguments for a `--validate` run of the same epoch: nothing that binds or takes over.
#[must_use]
pub(crate) fn validate_arguments(launch: &Launch, run: Run<'_>) -> Vec<OsString> {
    let mut list = ArgumentList(arguments(launch, run));
    list.pair("--mode", "validate".as_ref());
    list.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_list_has_room_for_all_from_the_first_on() {
        let mut children = Children::default();
        children
            .keep(ChildKind::Proxy(Epoch(0)), Ok(Pid::pretend(1)))
            .unwrap();
        let room = children.started.capacity();
        for serial in 1..MAX_CHILDREN {
            let kind = ChildKind::Probe(u64::try_from(serial).unwrap());
            children.keep(kind, Ok(Pid::pretend(2))).unwrap();
        }
        assert_eq!(children.started.capacity(), room);
    }

    fn launch() -> Launch {
        Launch {
            binary: "/usr/local/bin/envoy".into(),
            directory: "/etc/istio/proxy".into(),
            drain_time: Duration::from_secs(45),
            parent_shutdown_time: Duration::from_secs(60),
            service_cluster: "istio-proxy".into(),
            service_node: "sidecar~10.1.2.3~p1.ns1~ns1.svc.cluster.local".into(),
            max_obj_name_len: None,
            local_address_ip_version: None,
            legacy_args: false,
            log_level: Some("warning".into()),
            component_log_level: None,
            concurrency: None,
            base_id: crate::values::BaseId::Fixed(0),
            disable_hot_restart: false,
            extra: Vec::new(),
            skip_parent_stats: false,
            user: None,
            oom_score_adj: None,
            no_new_privs: false,
        }
    }

    fn line(launch: &Launch, epoch: u32, base_id: u32, yaml: Option<&str>) -> String {
        let file = Path::new("/f.json");
        let list = arguments(
            launch,
            Run {
                epoch: Epoch(epoch),
                base_id,
                file,
                config_yaml: yaml,
            },
        );
        let words: Vec<_> = list.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    const HEAD: &str = "--drain-time-s 45 --parent-shutdown-time-s 60 --service-cluster istio-proxy --service-node sidecar~10.1.2.3~p1.ns1~ns1.svc.cluster.local";

    #[test]
    fn the_plain_command_line() {
        let expected =
            format!("-c /f.json --restart-epoch 3 {HEAD} --allow-unknown-static-fields -l warning");
        assert_eq!(line(&launch(), 3, 0, None), expected);
    }

    #[test]
    fn the_full_command_line_has_every_flag_in_its_place() {
        let launch = Launch {
            max_obj_name_len: Some(100),
            local_address_ip_version: Some(IpVersion::V6),
            component_log_level: Some("misc:error".into()),
            concurrency: Some(2),
            extra: vec!["--log-path".into(), "/l".into()],
            ..launch()
        };
        let expected = format!(
            "-c /f.json --restart-epoch 0 {HEAD} --max-obj-name-len 100 --local-address-ip-version v6 --allow-unknown-static-fields -l warning --component-log-level misc:error --config-yaml {{}} --concurrency 2 --base-id 7 --log-path /l"
        );
        assert_eq!(line(&launch, 0, 7, Some("{}")), expected);
    }

    #[test]
    fn the_command_line_of_pilot_agent_1_1_5() {
        let launch = Launch {
            legacy_args: true,
            ..launch()
        };
        let expected = format!(
            "-c /f.json --restart-epoch 0 {HEAD} --max-obj-name-len 189 --allow-unknown-fields -l warning"
        );
        assert_eq!(line(&launch, 0, 0, None), expected);
    }

    #[test]
    fn without_hot_restart_there_is_no_base_id() {
        let launch = Launch {
            disable_hot_restart: true,
            ..launch()
        };
        assert!(line(&launch, 0, 7, None).ends_with("-l warning --disable-hot-restart"));
    }
}
