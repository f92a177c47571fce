//! The requests, and a check that each response belongs to its request.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use serde_json::Value;

use crate::{Failure, Sent};

/// The expected content of a review's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Patch,
    None,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "patch" => Ok(Self::Patch),
            "none" => Ok(Self::None),
            _ => Err(format!("cannot want {word:?}: patch or none")),
        }
    }
}

/// The request that is sent again and again.
#[derive(Debug)]
pub(crate) enum Asked {
    Ready,
    /// The body before and after the uid.
    Review {
        path: String,
        before: String,
        after: String,
        /// A word that is another in each request.
        vary: Option<String>,
        wanted: Wanted,
    },
}

impl Asked {
    pub(crate) const fn ready() -> Self {
        Self::Ready
    }

    /// Creates a review whose `request.uid` is unique text of 36 characters.
    pub(crate) fn review(
        text: &str,
        path: &str,
        vary: Option<String>,
        wanted: Wanted,
    ) -> Result<Self, Failure> {
        let review: Value = serde_json::from_str(text)?;
        let uid = review
            .pointer("/request/uid")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let mut parts = text.split(uid);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(before), Some(after), None) if uid.len() == 36 => Ok(Self::Review {
                // As the API server writes it.
                path: format!("{path}?timeout=10s"),
                before: before.to_owned(),
                after: after.to_owned(),
                vary,
                wanted,
            }),
            _ => Err("the review has no uid of its own".into()),
        }
    }

    /// The request of that number.
    pub(crate) fn request(&self, number: u64, http2: bool) -> Result<Request<Sent>, Failure> {
        let (method, path, body) = match self {
            Self::Ready => ("GET", "/ready", Bytes::new()),
            Self::Review {
                path,
                before,
                after,
                vary,
                ..
            } => {
                let mut body = format!("{before}{}{after}", uid(number));
                if let Some(word) = vary {
                    body = body.replace(word, &format!("other{number}"));
                }
                ("POST", path.as_str(), Bytes::from(body))
            }
        };
        let mut request = Request::builder().method(method);
        request = if http2 {
            request.uri(format!("https://localhost{path}"))
        } else {
            request.uri(path).header(HOST, "localhost")
        };
        if matches!(self, Self::Review { .. }) {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        Ok(request.body(Sent::new(body))?)
    }

    /// An error unless this answers the request of that number.
    pub(crate) fn check(
        &self,
        number: u64,
        status: StatusCode,
        body: &[u8],
    ) -> Result<(), Failure> {
        let wrong = |what: &str| {
            Failure::from(format!(
                "request {number}: {what}: {status} {}",
                String::from_utf8_lossy(body)
            ))
        };
        if status != StatusCode::OK {
            return Err(wrong("want 200"));
        }
        let Self::Review { wanted, .. } = self else {
            return Ok(());
        };
        let review: Value = serde_json::from_slice(body).map_err(|_| wrong("want JSON"))?;
        let response = review
            .get("response")
            .ok_or_else(|| wrong("want a response"))?;
        if response.get("uid").and_then(Value::as_str) != Some(&uid(number)) {
            return Err(wrong("another uid"));
        }
        if response.get("allowed") != Some(&Value::Bool(true)) {
            return Err(wrong("not allowed"));
        }
        let patch = response.get("patch").and_then(Value::as_str);
        match (wanted, patch) {
            (Wanted::None, None) => Ok(()),
            (Wanted::Patch, Some(patch)) if brings_the_proxy(patch) => Ok(()),
            (Wanted::None | Wanted::Patch, _) => Err(wrong("another patch")),
        }
    }
}

fn uid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// Returns true if the patch adds the container istio-proxy, as a list or to one.
fn brings_the_proxy(patch: &str) -> bool {
    let Ok(text) = STANDARD.decode(patch) else {
        return false;
    };
    let Ok(Value::Array(operations)) = serde_json::from_slice(&text) else {
        return false;
    };
    operations.iter().any(|operation| {
        let is = |key: &str, value: &str| {
            operation
                .get(key)
                .and_then(Value::as_str)
                .is_some_and(|text| text.starts_with(value))
        };
        is("op", "add")
            && is("path", "/spec/containers/")
            && operation.pointer("/value/name").and_then(Value::as_str) == Some("istio-proxy")
    })
}
