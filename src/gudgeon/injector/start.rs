//! From flags to a program that serves, and from TERM to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::Access;
use inject::{NativeSidecars, Parameters};
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::engine::Engine;
use super::files::{Files, Wanted};
use super::health::{self, Health};
use super::kubernetes::{self, ClusterTasks};
use super::listeners::Listeners;
use super::metrics::Metrics;
use super::monitor::Monitor;
use super::namespaces;
use super::status::{Status, Telling};
use super::webhook::Webhook;
use crate::beside::Beside;
use crate::cli::{INJECT_CONFIG, INJECT_VALUES, InjectorFlags, MESH_CONFIG};
use crate::exit::{Exit, Failure};
use crate::process::{self, Ends, rest_after_start, tell_of_panics};
use crate::serve::{self, Stage};
use crate::tls::{self, Authority, Names};
use crate::tracked::{Named, chosen};
use crate::watch::{Watcher, keep_looking};
use crate::{file, keeping, log, parameters};

/// Between two tries to write the CA where it is wanted.
const AGAIN: Duration = Duration::from_secs(10);

/// Serves until TERM.
///
/// # Errors
/// Why it cannot start.
pub(crate) fn run<E: Engine>(flags: InjectorFlags) -> Result<Exit, Failure> {
    tell_of_panics();
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| Failure::system(format!("cannot start the runtime: {cause}")))?;
    let result = runtime.block_on(serve::<E>(flags));
    // A name that is being resolved must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn serve<E: Engine>(flags: InjectorFlags) -> Result<Exit, Failure> {
    // First of all, so that a TERM while it starts is not lost.
    let mut ends = Ends::new()?;
    let prepared = tokio::select! {
        prepared = Prepared::<E>::new(&flags) => prepared?,
        () = ends.next() => return Ok(Exit::Done),
    };
    let health = Arc::clone(&prepared.webhook.health);
    let (stage, watched) = watch::channel(Stage::Serving);
    let serving = prepared.go(&flags, &watched);
    tokio::spawn(rest_after_start());

    ends.next().await;
    health.drains();
    let leave = || {
        stage.send_replace(Stage::Leaving);
    };
    let all = "requests are answered";
    process::drain(&mut ends, flags.drain_duration, serving, leave, all).await;
    if !flags.health_check_file.is_empty() {
        // It says that the loop turns, which is over.
        let mut file = Beside::new(flags.health_check_file.into());
        let _gone = file.remove().await;
    }
    Ok(Exit::Done)
}

/// All that can fail is done: files read, ports bound, the health file written.
struct Prepared<E> {
    files: Files<E>,
    authority: Option<Authority>,
    telling: Telling,
    webhook: Arc<Webhook<E>>,
    status: Arc<Status>,
    doors: Listeners,
    beats: Option<(Beside, Duration)>,
    access: Option<Access>,
}

impl<E: Engine> Prepared<E> {
    async fn new(flags: &InjectorFlags) -> Result<Self, Failure> {
        let metrics = Arc::new(Metrics::new(SystemTime::now()));
        let parameters = parameters::of(flags.revision.as_ref(), &flags.builtin);
        let revision = match parameters.revision.as_str() {
            "" => "default",
            revision => revision,
        };
        let status = Arc::new(Status::new(revision.to_owned(), flags.self_signed));
        let health = Arc::new(Health::default());
        let authority = authority(flags)?;
        let access = kubernetes::access(flags);
        let wanted = wanted(flags, parameters, access.as_ref())?;
        if flags.ca_out.is_some() && !flags.self_signed && wanted.ca.is_none() {
            warn!("ignoring --caOut: no CA is in use without --selfSigned or a cluster");
        }
        let files = Files::<E>::open(wanted, Arc::clone(&metrics))
            .await
            .map_err(|line| Failure::config(with_remedy(flags, line)))?;
        let served = files.served();
        // A file may have a policy and no template: then they are what they are without one.
        if !served.engine().is_built_in() {
            for flag in parameters::given(&flags.builtin) {
                warn!("{}", parameters::ignored(flag));
            }
        }
        let current = match (&authority, files.tls()) {
            (Some(authority), _) => tls::Current::new(authority.leaf()),
            (None, Some(current)) => current,
            (None, None) => return Err(Failure::config("cannot serve: there is no certificate")),
        };
        let telling = Telling {
            tls: Arc::clone(&current),
            metrics: Arc::clone(&metrics),
            status: Arc::clone(&status),
            health: Arc::clone(&health),
        };
        if let Some(authority) = &authority {
            served.ca.send_replace(Some(authority.bundle().into()));
            telling.tell(authority.leaf());
        }
        let doors = Listeners::bind(flags, current).await?;
        // Now that no other one has the port: what stands in the file may be the CA of that one.
        if let Some(path) = &flags.ca_out {
            let ca = served.ca.borrow().clone();
            let mut file = Beside::new(path.clone());
            write_ca(&mut file, ca).await.map_err(Failure::system)?;
        }
        let beats = heartbeat(flags).await?;
        let native = native(&flags.native_sidecars);
        Ok(Self {
            files,
            authority,
            telling,
            webhook: Arc::new(Webhook::new(served, metrics, health, native)),
            status,
            doors,
            beats,
            access,
        })
    }

