//! The certificate that the webhook serves: from files, which may come late and may change, or made here.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sources::reconcile::BundleReconcilers;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::service::Reviews;
use crate::cli::GalleyFlags;
use crate::config_file::{AtStart, FlaggedFile};
use crate::exit::Failure;
use crate::galley::readiness::Readiness;
use crate::shared::Webhooks;
use crate::tls::{self, Authority, BundleFile, BundleRead, Current, LeafNames, Pair, PairFiles};
use crate::watch::{ReloadFiles, Watcher, run_reload_loop};
use crate::webhook_configuration::publication;

/// The interval of checks for files that do not exist yet.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The part of readiness.
const PART: &str = "webhook";

/// The CA for the webhook configuration, and how often it could not be read.
#[derive(Clone, Debug)]
pub(super) struct WebhookCa {
    pub(super) pem: watch::Sender<Option<Arc<str>>>,
    pub(super) unreadable: watch::Sender<u64>,
    /// The CA is self-made, and each replica has its own.
    pub(super) own: bool,
    /// The reconcilers of all configurations that have its bundle.
    pub(super) reconcilers: BundleReconcilers,
}

impl From<Webhooks> for WebhookCa {
    fn from(shared: Webhooks) -> Self {
        Self {
            pem: shared.ca,
            unreadable: shared.ca_unreadable,
            own: shared.is_own,
            reconcilers: shared.reconcilers,
        }
    }
}

/// The source of the certificate.
enum CertificateOrigin {
    Files(Box<(PairFiles, BundleFile)>),
    Own(Box<Authority>),
}

/// The certificate of new connections, and the task that renews it.
pub(super) struct Certificate {
    pub(super) current: Arc<Current>,
    pub(super) ca: WebhookCa,
    from: CertificateOrigin,
}

impl Certificate {
    /// # Errors
    /// The flags contradict each other; missing files may come later.
    pub(super) fn new(flags: &GalleyFlags) -> Result<Self, Failure> {
        let webhook = &flags.webhook;
        let ca = |own| WebhookCa {
            pem: watch::Sender::new(None),
            unreadable: watch::Sender::new(0),
            own,
            reconcilers: BundleReconcilers::default(),
        };
        if !webhook.self_signed {
            let [chain, key, bundle] = named(flags);
            let files = PairFiles::new(chain, key, AtStart::Optional);
            return Ok(Self {
                current: files.current(),
                ca: ca(false),
                from: CertificateOrigin::Files(Box::new((files, BundleFile::new(bundle)))),
            });
        }
        let (service, namespace) = (&webhook.service_name, &webhook.deployment_namespace);
        let names = LeafNames::new(service, namespace, &webhook.self_signed_names).map_err(
            |(name, cause)| Failure::config(format!("cannot certify {name:?}: {cause}")),
        )?;
        let authority = Authority::new(names, webhook.self_signed_ttl, SystemTime::now())
            .map_err(|cause| Failure::config(format!("cannot use --selfSignedTTL: {cause}")))?;
        let ca = ca(true);
        ca.pem.send_replace(Some(authority.bundle().into()));
        Ok(Self {
            current: Current::new(authority.leaf()),
            ca,
            from: CertificateOrigin::Own(Box::new(authority)),
        })
    }

    /// Keeps it, for ever.
    pub(super) fn run_reload_loop(
        self,
        reviews: Arc<Reviews>,
        readiness: Arc<Readiness>,
        loops: &mut JoinSet<()>,
    ) {
        let Self { current, ca, from } = self;
        match from {
            CertificateOrigin::Own(authority) => {
                reviews.metrics.new_pair();
                let serve = move |pair: &Pair| {
                    current.set(pair);
                    reviews.metrics.new_pair();
                };
                let WebhookCa {
                    pem, reconcilers, ..
                } = ca;
                let publication = move |bundle: &str| publication(&reconcilers, bundle);
                loops.spawn(tls::renew(*authority, serve, publication, pem));
            }
            CertificateOrigin::Files(files) => {
                let (pair, bundle) = *files;
                let paths = pair.files().into_iter().chain([&bundle.0]);
                let paths = paths.map(|file| file.named().path.clone()).collect();
                // Until the loop has its first turn, the role must not be ready.
                readiness.lacks(PART, "the webhook's certificate was not read yet");
                let files = CertificateFiles {
                    current_pair: pair.pair.subscribe(),
                    pair,
                    bundle,
                    ca,
                    reviews,
                    readiness,
                };
                loops.spawn(run_reload_loop(Watcher::new(paths), files));
            }
        }
    }
}

