//! Injector, discovery and galley in one process, for one node: one runtime, one client of each cluster, one reader of each
//! source, one listener for both webhooks and one for administration.
//!
//! ```text
//!  directory or API server ──► galley ── validated rules ──► discovery ──► proxies
//!                                │
//!            API server ──► one HTTPS port ──► galley (rules), injector (pods)
//! ```

mod admin;

use std::sync::Arc;
use std::time::Duration;

use inject::Configuration;
use tokio::task::JoinSet;

use crate::cli::AllFlags;
use crate::discovery::Discovery;
use crate::exit::Failure;
use crate::galley::Galley;
use crate::injector::Injector;
use crate::serve::Shutdown;
use crate::shared::{AdminListener, AdminPort, Role, Shared, first_panic, panicked};
use admin::Roles;

/// The three prepared roles.
pub(crate) struct All {
    injector: Injector<Configuration>,
    discovery: Discovery,
    galley: Galley,
    http: Vec<AdminPort>,
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
        for address in &flags.http {
            http.push(AdminPort::bind(address).await?);
        }
        let discovery = Discovery::prepare(shared, &flags.discovery).await?;
        // The injector comes before galley, whose webhook takes the listener that the injector offers.
        let mut injector = Injector::prepare(shared, &flags.injector).await?;
        let galley = Galley::prepare(shared, &flags.galley).await?;
        if let Some(reviews) = galley.reviews() {
            injector.add_service(reviews);
        }
        http.iter().for_each(AdminPort::announce);
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
        let of_roles = Roles::new([discovery.monitor(), injector.monitor(), galley.monitor()]);
        AdminListener::serve(&Arc::new(of_roles), http, &shutdown, &mut looking_in);
        let mut roles = JoinSet::new();
        roles.spawn(discovery.serve(shutdown.clone()));
        roles.spawn(injector.serve(shutdown.clone()));
        roles.spawn(galley.serve(shutdown));
        let all_roles = async {
            while let Some(ended) = roles.join_next().await {
                // A role that fails ends the process, which its supervisor restarts.
                ended.map_err(panicked)??;
            }
            Ok(())
        };
        tokio::select! {
            ended = all_roles => ended?,
            failure = first_panic(&mut looking_in) => return Err(failure),
        }
        while looking_in.join_next().await.is_some() {}
        Ok(())
    }
}
