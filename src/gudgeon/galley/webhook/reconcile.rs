//! The webhook configuration in the cluster, where there is one.

use std::path::Path;

use sources::kubernetes::{Access, WatchTiming};
use sources::reconcile::{ReconcilerHandle, ServiceReference, Validation, WebhookReconciler};
use tokio::task::JoinSet;
use tracing::info;

use super::certificate::WebhookCa;
use super::metrics::WebhookMetrics;
use crate::cli::GalleyFlags;
use crate::exit::Failure;
use crate::shared::Clusters;
use crate::{file, webhook_configuration};

/// Returns the credentials for the API server; `None` if there are none, or reconciling is off.
fn access(flags: &GalleyFlags) -> Option<Access> {
    // With files as the source no cluster is contacted, not even for this.
    if !flags.webhook.enable_reconcile || !flags.config_path.as_os_str().is_empty() {
        return None;
    }
    if !flags.kubeconfig.as_os_str().is_empty() {
        return Some(Access::Kubeconfig {
            file: Some(flags.kubeconfig.clone()),
            context: None,
        });
    }
    if !Access::in_cluster() {
        info!("keeping no webhook configuration: not in a cluster, and no --kubeconfig");
        return None;
    }
    Some(Access::InCluster)
}

/// A reconciler, and its way to the cluster.
pub(super) struct Reconciliation {
    clusters: Clusters,
    access: Access,
    reconciler: WebhookReconciler,
}

impl Reconciliation {
    /// Connects and reconciles, for ever.
    pub(super) async fn run(self) {
        let cluster = webhook_configuration::connected(&self.clusters, &self.access).await;
        self.reconciler.run(cluster).await;
    }
}

/// Prepares the reconciler, and passes bundles on to it; the handle has its status. `None`: no webhook configuration is kept.
///
/// # Errors
/// The file of the webhook configuration is invalid.
pub(super) fn prepare(
    clusters: Clusters,
    flags: &GalleyFlags,
    ca: &WebhookCa,
    metrics: &WebhookMetrics,
    loops: &mut JoinSet<()>,
) -> Result<Option<(Reconciliation, ReconcilerHandle)>, Failure> {
    let Some(access) = access(flags) else {
        return Ok(None);
    };
    let validation = validation(flags, metrics)?;
    let (reconciler, handle) = WebhookReconciler::of_validation(validation, WatchTiming::default());
    ca.reconcilers.add(handle.clone());
    let (pem, unreadable) = (ca.pem.subscribe(), ca.unreadable.subscribe());
    loops.spawn(webhook_configuration::emit_bundles(
        handle.clone(),
        ca.own,
        pem,
        unreadable,
    ));
    let reconciliation = Reconciliation {
        clusters,
        access,
        reconciler,
    };
    Ok(Some((reconciliation, handle)))
}

/// The Service that leads to the webhook.
pub(super) fn service(flags: &GalleyFlags) -> ServiceReference {
    let webhook = &flags.webhook;
    ServiceReference {
        namespace: webhook.deployment_namespace.clone(),
        name: webhook.service_name.clone(),
    }
}

fn validation(flags: &GalleyFlags, metrics: &WebhookMetrics) -> Result<Validation, Failure> {
    let webhook = &flags.webhook;
    let service = service(flags);
    let path = &webhook.webhook_config_file;
    let validation = match path.as_os_str().is_empty() {
        true => Validation::built_in(&webhook.webhook_name, service),
        false => {
            let read = of_file(path, &webhook.webhook_name, service);
            metrics.loaded("webhook_config_file", read.is_ok());
            read?
        }
    };
    Ok(match webhook.unregister {
        true => validation.unregistered(),
        false => validation,
    })
}

fn of_file(path: &Path, name: &str, service: ServiceReference) -> Result<Validation, Failure> {
    let wrong = |cause: String| {
        let path = path.display();
        Failure::config(format!(
            "cannot use --validation-webhook-config-file {path}: {cause}"
        ))
    };
    let bytes = file::read_first(path).map_err(|cause| wrong(cause.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    Validation::of_file(&text, name, service).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use prometheus_client::registry::Registry;
    use sources::reconcile::{BundleReconcilers, CaBundle};
    use tokio::sync::watch;

    use super::*;
    use crate::cli::{Action, parse};
    use crate::file_states::FileMetrics;

    fn flags(line: &str) -> GalleyFlags {
        let arguments: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let Action::Galley(flags) = parse(&arguments).unwrap().action else {
            panic!("{line}")
        };
        *flags
    }

    /// In `gudgeon all` it is the CA of the injector.
    #[tokio::test]
    async fn the_configuration_is_one_that_its_ca_waits_for() {
        for (line, is_published) in [
            ("gudgeon galley --kubeconfig /none", Some(false)),
            ("gudgeon galley --configPath /none", None),
        ] {
            let ca = WebhookCa {
                pem: watch::Sender::new(None),
                unreadable: watch::Sender::new(0),
                own: true,
                reconcilers: BundleReconcilers::default(),
            };
            let metrics = WebhookMetrics::new(&mut Registry::default(), FileMetrics::default());
            let clusters = Clusters::default();
            let mut loops = JoinSet::new();
            let prepared = prepare(clusters, &flags(line), &ca, &metrics, &mut loops).unwrap();
            assert_eq!(prepared.is_some(), is_published.is_some(), "{line}");
            let bundle = CaBundle::Own(b"new".to_vec());
            assert_eq!(ca.reconcilers.have_published(&bundle), is_published);
        }
    }
}
