//! Consul.

use std::sync::Arc;

use api::url::quotation_without_credentials;
use sources::consul::{Address, Consul, ConsulUpdate, Token};
use sources::contribution::SyncState;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::DiscoveryFlags;
use crate::discovery::hub::Hub;
use crate::exit::Failure;

/// Reads it from now on.
///
/// # Errors
/// The address or the token is none.
pub(super) fn start(
    flags: &DiscoveryFlags,
    hub: &Arc<Hub>,
    loops: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let url = flags.consul_server_url.as_deref().unwrap_or_default();
    let address: Address = url.parse().map_err(|cause| {
        let url = quotation_without_credentials(url);
        Failure::config(format!("cannot use --consulserverURL {url:?}: {cause}"))
    })?;
    let token = match std::env::var_os("CONSUL_HTTP_TOKEN") {
        Some(text) if !text.is_empty() => {
            let token = text.to_str().and_then(Token::new);
            // It is a secret: what it looks like is not said.
            let none = || Failure::config("cannot use CONSUL_HTTP_TOKEN: it is no token");
            Some(token.ok_or_else(none)?)
        }
        Some(_) | None => None,
    };
    let consul = Consul::new(address, token, hub.options.settings.cluster.clone());
    let id = consul.id();
    hub.set_sync_state(&id, SyncState::Syncing);
    let (to, mut updates) = watch::channel(ConsulUpdate::default());
    loops.spawn(async move { match consul.run(to).await {} });
    let hub = Arc::clone(hub);
    loops.spawn(async move {
        while updates.changed().await.is_ok() {
            let now = updates.borrow_and_update().clone();
            hub.put(&id, now.contribution);
            // The state comes after the objects: it may complete the first snapshot.
            hub.set_sync_state(&id, now.sync_state);
            hub.updates_applied().await;
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::testing::{flags, hub};

    #[tokio::test]
    async fn an_address_that_is_refused_is_shown_without_its_password() {
        for (url, shown) in [
            ("http://me:S3CRET@c:8500", "http://…@c:8500"),
            ("me:S3CRET@c:8500", "…@c:8500"),
            ("http:/me:S3CRET@c:8500", "…@c:8500"),
        ] {
            let flags = flags(&["--registries", "Consul", "--consulserverURL", url]);
            let failure = start(&flags, &hub(), &mut JoinSet::new()).unwrap_err();
            let begin = format!("cannot use --consulserverURL {shown:?}: ");
            assert!(failure.message.starts_with(&begin), "{}", failure.message);
        }
    }
}
