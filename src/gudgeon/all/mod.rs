//! Injector, discovery and galley in one process, for one node: one runtime, one client of each cluster, one reader of each
//! source, one listener for both webhooks and one for administration.
//!
//! ```text
//!  directory or API server ──► galley ── validated rules ──► discovery ──► proxies
//!                                │
//!            API server ──► one HTTPS port ──► galley (rules), injector (pods)
//! ```

mod admin;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use inject::Configuration;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::cli::{AdminAddress, AllFlags};
use crate::discovery::Discovery;
use crate::exit::Failure;
use crate::galley::Galley;
use crate::injector::Injector;
use crate::serve::{self, Listener, Shutdown, bind};
use crate::shared::{Role, Shared};
use admin::Admin;

/// Connections of each plain listener at a time.
const MAX_CONNECTIONS: usize = 64;

/// The three prepared roles.
pub(crate) struct All {
    injector: Injector<Configuration>,
    discovery: Discovery,
    galley: Galley,
    /// Plain listeners, each with true if any client may read `/debug` there.
    http: Vec<(Listener, bool)>,
}

impl Role for All {
    type Flags = AllFlags;

    const EVENTS_PER_TICK: Option<usize> = Discovery::EVENTS_PER_TICK;

    const SERVED: &'static str = "requests are answered and all streams are closed";

    fn drain_duration(flags: &AllFlags) -> Duration {
        flags.discovery.drain_duration
    }

    async fn prepare(shared: &Shared, flags: &AllFlags) -> Result<Self, Failure> {
        let mut http = Vec::new();
        for AdminAddress {
            flag,
            address,
            open,
        } in &flags.http
        {
            let bound = Listener {
                listener: bind(flag, address).await?,
                tls: None,
                max_connections: MAX_CONNECTIONS,
            };
            http.push((bound, *open));
        }
        let discovery = Discovery::prepare(shared, &flags.discovery).await?;
        // The injector comes before galley, whose webhook takes the listener that the injector offers.
        let mut injector = Injector::prepare(shared, &flags.injector).await?;
        let galley = Galley::prepare(shared, &flags.galley).await?;
        if let Some(reviews) = galley.reviews() {
            injector.add_service(reviews);
        }
        for (bound, open) in &http {
            announce(bound.listener.local_addr(), *open);
        }
        Ok(Self {
            injector,
            discovery,
            galley,
            http,
        })
    }

    async fn serve(self, shutdown: Shutdown) -> Result<(), Failure> {
        let Self {
            injector,
            discovery,
            galley,
            http,
        } = self;
        let mut looking_in = JoinSet::new();
        let (listeners, opens): (Vec<_>, Vec<_>) = http.into_iter().unzip();
        let admins = Admin::of_listeners(opens, |open| {
            [
                discovery.monitor(open),
                injector.monitor(open),
                galley.monitor(open),
            ]
        });
        for (bound, admin) in listeners.into_iter().zip(admins) {
            looking_in.spawn(serve::run(bound, admin, shutdown.clone()));
        }
        let mut roles = JoinSet::new();
        roles.spawn(discovery.serve(shutdown.clone()));
        roles.spawn(injector.serve(shutdown.clone()));
        roles.spawn(galley.serve(shutdown));
        while let Some(ended) = roles.join_next().await {
            // A role that fails ends the process, which its supervisor restarts.
            ended.map_err(|cause| Failure::system(format!("cannot go on: {cause}")))??;
        }
        while looking_in.join_next().await.is_some() {}
        Ok(())
    }
}

fn announce(address: io::Result<SocketAddr>, open: bool) {
    let address = address.map_or_else(|_| "?".to_owned(), |address| address.to_string());
    if open {
        warn!("/debug is open to every client: listening on http://{address}");
    } else {
        info!("listening on http://{address}");
    }
}
