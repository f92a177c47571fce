//! One request to Consul's agent over HTTP/1, with a deadline and a limit of bytes.

use std::time::Duration;

use api::text::is_control;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::address::{Address, Token};
use super::body::{BodyRoom, BufferedBody};
use super::schedule::{self, End, Query, QueryPath, QueryTarget};
use crate::error_text::chain;
use crate::interim_limit::send;

/// The `wait` of a blocking query. Consul adds up to a sixteenth as jitter.
const WAIT: Duration = Duration::from_secs(55);
/// The same until the agent has accepted more connections. Chosen: the connection is free again soon.
const BRIEF: Duration = Duration::from_secs(5);
/// The time beyond `wait` after which a blocking query has failed. Chosen: more than Consul's jitter, a sixteenth of [`WAIT`].
const ADDED: Duration = Duration::from_secs(4);
/// The deadline of a response's rest, or of a whole exchange that does not block.
pub(super) const EXCHANGE: Duration = Duration::from_secs(15);
/// An answer; of a refusal that much is read.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 << 20;
const REFUSAL_BYTES: usize = 4 << 10;
const REFUSAL_CHARACTERS: usize = 200;
/// A head, with its headers.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Connections that are kept for questions which are answered at once, so that these have some when no more are to be had.
const MAX_IDLE: usize = schedule::READS;
/// Connections of queries that wait are taken again at once, or not at all.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// An answer, read whole.
pub(super) struct Answer {
    pub(super) index: Option<u64>,
    pub(super) body: BufferedBody,
}

/// A failed query: its end for the schedule, and the reason for the log.
pub(super) struct Failed {
    pub(super) end: End,
    pub(super) why: String,
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    address: Address,
    token: Option<Token>,
    waiting: Pool<HttpConnector, Empty<Bytes>>,
    short: Pool<HttpConnector, Empty<Bytes>>,
    room: BodyRoom,
}

impl Client {
    pub(super) fn new(address: Address, token: Option<Token>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(EXCHANGE));
        connector.set_nodelay(true);
        let mut builder = Pool::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .http1_max_buf_size(MAX_HEAD_BYTES);
        let waiting = builder.build(connector.clone());
        let short = builder
            .pool_idle_timeout(None)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        Self {
            address,
            token,
            waiting,
            short,
            room: BodyRoom::default(),
        }
    }

    /// Asks, and waits for the whole answer.
    pub(super) async fn fetch(&self, query: &Query) -> Result<Answer, Failed> {
        let within = if query.index == 0 {
            EXCHANGE
        } else {
            WAIT + ADDED + EXCHANGE
        };
        let away = |why| Failed {
            end: End::Away,
            why,
        };
        timeout(within, self.exchange(query))
            .await
            .unwrap_or_else(|_| Err(away(format!("no data for {} s", within.as_secs()))))
            .map_err(|Failed { end, why }| Failed {
                end,
                why: format!("cannot read {} of {}: {why}", path(query), self.address),
            })
    }

    async fn exchange(&self, query: &Query) -> Result<Answer, Failed> {
        let malformed = |error: http::Error| Failed {
            end: End::Useless,
            why: error.to_string(),
        };
        let wait = if query.brief { BRIEF } else { WAIT }.as_secs();
        let path = format!("{}?index={}&wait={wait}s", path(query), query.index);
        let uri = self.address.uri(&path).map_err(malformed)?;
        let mut request = Request::get(uri).body(Empty::new()).map_err(malformed)?;
        if let Some(token) = &self.token {
            request
                .headers_mut()
                .insert("x-consul-token", token.header());
        }
        let pool = if query.index == 0 {
            &self.short
        } else {
            &self.waiting
        };
        let response = send(pool, request).await.map_err(|error| Failed {
            // An agent at its limit accepts a connection and closes it without an answer: that is not `Away`.
            end: if error.is_connect() {
                End::Away
            } else {
                End::Closed
            },
            why: chain(&error),
        })?;
        if response.status() != StatusCode::OK {
            return Err(self.refusal(response).await);
        }
        let index = index(response.headers());
        let body = read(response.into_body(), self.room.body(MAX_ANSWER_BYTES)).await?;
        Ok(Answer { index, body })
    }

    async fn refusal(&self, response: Response<Incoming>) -> Failed {
        let status = response.status();
        // An unreadable body is no further error: the status code suffices.
        let body = read(response.into_body(), self.room.body(REFUSAL_BYTES)).await;
        let body = body.as_ref().map(BufferedBody::bytes).unwrap_or_default();
        let body: String = String::from_utf8_lossy(body)
            .trim()
            .chars()
            .take(REFUSAL_CHARACTERS)
            .map(|letter| if is_control(letter) { ' ' } else { letter })
            .collect();
        let why = if body.is_empty() {
            status.to_string()
        } else {
            format!("{body} ({})", status.as_u16())
        };
        // An agent at its limit of connections answers 429, if it answers at all.
        let end = if status == StatusCode::TOO_MANY_REQUESTS {
            End::Closed
        } else {
            End::Refused {
                status: status.as_u16(),
            }
        };
        Failed { end, why }
    }
}

fn path(query: &Query) -> String {
    match (&query.target, query.way) {
        (QueryTarget::Names, _) => "/v1/catalog/services".to_owned(),
        (QueryTarget::Service(name), QueryPath::Health) => format!("/v1/health/service/{name}"),
        (QueryTarget::Service(name), QueryPath::Catalog) => format!("/v1/catalog/service/{name}"),
    }
}

fn index(headers: &HeaderMap) -> Option<u64> {
    headers.get("x-consul-index")?.to_str().ok()?.parse().ok()
}

/// Reads a whole body.
async fn read(mut from: Incoming, mut body: BufferedBody) -> Result<BufferedBody, Failed> {
    let useless = |why| Failed {
        end: End::Useless,
        why,
    };
    body.expect(from.size_hint().lower()).map_err(useless)?;
    while let Some(frame) = from.frame().await {
        let frame = frame.map_err(|error| Failed {
            end: End::Away,
            why: chain(&error),
        })?;
        if let Ok(data) = frame.into_data() {
            body.push(&data).map_err(useless)?;
        }
    }
    Ok(body)
}
