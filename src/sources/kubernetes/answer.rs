//! Responses of the API server, read with a bound on bytes and on time. Their content is untrusted.

use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::{AuthError, Body, RustlsTlsError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::failure::{Action, Cause, Failure};
use crate::error_text::{self, misread, one_line};
use crate::offload::offload;

/// An answer, or a page of a list. Objects are at most 1.5 MiB in etcd.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Bytes of an error body that are read.
const REFUSAL_BYTES: usize = 64 << 10;
/// A server may ask to be left alone, but not for ever.
const AFTER: Duration = Duration::from_secs(60);

/// metav1.Status, the fields that are reported.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiStatus {
    code: u16,
    message: String,
    reason: String,
}

impl ApiStatus {
    pub(crate) fn cause(self, code: Option<u16>, after: Option<Duration>) -> Cause {
        let message = if self.message.is_empty() {
            self.reason
        } else {
            self.message
        };
        Cause::Status {
            // Only an event of a watch has no status line of its own, and its code in the body instead.
            code: code.unwrap_or(self.code),
            message: one_line(&message),
            after,
        }
    }
}

/// Joins all causes of an error, without secrets.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    // An error that quotes a secret is quoted by all errors that wrap it.
    let mut causes = successors(Some(error), |error| error.source());
    match causes.find_map(without_secret) {
        Some(without_secret) => one_line(&without_secret),
        None => error_text::chain(error),
    }
}

/// Returns other words for an error of kube's that quotes a kubeconfig or the output of a credential plugin: variables, arguments,
/// tokens, keys. The match names each error of credentials, so that a new one does not compile unseen.
fn without_secret(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(RustlsTlsError::InvalidIdentityPem(_)) = error.downcast_ref() {
        return Some("the client certificate or its key is not PEM".to_owned());
    }
    match error.downcast_ref::<AuthError>()? {
        AuthError::AuthExecRun { out, .. } => {
            Some(format!("the credential plugin failed with {}", out.status))
        }
        AuthError::AuthExecParse(_) => {
            Some("the credential plugin's output is not an ExecCredential".to_owned())
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            Some("the time at which the token expires is not a timestamp".to_owned())
        }
        AuthError::InvalidBasicAuth(_)
        | AuthError::InvalidBearerToken(_)
        | AuthError::UnrefreshableTokenResponse
        | AuthError::ExecPluginFailed
        | AuthError::AuthExecStart(_)
        | AuthError::AuthExecSerialize(_)
        | AuthError::AuthExec(_)
        | AuthError::ReadTokenFile(..)
        | AuthError::ParseTokenKey(_)
        | AuthError::MissingCommand
        | AuthError::ExecMissingClusterInfo
        | AuthError::NoValidNativeRootCA(_) => None,
    }
}

/// A request on its way, under one deadline from its first byte to the last that is read.
pub(crate) struct Exchange<'a> {
    pub(crate) client: &'a kube::Client,
    /// The name of a remote cluster, for failures.
    pub(crate) cluster: Option<&'a Arc<str>>,
    pub(crate) action: &'a Action,
    pub(crate) within: Duration,
}

