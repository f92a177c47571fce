//! Renews the self-signed certificate while it is served, and publishes its CA.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::log_repeats::should_log_repeat;
use tokio::sync::watch;
use tracing::{error, info};

use super::{Authority, Pair, Publication};
use crate::log;

/// The delay after a failure.
const AGAIN: Duration = Duration::from_secs(10);

/// Renews for ever: `serve` is given each new leaf, and `publication` tells whether clients have a bundle.
pub(crate) async fn renew(
    mut authority: Authority,
    serve: impl Fn(&Pair),
    publication: impl Fn(&str) -> Publication,
    ca: watch::Sender<Option<Arc<str>>>,
) {
    let mut failed: u64 = 0;
    loop {
        tokio::time::sleep(authority.pause(SystemTime::now())).await;
        let publication = publication(&authority.bundle());
        let (changed, renewed) = authority.step(SystemTime::now(), publication);
        if changed.bundle {
            ca.send_replace(Some(authority.bundle().into()));
            info!("the self-signed CA has changed");
        }
        if changed.leaf {
            let leaf = authority.leaf();
            serve(leaf);
            // In the macro `log` is another.
            let until = log::stamp(leaf.not_after);
            info!("the self-signed certificate is new, until {until}");
        }
        match renewed {
            Ok(()) => failed = 0,
            Err(cause) => {
                failed += 1;
                if should_log_repeat(failed) {
                    error!(
                        "cannot renew the self-signed certificate: {cause}{repeated}",
                        repeated = api::times(failed)
                    );
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
