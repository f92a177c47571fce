//! Starts the injector from its flags, and ends it at TERM.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use inject::{NativeSidecars, Parameters};
use sources::kubernetes::Access;
use sources::reconcile::{BundleReconcilers, ReconcilerHandle};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::ca_out_file;
use super::engine::ActiveConfiguration;
use super::files::{Files, Served, WantedFiles};
use super::health;
use super::kubernetes::{self, ClusterTasks};
use super::listeners::Listeners;
use super::metrics::InjectorMetrics;
use super::monitor::InjectorMonitor;
use super::namespaces;
use super::readiness::InjectorReadiness;
use super::status::{CertificateObservers, Status};
use super::webhook::{self, Webhook};
use crate::cli::{INJECT_CONFIG, INJECT_VALUES, InjectorFlags, MESH_CONFIG, NativeSetting};
use crate::config_file::{FlaggedFile, chosen};
use crate::exit::Failure;
use crate::file_writer::FileWriter;
use crate::serve::{self, Routes, Shutdown};
use crate::shared::{AdminListener, Clusters, Inspect, Role, Shared, Webhooks, until};
use crate::tls::{self, Authority, LeafNames};
use crate::watch::{Watcher, run_reload_loop};
use crate::{parameters, webhook_configuration};

impl<E: ActiveConfiguration> Role for Injector<E> {
    type Flags = InjectorFlags;

    const SERVED: &'static str = "requests are answered";

    fn drain_duration(flags: &InjectorFlags) -> Duration {
        flags.drain_duration
    }

    async fn prepare(shared: &Shared, flags: &InjectorFlags) -> Result<Self, Failure> {
        Self::new(shared, flags).await
    }

    async fn serve(self, mut shutdown: Shutdown) -> Result<(), Failure> {
        let readiness = Arc::clone(&self.webhook.readiness);
        let (mut loops, mut serving) = self.go(&shutdown);
        let end = async {
            shutdown.draining().await;
            readiness.drains();
            shutdown.closing().await;
        };
        until(end, &mut loops, &mut serving).await?;
        while serving.join_next().await.is_some() {}
        Ok(())
    }
}

/// The prepared role: files read, ports bound, the health file written; nothing else may fail.
pub(crate) struct Injector<E> {
    flags: InjectorFlags,
    files: Files<E>,
    authority: Option<Authority>,
    observers: CertificateObservers,
    webhook: Arc<Webhook<E>>,
    status: Arc<Status>,
    listeners: Listeners,
    beats: Option<(FileWriter, Duration)>,
    /// The reconcilers of all configurations that have the bundle of this CA.
    reconcilers: BundleReconcilers,
    /// The cluster, and the clients of the process, which may have one of it.
    cluster: Option<(Access, Clusters)>,
    /// Handles all requests but reviews of pods, on the listener that webhooks share.
    others: Option<Arc<dyn serve::Service>>,
}

impl<E: ActiveConfiguration> Injector<E> {
    async fn new(shared: &Shared, flags: &InjectorFlags) -> Result<Self, Failure> {
        let metrics = Arc::new(InjectorMetrics::new(SystemTime::now()));
        let parameters = parameters::of(flags.revision.as_ref(), &flags.builtin);
        let revision = match parameters.revision.as_str() {
            "" => "default",
            revision => revision,
        };
        let status = Arc::new(Status::new(revision.to_owned(), flags.self_signed));
        let readiness = Arc::new(InjectorReadiness::default());
        let authority = authority(flags)?;
        let access = kubernetes::access(flags);
        // Also for the configurations of other webhooks behind the same certificate.
        let keeps = flags.reconcile_webhook_config || shared.rules().is_some();
        let wanted = files_to_load(flags, parameters, keeps && access.is_some())?;
        if flags.ca_out.is_some() && !flags.self_signed && wanted.ca.is_none() {
            warn!("ignoring --caOut: no CA is in use without --selfSigned or a cluster");
        }
        let files = Files::<E>::open(wanted, Arc::clone(&metrics))
            .await
            .map_err(|line| Failure::config(with_remedy(flags, line)))?;
        let served = files.served();
        // A file may have a policy without a template: then the built-in template takes the parameters.
        if !served.engine().is_built_in() {
            for flag in parameters::set_flags(&flags.builtin) {
                warn!("{}", parameters::ignored(flag));
            }
        }
        let current = match (&authority, files.tls()) {
            (Some(authority), _) => tls::Current::new(authority.leaf()),
            (None, Some(current)) => current,
            (None, None) => return Err(Failure::config("cannot serve: there is no certificate")),
        };
        let observers = CertificateObservers {
            tls: Arc::clone(&current),
            metrics: Arc::clone(&metrics),
            status: Arc::clone(&status),
            readiness: Arc::clone(&readiness),
        };
        if let Some(authority) = &authority {
            served.ca.send_replace(Some(authority.bundle().into()));
            observers.emit(authority.leaf());
        }
        let listeners = Listeners::bind(flags, current).await?;
        // After binding: before, the CA in the file may be that of the process with the port.
        if let Some(path) = &flags.ca_out {
            let ca = served.ca.borrow().clone();
            let mut file = FileWriter::new(path.clone());
            ca_out_file::write(&mut file, ca)
                .await
                .map_err(Failure::system)?;
        }
        let reconcilers = offer_webhooks(shared, &served, flags.self_signed);
        let beats = health::heartbeat(shared, flags).await?;
        let native = native(flags.native_sidecars);
        Ok(Self {
            flags: flags.clone(),
            files,
            authority,
            observers,
            webhook: Arc::new(Webhook::new(served, metrics, readiness, native)),
            status,
            listeners,
            beats,
            reconcilers,
            cluster: access.map(|access| (access, shared.clusters())),
            others: None,
        })
    }

