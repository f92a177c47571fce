//! Errors of requests to the API server, in words for the operator: the verb, the resource, the cause.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::backoff::Backoff;
use api::log_repeats::LogRepeatLimiter;
use api::times;

/// A request: one verb on one resource, by the words of RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub verb: &'static str,
    /// `mutatingwebhookconfigurations.admissionregistration.k8s.io`.
    pub resource: String,
    /// An object's name, if the request was for one.
    pub name: Option<String>,
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        self.name
            .as_ref()
            .map_or(Ok(()), |name| write!(formatter, " {name}"))
    }
}

/// The cause of a failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The API server responded with another status than expected.
    Status {
        code: u16,
        message: String,
        /// `Retry-After`.
        after: Option<Duration>,
    },
    /// The connection failed, or broke.
    Broken(String),
    /// The server sent no byte within this time.
    Silent(Duration),
    /// The response exceeds so many bytes.
    TooLarge(usize),
    /// The response is not valid.
    Malformed(String),
}

impl Cause {
    pub(crate) const fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            Self::Broken(_) | Self::Silent(_) | Self::TooLarge(_) | Self::Malformed(_) => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, message, .. } => write!(formatter, "{message} ({code})"),
            Self::Broken(why) => formatter.write_str(why),
            Self::Silent(long) => write!(formatter, "no data for {} s", long.as_secs_f32()),
            Self::TooLarge(max) => write!(formatter, "the response exceeds {max} bytes"),
            Self::Malformed(why) => write!(formatter, "cannot parse the response: {why}"),
        }
    }
}

/// The words that name a remote cluster in a line of the log; none of the local one.
pub(crate) struct OfCluster<'a>(pub(crate) Option<&'a str>);

impl fmt::Display for OfCluster<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .map_or(Ok(()), |name| write!(formatter, " of cluster {name}"))
    }
}

/// A request that failed, and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of a remote cluster; `None` of the local one, which needs none.
    pub cluster: Option<Arc<str>>,
    pub action: Action,
    pub cause: Cause,
}

impl Failure {
    pub(crate) const fn code(&self) -> Option<u16> {
        self.cause.code()
    }

    /// Returns true if the account may not do it.
    #[must_use]
    pub const fn is_forbidden(&self) -> bool {
        matches!(self.code(), Some(403))
    }

    /// Returns true if the server has no object of that name, or no such kind.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self.code(), Some(404))
    }

    /// Returns true if the account has no right to it. A write may also get 403 from an admission webhook, for one object alone:
    /// RBAC's words name the verb.
    pub(crate) fn is_without_right(&self) -> bool {
        let Cause::Status { code, message, .. } = &self.cause else {
            return false;
        };
        let is_read = ["get", "list", "watch"].contains(&self.action.verb);
        *code == 403 && (is_read || message.contains(&format!(" cannot {} ", self.action.verb)))
    }

    /// Returns the server's `Retry-After`, which a 429 or a 503 has, of a minute at most; list and watch wait for it.
    pub(crate) const fn after(&self) -> Option<Duration> {
        match self.cause {
            Cause::Status { after, .. } => after,
            Cause::Broken(_) | Cause::Silent(_) | Cause::TooLarge(_) | Cause::Malformed(_) => None,
        }
    }

    /// Returns the wait before the next try, which is not before the server's `Retry-After`.
    pub(crate) fn wait(&self, backoff: &mut Backoff, random: f64) -> Duration {
        let wait = backoff.next(random);
        wait.max(self.after().unwrap_or_default())
    }

    /// Logs a warning about a failure that is retried, unless it repeats too often.
    pub(crate) fn warn(&self, repeats: &mut LogRepeatLimiter) {
        let message = self.to_string();
        if let Some(count) = repeats.observe(&message) {
            tracing::warn!("{message}{}: trying again", times(count));
        }
    }

    /// As [`Self::warn`], of one among many objects: others fail in the same way, and each would be a message of its own.
    pub(crate) fn warn_of_kind(&self, repeats: &mut LogRepeatLimiter) {
        let Action { verb, resource, .. } = &self.action;
        let kind = format!("{verb} {resource}: {:?}", self.code());
        if let Some(count) = repeats.observe(&kind) {
            tracing::warn!("{self}{}: trying again", times(count));
        }
    }

    /// Returns true if the server sent no response. Any response, even an error, proves to the peers that it is reachable.
    pub(crate) const fn is_away(&self) -> bool {
        matches!(self.cause, Cause::Broken(_) | Cause::Silent(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = OfCluster(self.cluster.as_deref());
        write!(formatter, "cannot {}{of}", self.action)?;
        if self.is_without_right() {
            let Action { verb, resource, .. } = &self.action;
            write!(
                formatter,
                ": the account has no right to the verb \"{verb}\" on \"{resource}\""
            )?;
        }
        write!(formatter, ": {}", self.cause)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(cause: Cause) -> String {
        let action = Action {
            verb: "watch",
            resource: "pods".to_owned(),
            name: Some("web".to_owned()),
        };
        Failure {
            cluster: None,
            action,
            cause,
        }
        .to_string()
    }

    #[test]
    fn a_failure_of_a_remote_cluster_names_the_cluster() {
        let of = |cluster: Option<&str>, code| {
            let action = Action {
                verb: "list",
                resource: "services".to_owned(),
                name: None,
            };
            let cause = Cause::Status {
                code,
                message: "no".to_owned(),
                after: None,
            };
            Failure {
                cluster: cluster.map(Arc::from),
                action,
                cause,
            }
            .to_string()
        };
        assert_eq!(of(None, 500), "cannot list services: no (500)");
        assert_eq!(
            of(Some("east"), 500),
            "cannot list services of cluster east: no (500)"
        );
        assert_eq!(
            of(Some("east"), 403),
            "cannot list services of cluster east: the account has no right to the verb \"list\" on \"services\": no (403)"
        );
    }

    #[test]
    fn each_failure_says_what_was_asked_and_why_not() {
        let refused = |code| Cause::Status {
            code,
            message: "no".to_owned(),
            after: None,
        };
        for (cause, message) in [
            (
                refused(403),
                "cannot watch pods web: the account has no right to the verb \"watch\" on \"pods\": no (403)",
            ),
            (refused(409), "cannot watch pods web: no (409)"),
            (
                Cause::Silent(Duration::from_millis(1500)),
                "cannot watch pods web: no data for 1.5 s",
            ),
            (
                Cause::TooLarge(10),
                "cannot watch pods web: the response exceeds 10 bytes",
            ),
        ] {
            assert_eq!(failure(cause), message);
        }
    }

    #[test]
    fn a_write_that_a_webhook_denies_is_no_missing_right() {
        let of_patch = |message: &str| {
            let action = Action {
                verb: "patch",
                resource: "pods".to_owned(),
                name: Some("web".to_owned()),
            };
            let cause = Cause::Status {
                code: 403,
                message: message.to_owned(),
                after: None,
            };
            Failure {
                cluster: None,
                action,
                cause,
            }
            .to_string()
        };
        assert_eq!(
            of_patch("admission webhook \"policy.example\" denied the request: no"),
            "cannot patch pods web: admission webhook \"policy.example\" denied the request: no (403)"
        );
        let of_rbac = "pods \"web\" is forbidden: User \"u\" cannot patch resource \"pods\" in API group \"\"";
        assert_eq!(
            of_patch(of_rbac),
            format!(
                "cannot patch pods web: the account has no right to the verb \"patch\" on \"pods\": {of_rbac} (403)"
            )
        );
    }
}
