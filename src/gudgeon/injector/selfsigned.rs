//! The own certificate while it is served: renewed in time, its CA told to who needs it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tracing::{error, info};

use super::health::Health;
use super::metrics::Metrics;
use super::status::Status;
use crate::log;
use crate::tls::{Authority, Current, Pair};

/// A wall clock may be set: it is looked at at least so often.
const LOOK: Duration = Duration::from_secs(60);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(10);

/// Where a new certificate has to be known.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) tls: Arc<Current>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) status: Arc<Status>,
    pub(super) health: Arc<Health>,
}

impl Served {
    pub(super) fn serve(&self, pair: &Pair) {
        self.tls.set(pair);
        self.tell(pair);
    }

    /// Says what is served without touching it.
    pub(super) fn tell(&self, pair: &Pair) {
        self.metrics.serves_until(pair.not_after);
        self.status.serves(pair);
        self.health.ends(pair.not_after);
    }
}

/// Renews for ever.
pub(super) async fn run(
    mut authority: Authority,
    served: Served,
    ca: watch::Sender<Option<Arc<str>>>,
) {
    let mut failed: u64 = 0;
    loop {
        let wait = authority
            .due()
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        tokio::time::sleep(wait.min(LOOK)).await;
        let now = SystemTime::now();
        if now < authority.due() {
            continue;
        }
        match authority.step(now) {
            Ok(changed) => {
                failed = 0;
                if changed.bundle {
                    ca.send_replace(Some(authority.bundle().into()));
                    info!("the self-signed CA has changed");
                }
                if changed.leaf {
                    let leaf = authority.leaf();
                    served.serve(leaf);
                    // In the macro `log` is another.
                    let until = log::stamp(leaf.not_after);
                    info!("the self-signed certificate is new, until {until}");
                }
            }
            Err(cause) => {
                failed += 1;
                if log::worth_a_line(failed) {
                    error!("cannot renew the self-signed certificate: {cause} ({failed} times)");
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