    /// Adds another webhook behind the same certificate.
    pub(crate) fn add_service(&mut self, others: Arc<dyn serve::Service>) {
        self.others = Some(others);
    }

    /// Returns the role's page, metrics and readiness.
    pub(crate) fn monitor(&self) -> Arc<dyn Inspect> {
        Arc::new(InjectorMonitor {
            webhook: Arc::clone(&self.webhook),
            status: Arc::clone(&self.status),
        })
    }

    /// Starts serving. Returns loops that go on for ever, and the tasks of ports, which end with the stage.
    fn go(self, shutdown: &Shutdown) -> (JoinSet<()>, JoinSet<()>) {
        let Self {
            flags,
            files,
            authority,
            observers: telling,
            webhook,
            status,
            listeners,
            beats,
            reconcilers,
            cluster,
            others,
        } = self;
        // The ports are bound: clients wait in the kernel's queue until the tasks below accept them.
        webhook.readiness.serves();
        listeners.announce();
        let tasks = Tasks {
            flags: &flags,
            served: &webhook.served,
            observers: telling,
        };
        let mut loops = JoinSet::new();
        if let Some(own) = start_cluster_tasks(&flags, cluster, &webhook, &status, &mut loops) {
            reconcilers.add(own);
        }
        let authority = authority.map(|authority| (authority, reconcilers));
        tasks.spawn(files, authority, beats, &mut loops);
        let mut serving = JoinSet::new();
        let monitor = Arc::new(InjectorMonitor {
            webhook: Arc::clone(&webhook),
            status,
        });
        AdminListener::serve(&monitor, listeners.admin, shutdown, &mut serving);
        let (bound, shutdown) = (listeners.webhook, shutdown.clone());
        match others {
            None => serving.spawn(serve::run(bound, webhook, shutdown)),
            Some(others) => {
                let routes = Routes::new(others).to(webhook::is_path, webhook);
                serving.spawn(serve::run(bound, Arc::new(routes), shutdown))
            }
        };
        (loops, serving)
    }
}

/// Offers the certificate to the other webhooks of the process. Returns the reconcilers of all configurations that have its bundle.
fn offer_webhooks<E>(shared: &Shared, served: &Served<E>, is_own: bool) -> BundleReconcilers {
    let reconcilers = BundleReconcilers::default();
    if shared.rules().is_some() {
        shared.offer_webhooks(Webhooks {
            ca: served.ca.clone(),
            ca_unreadable: served.ca_unreadable.clone(),
            is_own,
            reconcilers: reconcilers.clone(),
        });
    }
    reconcilers
}

/// Adds a hint to the error of a first start without certificates.
fn with_remedy(flags: &InjectorFlags, line: String) -> String {
    let is_there = flags.tls_cert_file.exists() || flags.tls_key_file.exists();
    if is_there || flags.self_signed || !line.starts_with("cannot use --tls") {
        return line;
    }
    format!("{line}; --selfSigned makes a certificate in memory")
}

/// Returns the form of the proxy at the start.
pub(crate) fn native(setting: NativeSetting) -> NativeSidecars {
    match setting {
        NativeSetting::On => NativeSidecars::On,
        NativeSetting::Jobs => NativeSidecars::Jobs,
        // `auto` is off until the API server's version is known to be new enough.
        NativeSetting::Off | NativeSetting::Auto => NativeSidecars::Off,
    }
}

fn files_to_load(
    flags: &InjectorFlags,
    parameters: Parameters,
    keeps: bool,
) -> Result<WantedFiles, Failure> {
    if !flags.kubeconfig.is_empty() {
        chosen("kubeconfig", Some(Path::new(&flags.kubeconfig)), "").map_err(Failure::config)?;
    }
    let choose = |flag, given: &Option<PathBuf>, default| {
        chosen(flag, given.as_deref(), default).map_err(Failure::config)
    };
    let flagged_file = |flag, path: &Path| FlaggedFile {
        flag,
        path: path.to_owned(),
    };
    Ok(WantedFiles {
        config: choose("injectConfig", &flags.inject_config, INJECT_CONFIG)?,
        values: choose("injectValues", &flags.inject_values, INJECT_VALUES)?,
        mesh: choose("meshConfig", &flags.mesh_config, MESH_CONFIG)?,
        pair: (!flags.self_signed).then(|| {
            (
                flagged_file("tlsCertFile", &flags.tls_cert_file),
                flagged_file("tlsKeyFile", &flags.tls_key_file),
            )
        }),
        ca: (keeps && !flags.self_signed).then(|| flagged_file("caCertFile", &flags.ca_cert_file)),
        parameters,
    })
}

