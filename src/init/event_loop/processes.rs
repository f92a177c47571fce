//! Orders that concern processes: start, validate, and the two repairs of a hot restart.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{EventLoop, STAND_IN};
use crate::bootstrap::{self, BootstrapError, Override, Source};
use crate::children::{self, ChildKind, Run};
use crate::config::{Config, Launch};
use crate::error::{Refused, StartError};
use crate::hot_restart::{Holder, HotRestart};
use crate::log;
use crate::store::{Of, Store};
use crate::supervisor::{Call, Epoch, Event, ExitStatus, Reason, Reply};
use crate::timeline;
use crate::values::BaseId;
use sys::Watch;

impl EventLoop {
    /// Starts the proxy for `epoch`; what goes wrong is an exit of it.
    pub(super) fn spawn(&mut self, epoch: Epoch, reason: Reason) {
        self.used_seldom = true;
        if let Err(how) = self.try_spawn(epoch, reason) {
            self.proxy_ended(epoch, how);
            self.queue.push_back(Event::Exited { epoch, how });
        }
        sys::release_stack();
    }

    fn try_spawn(&mut self, epoch: Epoch, reason: Reason) -> Result<(), ExitStatus> {
        if !self.config.launch.disable_hot_restart {
            self.check_base_id(epoch)?;
        }
        let (file, yaml) = self.prepare(Of::Epoch(epoch))?;
        let launch = &self.config.launch;
        let run = Run {
            epoch,
            base_id: self.hot_restart.base_id(),
            file: &file,
            config_yaml: yaml.as_deref(),
        };
        let arguments = children::arguments(launch, run);
        let spawned = self
            .children
            .spawn(ChildKind::Proxy(epoch), launch, &arguments);
        if self.starting.is_some() {
            // Not before the proxy has been started.
            timeline::introduce(self.config);
        }
        if yaml.is_some() {
            log::warning!("{IN_ARGUMENT}");
        }
        match spawned {
            Ok(pid) => {
                let (name, pid) = (reason.name(), pid.number());
                log::info!("{epoch} started: pid {pid}, reason {name}");
                self.proxy_started(epoch, pid, reason);
                Ok(())
            }
            Err((how, error)) => {
                let what = format!("start {}", launch.binary.display());
                let remedy = remedy(launch, &error);
                self.store.remove(Of::Epoch(epoch));
                // Without a number it is not about the program: a setting was refused, and would be at each try.
                match &mut self.starting {
                    Some(slot) if error.raw_os_error().is_none() => {
                        *slot = Some(StartError::os_but(what, remedy)(error));
                    }
                    _ => {
                        let refused = Refused {
                            error: &error,
                            uid: launch.user.map(|user| user.uid),
                            remedy,
                        };
                        log::error!("cannot {what}: {refused}");
                    }
                }
                Err(how)
            }
        }
    }

    /// Envoy itself would only say `errno 98`, or panic.
    fn check_base_id(&mut self, epoch: Epoch) -> Result<(), ExitStatus> {
        let mut taken = self.hot_restart.taken(epoch);
        if taken.is_some() && epoch == Epoch(0) && self.config.launch.base_id == BaseId::Auto {
            // It was free when it was chosen; nothing of ours has it now.
            let owner = owner(&self.config.launch);
            if let Ok(another) = HotRestart::new(BaseId::Auto, owner) {
                self.hot_restart = another;
                taken = None;
            }
        }
        if let Some(name) = taken {
            self.say_taken(&"start the proxy", &name);
            return Err(ExitStatus::NotStarted(1));
        }
        if epoch != Epoch(0) {
            return Ok(());
        }
        self.hot_restart.remove_stale(owner(&self.config.launch)).map_err(|(path, error)| {
            let path = path.display();
            log::error!("cannot remove {path}, which another user's Envoy has left: {error}; choose another --base-id");
            ExitStatus::NotStarted(1)
        })
    }