    /// Serves from now on; what is returned ends with the stage.
    fn go(self, flags: &InjectorFlags, stage: &watch::Receiver<Stage>) -> JoinSet<()> {
        let Self {
            files,
            authority,
            telling,
            webhook,
            status,
            doors,
            beats,
            access,
        } = self;
        webhook.health.serves();
        doors.announce();
        let tasks = Tasks {
            flags,
            served: &webhook.served,
            telling,
        };
        tasks.spawn(files, authority, beats);
        look_for_cluster(flags, access, &webhook, &status);
        let mut serving = JoinSet::new();
        let answers: Arc<serve::SharedAnswers> = Arc::default();
        for (door, open) in [(doors.monitoring, false), (doors.debug, true)] {
            let Some(door) = door else { continue };
            let monitor = Arc::new(Monitor {
                webhook: Arc::clone(&webhook),
                status: Arc::clone(&status),
                open,
                answers: Arc::clone(&answers),
            });
            serving.spawn(serve::run(door, monitor, stage.clone()));
        }
        serving.spawn(serve::run(doors.webhook, webhook, stage.clone()));
        serving
    }
}

/// A first try has no certificates: then the line says how to do without.
fn with_remedy(flags: &InjectorFlags, line: String) -> String {
    let is_there = flags.tls_cert_file.exists() || flags.tls_key_file.exists();
    if is_there || flags.self_signed || !line.starts_with("cannot use --tls") {
        return line;
    }
    format!("{line}; --selfSigned makes a certificate in memory")
}

pub(crate) fn native(word: &str) -> NativeSidecars {
    match word {
        "on" => NativeSidecars::On,
        "jobs" => NativeSidecars::Jobs,
        // `auto` is off until an API server says that it is new enough.
        _ => NativeSidecars::Off,
    }
}

fn wanted(
    flags: &InjectorFlags,
    parameters: Parameters,
    access: Option<&Access>,
) -> Result<Wanted, Failure> {
    if !flags.kubeconfig.is_empty() {
        chosen("kubeconfig", Some(Path::new(&flags.kubeconfig)), "").map_err(Failure::config)?;
    }
    let keeps = flags.reconcile_webhook_config && access.is_some();
    let choose = |flag, given: &Option<PathBuf>, default| {
        chosen(flag, given.as_deref(), default).map_err(Failure::config)
    };
    let named = |flag, path: &Path| Named {
        flag,
        path: path.to_owned(),
    };
    Ok(Wanted {
        config: choose("injectConfig", &flags.inject_config, INJECT_CONFIG)?,
        values: choose("injectValues", &flags.inject_values, INJECT_VALUES)?,
        mesh: choose("meshConfig", &flags.mesh_config, MESH_CONFIG)?,
        pair: (!flags.self_signed).then(|| {
            (
                named("tlsCertFile", &flags.tls_cert_file),
                named("tlsKeyFile", &flags.tls_key_file),
            )
        }),
        ca: (keeps && !flags.self_signed).then(|| named("caCertFile", &flags.ca_cert_file)),
        parameters,
    })
}

fn authority(flags: &InjectorFlags) -> Result<Option<Authority>, Failure> {
    if !flags.self_signed {
        return Ok(None);
    }
    let namespace = flags
        .namespace
        .clone()
        .or_else(|| {
            std::env::var("POD_NAMESPACE")
                .ok()
                .filter(|name| !name.is_empty())
        })
        .unwrap_or_else(|| "istio-system".to_owned());
    let names = Names::new(&flags.webhook_service, &namespace, &flags.self_signed_names)
        .map_err(|(name, cause)| Failure::config(format!("cannot certify {name:?}: {cause}")))?;
    Authority::new(names, flags.self_signed_ttl, SystemTime::now())
        .map(Some)
        .map_err(|cause| Failure::config(format!("cannot use --selfSignedTTL: {cause}")))
}