fn authority(flags: &InjectorFlags) -> Result<Option<Authority>, Failure> {
    if !flags.self_signed {
        return Ok(None);
    }
    let namespace = flags.service_namespace();
    let names = LeafNames::new(&flags.webhook_service, &namespace, &flags.self_signed_names)
        .map_err(|(name, cause)| Failure::config(format!("cannot certify {name:?}: {cause}")))?;
    Authority::new(names, flags.self_signed_ttl, SystemTime::now())
        .map(Some)
        .map_err(|cause| Failure::config(format!("cannot use --selfSignedTTL: {cause}")))
}

/// The tasks beside the listeners.
struct Tasks<'a, E> {
    flags: &'a InjectorFlags,
    served: &'a Arc<Served<E>>,
    observers: CertificateObservers,
}

impl<E: ActiveConfiguration> Tasks<'_, E> {
    fn spawn(
        self,
        files: Files<E>,
        authority: Option<(Authority, BundleReconcilers)>,
        beats: Option<(FileWriter, Duration)>,
        loops: &mut JoinSet<()>,
    ) {
        if let Some((file, interval)) = beats {
            loops.spawn(health::beat(file, interval));
        }
        if let Some(path) = self.flags.ca_out.clone() {
            loops.spawn(ca_out_file::run_write_loop(
                path,
                self.served.ca.subscribe(),
            ));
        }
        match authority {
            Some((authority, reconcilers)) => {
                let ca = self.served.ca.clone();
                let observers = self.observers;
                let serve = move |pair: &tls::Pair| observers.serve(pair);
                let publication =
                    move |bundle: &str| webhook_configuration::publication(&reconcilers, bundle);
                loops.spawn(tls::renew(authority, serve, publication, ca));
            }
            None => {
                if let Some(pairs) = files.pairs() {
                    loops.spawn(follow(pairs, self.observers));
                }
            }
        }
        let watcher = Watcher::new(files.paths());
        loops.spawn(run_reload_loop(watcher, files));
    }
}

/// Starts the parts that need a cluster, if there is one. Returns the handle of the reconciler of the webhook's configurations.
fn start_cluster_tasks<E: ActiveConfiguration>(
    flags: &InjectorFlags,
    cluster: Option<(Access, Clusters)>,
    webhook: &Arc<Webhook<E>>,
    status: &Status,
    loops: &mut JoinSet<()>,
) -> Option<ReconcilerHandle> {
    let auto = flags.native_sidecars == NativeSetting::Auto;
    let openshift = namespaces::are_openshift();
    let Some((access, clusters)) = cluster else {
        if flags.reconcile_webhook_config {
            info!("keeping no CA bundle: not in a cluster, and no --kubeconfig");
        }
        if auto {
            info!("native sidecars are off: not in a cluster, and no --kubeconfig");
        }
        if openshift {
            warn!("PLATFORM=openshift has no effect: not in a cluster, and no --kubeconfig");
        }
        return None;
    };
    let (reconciler, handle) = flags
        .reconcile_webhook_config
        .then(|| {
            let (reconciler, handle) = kubernetes::webhook_reconciler(flags);
            status.set_reconciler(handle.clone());
            let ca = webhook.served.ca.subscribe();
            let unreadable = webhook.served.ca_unreadable.subscribe();
            loops.spawn(webhook_configuration::emit_bundles(
                handle.clone(),
                flags.self_signed,
                ca,
                unreadable,
            ));
            (reconciler, handle)
        })
        .unzip();
    let auto = auto.then(|| Arc::clone(webhook));
    let namespaces = openshift.then(|| {
        let (writer, reader) = sources::kubernetes::store();
        webhook.namespaces.read(reader);
        writer
    });
    if reconciler.is_some() || auto.is_some() || openshift {
        let tasks = ClusterTasks {
            clusters,
            reconciler,
            auto,
            namespaces,
        };
        loops.spawn(kubernetes::run(access, tasks));
    }
    handle
}

/// Updates page and readiness with the files' present certificate.
async fn follow(mut pairs: watch::Receiver<Option<tls::Pair>>, observers: CertificateObservers) {
    loop {
        let pair = pairs.borrow_and_update().clone();
        if let Some(pair) = pair {
            observers.emit(&pair);
        }
        if pairs.changed().await.is_err() {
            return;
        }
    }
}