/// Returns each file with its flag.
fn named(flags: &GalleyFlags) -> [FlaggedFile; 3] {
    let (webhook, mcp) = (&flags.webhook, &flags.mcp);
    [
        (
            &webhook.certificate,
            "validation.tls.clientCertificate",
            &mcp.tls_cert_file,
            "tlsCertFile",
        ),
        (
            &webhook.private_key,
            "validation.tls.privateKey",
            &mcp.tls_key_file,
            "tlsKeyFile",
        ),
        (
            &webhook.ca_certificates,
            "validation.tls.caCertificates",
            &mcp.ca_cert_file,
            "caCertFile",
        ),
    ]
    .map(|(given, flag, usual, usual_flag)| match given {
        Some(path) => FlaggedFile {
            flag,
            path: path.clone(),
        },
        None => FlaggedFile {
            flag: usual_flag,
            path: usual.clone(),
        },
    })
}

/// The files, and the receivers of their changes.
struct CertificateFiles {
    pair: PairFiles,
    /// The pair in use.
    current_pair: watch::Receiver<Option<Pair>>,
    bundle: BundleFile,
    ca: WebhookCa,
    reviews: Arc<Reviews>,
    readiness: Arc<Readiness>,
}

impl ReloadFiles for CertificateFiles {
    /// Returns the time of the next check, if a file is missing.
    async fn reload(&mut self) -> Option<Duration> {
        let metrics = &self.reviews.metrics;
        let now = SystemTime::now();
        let again = self.pair.reload(metrics, now).await;
        if self.current_pair.has_changed().unwrap_or_default() {
            metrics.new_pair();
        }
        let has_pair = self.current_pair.borrow_and_update().is_some();
        match has_pair {
            true => self.readiness.has(PART),
            false => {
                let why = self.pair.error();
                let why = why.unwrap_or_else(|| "certificate and key do not match".to_owned());
                self.readiness
                    .lacks(PART, format!("the webhook has no certificate: {why}"));
            }
        }
        // Without a reconciler no CA bundle is needed.
        if self.ca.pem.receiver_count() > 0 {
            match self.bundle.reload(metrics, now).await {
                BundleRead::Same => {}
                BundleRead::New(pem) => {
                    metrics.loaded("ca_certificates", true);
                    self.ca.pem.send_replace(Some(pem));
                }
                BundleRead::Broken => {
                    metrics.loaded("ca_certificates", false);
                    self.ca.unreadable.send_modify(|times| *times += 1);
                }
            }
        }
        again.or_else(|| (!has_pair).then_some(POLL_INTERVAL))
    }

    fn forget(&mut self) {
        self.pair.forget();
        self.bundle.0.forget();
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::cli::{Action, parse};
    use crate::file_states::FileMetrics;
    use crate::galley::webhook::metrics::WebhookMetrics;
    use crate::galley::webhook::reconcile;

    /// No task but this one runs before it ends: so a listener may answer before the files are read.
    #[tokio::test]
    async fn the_role_is_not_ready_before_the_files_are_read() {
        let line = "gudgeon galley --configPath /c --tlsCertFile /none --tlsKeyFile /none";
        let arguments: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let Action::Galley(flags) = parse(&arguments).unwrap().action else {
            panic!("{line}")
        };
        let metrics = WebhookMetrics::new(&mut Registry::default(), FileMetrics::default());
        let reviews = Reviews::new(api::config::check, reconcile::service(&flags), metrics);
        let readiness = Arc::new(Readiness::new());
        let certificate = Certificate::new(&flags).unwrap();
        let (reviews, mut loops) = (Arc::new(reviews), JoinSet::new());
        certificate.run_reload_loop(reviews, Arc::clone(&readiness), &mut loops);
        assert_eq!(
            readiness.why_not_ready().as_deref(),
            Some("the webhook's certificate was not read yet")
        );
    }
}