/// The health file is written at once, then by a task.
async fn heartbeat(flags: &InjectorFlags) -> Result<Option<(Beside, Duration)>, Failure> {
    if flags.health_check_file.is_empty() || flags.health_check_interval.is_zero() {
        return Ok(None);
    }
    let mut file = Beside::new(PathBuf::from(&flags.health_check_file));
    health::write(&mut file).await.map_err(Failure::system)?;
    Ok(Some((file, flags.health_check_interval)))
}

/// What runs beside the listeners.
struct Tasks<'a, E> {
    flags: &'a InjectorFlags,
    served: &'a Arc<super::files::Served<E>>,
    telling: Telling,
}

impl<E: Engine> Tasks<'_, E> {
    fn spawn(
        self,
        files: Files<E>,
        authority: Option<Authority>,
        beats: Option<(Beside, Duration)>,
    ) {
        if let Some((file, interval)) = beats {
            tokio::spawn(health::beat(file, interval));
        }
        if let Some(path) = self.flags.ca_out.clone() {
            tokio::spawn(keep_ca(path, self.served.ca.subscribe()));
        }
        match authority {
            Some(authority) => {
                let ca = self.served.ca.clone();
                let telling = self.telling;
                let serve = move |pair: &tls::Pair| telling.serve(pair);
                tokio::spawn(tls::renew(authority, serve, ca));
            }
            None => {
                if let Some(pairs) = files.pairs() {
                    tokio::spawn(follow(pairs, self.telling));
                }
            }
        }
        let watcher = Watcher::new(files.paths());
        tokio::spawn(keep_looking(watcher, files));
    }
}

/// What needs a cluster, if there is one.
fn look_for_cluster<E: Engine>(
    flags: &InjectorFlags,
    access: Option<Access>,
    webhook: &Arc<Webhook<E>>,
    status: &Status,
) {
    let auto = flags.native_sidecars == "auto";
    let openshift = namespaces::wanted();
    let Some(access) = access else {
        if flags.reconcile_webhook_config {
            info!("keeping no CA bundle: not in a cluster, and no --kubeconfig");
        }
        if auto {
            info!("native sidecars are off: not in a cluster, and no --kubeconfig");
        }
        if openshift {
            warn!("PLATFORM=openshift has no effect: not in a cluster, and no --kubeconfig");
        }
        return;
    };
    let keeper = flags.reconcile_webhook_config.then(|| {
        let (keeper, handle) = kubernetes::keeper(flags);
        status.kept_by(handle.clone());
        let ca = webhook.served.ca.subscribe();
        let unreadable = webhook.served.ca_unreadable.subscribe();
        tokio::spawn(keeping::tell(handle, flags.self_signed, ca, unreadable));
        keeper
    });
    let auto = auto.then(|| Arc::clone(webhook));
    let namespaces = openshift.then(|| {
        let (writer, reader) = cluster::store();
        webhook.namespaces.read(reader);
        writer
    });
    if keeper.is_some() || auto.is_some() || openshift {
        let tasks = ClusterTasks {
            keeper,
            auto,
            namespaces,
        };
        tokio::spawn(kubernetes::run(access, tasks));
    }
}

/// Tells page and readiness which certificate the files hold now.
async fn follow(mut pairs: watch::Receiver<Option<tls::Pair>>, telling: Telling) {
    loop {
        let pair = pairs.borrow_and_update().clone();
        if let Some(pair) = pair {
            telling.tell(&pair);
        }
        if pairs.changed().await.is_err() {
            return;
        }
    }
}

async fn write_ca(to: &mut Beside, ca: Option<Arc<str>>) -> Result<(), String> {
    let Some(ca) = ca else { return Ok(()) };
    let written = to.replace(ca.as_bytes().to_vec(), file::replace).await;
    written.map_err(|cause| format!("cannot write --caOut {}: {cause}", to.path().display()))
}

/// Writes the CA whenever it changes; one that cannot be written is tried again.
async fn keep_ca(path: PathBuf, mut ca: watch::Receiver<Option<Arc<str>>>) {
    let mut failed: u64 = 0;
    let mut file = Beside::new(path);
    while ca.changed().await.is_ok() {
        loop {
            let bundle = ca.borrow_and_update().clone();
            let Err(cause) = write_ca(&mut file, bundle).await else {
                failed = 0;
                break;
            };
            failed += 1;
            if log::worth_a_line(failed) {
                error!("{cause}{repeated}", repeated = api::times(failed));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