    /// Slow: it looks for the holder of the name in all of /proc.
    #[inline(never)]
    fn say_taken(&self, what: &dyn Display, name: &str) {
        let base_id = self.hot_restart.base_id();
        let holder = Holder::of(name);
        log::error!(
            "cannot {what}: base id {base_id} is in use by {holder}; --base-id auto finds a free one"
        );
    }

    /// Renders and writes the bootstrap; returns what goes after `-c` and `--config-yaml`.
    fn prepare(&mut self, of: Of) -> Result<(PathBuf, Option<String>), ExitStatus> {
        let number = match of {
            Of::Epoch(epoch) => epoch.0,
            Of::Validator => 0,
        };
        let way = if !self.store.is_open() {
            Override::InArgument
        } else if self.store.has_written {
            Override::InFileOnly
        } else {
            Override::InFile
        };
        self.tell_certificates();
        let rendered = match bootstrap::render(&self.config.source, number, way) {
            Ok(rendered) => rendered,
            Err(error) => return Err(self.no_bootstrap(&error)),
        };
        let yaml = rendered.config_yaml;
        match (&self.config.source, rendered.document) {
            (Source::Custom { file, .. }, None) => Ok((file.clone(), yaml)),
            (_, document) => match self.store.write(of, &document.unwrap_or_default()) {
                Ok(path) => Ok((path, yaml)),
                Err(error) => {
                    let what = format!("write to {}", self.config.launch.directory.display());
                    let error = StartError::os_but(what, OTHER_PATH)(error);
                    log::error!("{error}");
                    if let Some(slot) = &mut self.starting {
                        *slot = Some(error);
                    }
                    Err(ExitStatus::NotStarted(71))
                }
            },
        }
    }

    /// Looks for the client's certificates, which a start has just seen where they are watched. The log has it once: each epoch
    /// is rendered anew, and a mesh without mutual TLS never has any.
    fn tell_certificates(&mut self) {
        let told = self.missed.is_some();
        let seen = |path: &Path| self.starting.is_some() && self.files.saw(path);
        let missing = self.config.source.tell_certificates(told, &seen);
        if let (false, Some(path)) = (told, missing) {
            log::info!(
                "{} is missing: the control plane is told that the proxy has no certificates",
                path.display()
            );
            self.missed = Some(path);
        }
    }

    /// Says it where somebody else may decide what the proxy does.
    pub(super) fn look_at_directory(&self) {
        if self.store.is_open() && self.store.others_may_write() {
            let directory = self.config.launch.directory.display();
            log::warning!("others may write to {directory}, and so replace the proxy's bootstrap");
        }
    }

    fn no_bootstrap(&mut self, error: &BootstrapError) -> ExitStatus {
        if let Some(slot) = &mut self.starting {
            *slot = Some(StartError::bootstrap(error));
        } else {
            log::error!("{error}");
        }
        ExitStatus::NotStarted(78)
    }

    pub(super) fn validate(&mut self, epoch: Epoch) {
        self.used_seldom = true;
        let started = self.prepare(Of::Validator).and_then(|(file, yaml)| {
            let launch = &self.config.launch;
            let base_id = self.hot_restart.base_id();
            let run = Run {
                epoch,
                base_id,
                file: &file,
                config_yaml: yaml.as_deref(),
            };
            let arguments = children::validate_arguments(launch, run);
            self.children
                .spawn(ChildKind::Validator, launch, &arguments)
                .map_err(|(how, error)| {
                    log::error!("cannot start {}: {error}", launch.binary.display());
                    how
                })
        });
        if let Err(how) = started {
            self.store.remove(Of::Validator);
            self.queue.push_back(Event::Validated { how });
        }
    }