impl Exchange<'_> {
    fn failure(&self, cause: Cause) -> Failure {
        Failure {
            cluster: self.cluster.cloned(),
            action: self.action.clone(),
            cause,
        }
    }

    /// A whole answer, decoded.
    pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, Failure> {
        self.read(request, |bytes| serde_json::from_slice(bytes))
            .await
    }

    /// A whole answer, as `read` decodes it: a long one on another thread.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
        read: impl FnOnce(&[u8]) -> Result<T, serde_json::Error> + Send + 'static,
    ) -> Result<T, Failure> {
        let bytes = self.collect_body(request).await?;
        let read = offload(bytes.len(), move || read(&bytes)).await;
        let read = read.ok_or_else(|| self.malformed("decoding panicked"))?;
        read.map_err(|error| self.malformed(&misread(&error)))
    }

    fn malformed(&self, message: &str) -> Failure {
        self.failure(Cause::Malformed(one_line(message)))
    }

    /// Reads all bytes of an answer. It is apart from the decoding, which is compiled once for each kind.
    async fn collect_body(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Vec<u8>, Failure> {
        let deadline = Instant::now() + self.within;
        let body = self.open(request, deadline).await?;
        let bytes = collect(body, MAX_ANSWER_BYTES, deadline, self.within).await;
        bytes.map_err(|cause| self.failure(cause))
    }

    /// An answer whose body goes on.
    pub(crate) async fn stream(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Body, Failure> {
        self.open(request, Instant::now() + self.within).await
    }

    async fn open(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
        deadline: Instant,
    ) -> Result<Body, Failure> {
        let request = request.map_err(|error| self.malformed(&error.to_string()))?;
        let sent = timeout_at(deadline, self.client.send(request.map(Body::from))).await;
        let response = match sent {
            Err(_) => return Err(self.failure(Cause::Silent(self.within))),
            Ok(Err(error)) => return Err(self.failure(Cause::Broken(chain(&error)))),
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        Err(self.failure(refusal(response, deadline, self.within).await))
    }
}

/// Parses `Retry-After` in seconds, at most `AFTER`. An HTTP date is ignored.
fn left_alone(text: &str) -> Option<Duration> {
    let seconds = text.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(AFTER))
}

async fn refusal(response: Response<Body>, deadline: Instant, within: Duration) -> Cause {
    let code = response.status();
    let after = response
        .headers()
        .get(http::header::RETRY_AFTER)
        .and_then(|value| left_alone(value.to_str().ok()?));
    // An unreadable body is no further error: the status code suffices.
    let bytes = collect(response.into_body(), REFUSAL_BYTES, deadline, within)
        .await
        .unwrap_or_default();
    let mut status: ApiStatus = serde_json::from_slice(&bytes).unwrap_or_else(|_| ApiStatus {
        message: String::from_utf8_lossy(&bytes).trim().to_owned(),
        ..ApiStatus::default()
    });
    if status.message.is_empty() && status.reason.is_empty() {
        code.canonical_reason()
            .unwrap_or("refused")
            .clone_into(&mut status.message);
    }
    status.cause(Some(code.as_u16()), after)
}

/// Reads a whole body.
async fn collect(
    mut body: Body,
    max: usize,
    deadline: Instant,
    within: Duration,
) -> Result<Vec<u8>, Cause> {
    let mut bytes = Vec::new();
    while let Some(more) = chunk(&mut body, deadline, within).await? {
        if bytes.len() + more.len() > max {
            return Err(Cause::TooLarge(max));
        }
        bytes.extend_from_slice(&more);
    }
    Ok(bytes)
}

/// The next part of a body, or its end.
pub(crate) async fn chunk(
    body: &mut Body,
    deadline: Instant,
    within: Duration,
) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]> + use<>>, Cause> {
    loop {
        let Ok(frame) = timeout_at(deadline, body.frame()).await else {
            return Err(Cause::Silent(within));
        };
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(Cause::Broken(chain(&error))),
            Some(Ok(frame)) => {
                // A frame without data holds trailers, which no answer of the API needs.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_left_alone_for_a_minute_at_most() {
        for (text, seconds) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("60", Some(60)),
            ("61", Some(60)),
            ("18446744073709551615", Some(60)),
            ("18446744073709551616", None),
            ("-1", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("", None),
        ] {
            assert_eq!(
                left_alone(text),
                seconds.map(Duration::from_secs),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_plugins_environment_and_output_are_not_reported() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo the-token; exit 3"]);
        command.env("PASSWORD", "the-password");
        let out = Box::new(command.output().unwrap());
        let cmd = format!("{command:?}");
        let error = AuthError::AuthExecRun { cmd, out };
        let of_kube = error.to_string();
        assert!(of_kube.contains("the-token") && of_kube.contains("the-password"));
        let error = kube::Error::Auth(error);
        let message = "the credential plugin failed with exit status: 3";
        assert_eq!(chain(&error), message);
        assert_eq!(chain(&kube::Error::Service(Box::new(error))), message);
    }
}
