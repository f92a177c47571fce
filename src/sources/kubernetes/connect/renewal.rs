//! Credentials that files or programs give. They are looked at again: a token file each minute, the others when the server refuses
//! them, because a program need not say for how long its token holds, and a certificate may be exchanged before it expires.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::config::{AuthInfo, Config};
use tokio::time::Instant;
use tower::service_fn;

use super::token_file::TokenFile;
use super::{CannotConnect, client};
use crate::kubernetes::answer::chain;

/// The least time between two looks: a server that refuses each request runs no program for each.
const MIN_PAUSE: Duration = Duration::from_secs(60);

/// The origin of credentials that may be others by now.
#[derive(Debug)]
enum CredentialOrigin {
    /// A credential plugin.
    Program,
    /// A certificate and its key.
    Files(Vec<String>),
}

impl CredentialOrigin {
    fn of(user: &AuthInfo) -> Option<Self> {
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Some(Self::Program);
        }
        let files = [&user.client_certificate, &user.client_key];
        let files: Vec<String> = files.into_iter().flatten().cloned().collect();
        (!files.is_empty()).then_some(Self::Files(files))
    }

    /// Returns the stamps that tell files from their replacements; `None` for a program.
    fn stamps(&self) -> Option<Vec<FileStamp>> {
        let Self::Files(files) = self else {
            return None;
        };
        let stamp = |file: &String| {
            let data = fs::metadata(file).ok()?;
            Some((data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
        };
        Some(files.iter().map(stamp).collect())
    }
}

/// A file's inode, its times and its length; `None` without the file.
type FileStamp = Option<(u64, i64, i64, u64)>;

/// The last look at credentials.
#[derive(Debug)]
struct CredentialCheck {
    at: Option<Instant>,
    stamps: Option<Vec<FileStamp>>,
}

/// A client whose credentials are renewed.
struct Renewal {
    config: Config,
    /// For the log.
    address: String,
    token: Option<Arc<TokenFile>>,
    origin: Option<CredentialOrigin>,
    client: Mutex<kube::Client>,
    /// Locked during a look at the credentials.
    look: Arc<tokio::sync::Mutex<CredentialCheck>>,
}

/// Returns a client for a configuration, which renews the credentials if they are of files or programs.
///
/// # Errors
/// No client can be built, or a file cannot be read.
pub(super) fn renewing(mut config: Config, address: &str) -> Result<kube::Client, CannotConnect> {
    let token = TokenFile::take(&mut config.auth_info);
    let token = token.map(TokenFile::open).transpose()?.map(Arc::new);
    let origin = CredentialOrigin::of(&config.auth_info);
    let stamps = origin.as_ref().and_then(CredentialOrigin::stamps);
    let first = client(&config).map_err(|error| {
        let what = format!("cannot prepare connections to {address}");
        CannotConnect::because(&what, &error)
    })?;
    if token.is_none() && origin.is_none() {
        return Ok(first);
    }
    let namespace = config.default_namespace.clone();
    let renewal = Arc::new(Renewal {
        config,
        address: address.to_owned(),
        token,
        origin,
        client: Mutex::new(first),
        look: Arc::new(tokio::sync::Mutex::new(CredentialCheck {
            at: None,
            stamps,
        })),
    });
    let service = service_fn(move |request| Arc::clone(&renewal).send(request));
    Ok(kube::Client::new(service, namespace))
}

impl Renewal {
    async fn send(self: Arc<Self>, mut request: Request<Body>) -> kube::Result<Response<Body>> {
        if let Some(token) = &self.token {
            let header = token.header().await;
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let client = self.client.lock();
        // The clone ends the lock: it must not be held while the request is under way.
        let client = client.unwrap_or_else(PoisonError::into_inner).clone();
        let sent = client.send(request).await;
        let is_refused = match &sent {
            Ok(response) => response.status() == StatusCode::UNAUTHORIZED,
            // A certificate may be refused before there is a request.
            Err(_) => matches!(self.origin, Some(CredentialOrigin::Files(_))),
        };
        if is_refused {
            self.renew();
        }
        sent
    }

    /// Looks at the credentials beside the request that failed, which its sender tries again.
    fn renew(self: &Arc<Self>) {
        let (Some(_), Ok(mut look)) = (&self.origin, Arc::clone(&self.look).try_lock_owned())
        else {
            return;
        };
        if look.at.is_some_and(|at| at.elapsed() < MIN_PAUSE) {
            return;
        }
        look.at = Some(Instant::now());
        let this = Arc::clone(self);
        // A plugin may take long, and so may a file.
        let address = this.address.clone();
        let looked = tokio::task::spawn_blocking(move || this.look(&mut look));
        tokio::spawn(async move {
            // A token of a plugin that no header can have panics in kube.
            if looked.await.is_err_and(|ended| ended.is_panic()) {
                tracing::warn!("cannot renew the credentials for {address}: see the panic before");
            }
        });
    }

    fn look(&self, look: &mut CredentialCheck) {
        let stamps = self.origin.as_ref().and_then(CredentialOrigin::stamps);
        // Unchanged files hold the refused credentials: a new client would only lose the open connections.
        if stamps.is_some() && stamps == look.stamps {
            return;
        }
        let address = &self.address;
        match client(&self.config) {
            Ok(renewed) => {
                look.stamps = stamps;
                *self.client.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
                tracing::info!("renewed the credentials for {address}: it refused the last ones");
            }
            Err(error) => {
                let why = chain(&error);
                tracing::warn!("cannot renew the credentials for {address}: {why}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