    pub(super) fn clear_initializing(&self) {
        let launch = &self.config.launch;
        if launch.disable_hot_restart {
            return;
        }
        match self
            .hot_restart
            .clear_initializing(owner(&self.config.launch))
        {
            Ok(true) => log::info!(
                "cleared the flag that the failed epoch left in shared memory (envoy#33446)"
            ),
            Ok(false) => {}
            Err(error) => {
                log::warning!(
                    "cannot clear the flag in shared memory: {error}; later hot restarts may fail"
                );
            }
        }
    }

    pub(super) fn stand_in(&mut self, parent: Epoch, child: Epoch) {
        let stands_in = self
            .stand_in
            .as_ref()
            .is_some_and(|(_, known)| *known == child);
        if self.config.launch.disable_hot_restart || stands_in {
            return;
        }
        let stand_in = self.hot_restart.stand_in(parent, child).and_then(|socket| {
            sys::watch_level(&self.poll, &socket, STAND_IN.0, Watch::Begin)?;
            Ok(socket)
        });
        match stand_in {
            Ok(socket) => {
                log::info!("answering for {parent}, so that {child} lives");
                self.stand_in = Some((socket, child));
            }
            Err(_) => {
                if self.stand_in_refused != Some(parent) {
                    self.stand_in_refused = Some(parent);
                    let what = format!("answer for {parent}");
                    self.say_taken(&what, &self.hot_restart.name("parent", parent.0));
                }
                self.queue.push_back(Event::NameTaken { parent });
            }
        }
    }

    /// Looks at Envoy's shared memory for the epoch that was started last, or at /proc for its parent.
    pub(super) fn look_at(&mut self, epoch: Epoch, call: Call) {
        let reply = if call == Call::Stopped {
            if self.children.is_stopped(ChildKind::Proxy(epoch)) {
                Reply::Stopped
            } else {
                Reply::Failed
            }
        } else {
            let hot_restart = !self.config.launch.disable_hot_restart;
            let initialised = hot_restart
                && self
                    .hot_restart
                    .has_initialised(epoch, owner(&self.config.launch))
                    .unwrap_or(false);
            if initialised {
                Reply::Live
            } else {
                Reply::NotLive
            }
        };
        if let Some(process) = self.supervisor.process(epoch) {
            self.queue.push_back(Event::AdminReplied {
                process,
                call,
                reply,
            });
        }
    }
}

/// A file of the user's is read where it is: a read-only root has no place for a directory.
pub(super) fn open_store(config: &Config) -> Result<Store, StartError> {
    let Launch {
        directory, user, ..
    } = &config.launch;
    match config.source {
        Source::Custom {
            override_file: None,
            ..
        } => Ok(Store::default()),
        // Where nothing can be written, the override is an argument.
        Source::Custom { .. } => Ok(Store::open(directory, *user).unwrap_or_default()),
        Source::Generated { .. } | Source::Template { .. } => Store::open(directory, *user)
            .map_err(|error| {
                let directory = directory.display();
                let what = if error.kind() == ErrorKind::ResourceBusy {
                    format!("share --config-path {directory} with another agent")
                } else {
                    format!("prepare {directory}")
                };
                StartError::os_but(what, OTHER_PATH)(error)
            }),
    }
}

/// A warning: every process that can look into /proc can read an override that is an argument.
const IN_ARGUMENT: &str =
    "ISTIO_BOOTSTRAP_OVERRIDE stands in the proxy's command line, for all to read";

/// For a configuration path that does not serve.
const OTHER_PATH: &str = "--config-path chooses another";

/// For a proxy that cannot be started.
fn remedy(launch: &Launch, error: &io::Error) -> &'static str {
    if launch.user.is_some() && sys::effective_uid() != 0 && error.raw_os_error().is_none() {
        "only an agent that is root may have another --proxy-user"
    } else if error.kind() == ErrorKind::NotFound {
        "--binary-path chooses another"
    } else {
        ""
    }
}

/// Whose processes the proxies are.
pub(super) fn owner(launch: &Launch) -> u32 {
    launch.user.map_or_else(sys::effective_uid, |user| user.uid)
}
