//! Many sinks of `gudgeon galley`, each with a connection of its own as sinks have: half of them incremental. Each keeps its
//! resources and checks every response; a wrong one ends the run.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use api::istio::mcp::v1alpha1::{RequestResources, Resource, Resources, SinkNode};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use crate::rules::{self, Rules};
use crate::wire::RequestStream;
use crate::{Failure, Sinks, server};

const PATH: &str = "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream";
const COLLECTION: &str = "istio/networking/v1alpha3/virtualservices";
const TYPE: &str = "type.googleapis.com/istio.networking.v1alpha3.VirtualService";
/// The timeout of each phase.
const DEADLINE: Duration = Duration::from_secs(120);
/// The interval of polls for the sinks' progress.
const LOOK: Duration = Duration::from_millis(5);
/// The time in which no further response may come after a change has reached every client.
const QUIET: Duration = Duration::from_millis(1500);
/// Many hold much: a collection comes whole.
const MESSAGE_BYTES: usize = 64 << 20;

/// The resources of one sink.
#[derive(Default)]
struct SinkState {
    /// The version of each resource, and which change it is of.
    resources: BTreeMap<String, (String, usize)>,
    nonces: HashSet<String>,
    responses: usize,
    /// The times at which the sink had all of a change, and at which the first response of that change came.
    complete: Option<Duration>,
    first: Option<Duration>,
}

struct Fleet {
    start: Instant,
    rules: usize,
    sinks: Vec<RefCell<SinkState>>,
    /// The last change of each rule.
    wanted: RefCell<Vec<usize>>,
    bytes: Cell<usize>,
    failure: RefCell<Option<String>>,
}

pub(crate) async fn run(flags: Sinks) -> Result<String, Failure> {
    let fleet = Rc::new(Fleet {
        start: Instant::now(),
        rules: flags.rules,
        sinks: (0..flags.sinks).map(|_| RefCell::default()).collect(),
        wanted: RefCell::new(vec![0; flags.rules]),
        bytes: Cell::new(0),
        failure: RefCell::default(),
    });
    let before = server::resident(flags.pid)?;
    for at in 0..flags.sinks {
        let (fleet, address) = (Rc::clone(&fleet), flags.address);
        tokio::task::spawn_local(async move {
            if let Err(why) = fleet.live(at, &format!("http://{address}")).await {
                let why = format!("sink {at}: {why}");
                fleet.failure.borrow_mut().get_or_insert(why);
            }
        });
    }
    fleet.all("everything").await?;
    let complete = fleet.start.elapsed();
    sleep(QUIET).await;
    let resident = server::resident(flags.pid)?;
    let directory = Rules::new(&flags.dir);
    let mut turns = Vec::new();
    for turn in 1..=flags.turns {
        turns.push(fleet.turn(&flags, &directory, turn).await?);
    }
    Ok(json!({
        "sinks": flags.sinks, "rules": flags.rules, "changes": flags.changes,
        "complete_ms": complete.as_secs_f64() * 1e3, "bytes": fleet.bytes.get(),
        "resident_before": before, "resident": resident, "resident_after": server::resident(flags.pid)?, "turns": turns,
    })
    .to_string())
}

impl Fleet {
    /// Runs one sink, until an error.
    async fn live(&self, at: usize, address: &str) -> Result<(), Failure> {
        let state = self.sinks.get(at).ok_or("there is no such sink")?;
        let incremental = at % 2 == 1;
        let request = |nonce: String| RequestResources {
            sink_node: Some(SinkNode {
                id: format!("load-{at}"),
                ..SinkNode::default()
            }),
            collection: COLLECTION.to_owned(),
            response_nonce: nonce,
            incremental,
            ..RequestResources::default()
        };
        let channel = Endpoint::from_shared(address.to_owned())?.connect().await?;
        let (say, mut responses) = open(channel, request(String::new())).await?;
        while let Some(response) = responses.message().await? {
            let now = self.start.elapsed();
            let nonce = response.nonce.clone();
            let mut state = state.borrow_mut();
            if incremental != response.incremental && !response.resources.is_empty() {
                return Err("the other kind of response".into());
            }
            if !state.nonces.insert(nonce.clone()) {
                return Err(format!("nonce {nonce:?} again").into());
            }
            state.responses += 1;
            state.first.get_or_insert(now);
            self.take(&mut state, response)?;
            if state.complete.is_none() && self.is_complete(&state) {
                state.complete = Some(now);
            }
            say.send(request(nonce))?;
        }
        Err("the server ended the stream".into())
    }

    fn take(&self, state: &mut SinkState, response: Resources) -> Result<(), Failure> {
        if response.collection != COLLECTION || response.system_version_info.is_empty() {
            return Err(format!("a response of {:?}", response.collection).into());
        }
        if !response.removed_resources.is_empty() {
            return Err("nothing was removed".into());
        }
        if !response.incremental && response.resources.len() != self.rules {
            return Err(format!("{} of {} rules", response.resources.len(), self.rules).into());
        }
        let mut news = 0;
        for resource in response.resources {
            let (name, version, change) = self.read(resource)?;
            let is_new = state
                .resources
                .insert(name, (version.clone(), change))
                .is_none_or(|(had, _)| had != version);
            news += usize::from(is_new);
            if response.incremental && !is_new {
                return Err("a difference that is none".into());
            }
        }
        if news == 0 && state.responses > 1 {
            return Err("nothing in it is new".into());
        }
        Ok(())
    }

    /// Name and version, and of which change it is.
    fn read(&self, resource: Resource) -> Result<(String, String, usize), Failure> {
        let metadata = resource.metadata.ok_or("a resource without metadata")?;
        let body = resource.body.ok_or("a resource without a body")?;
        if body.type_url != TYPE || metadata.version.is_empty() {
            return Err(format!("{} is {}", metadata.name, body.type_url).into());
        }
        self.bytes.set(self.bytes.get() + body.value.len());
        let mark = b"turn-";
        let begin = body.value.windows(mark.len()).position(|it| it == mark);
        let digits = begin
            .and_then(|at| body.value.get(at + mark.len()..at + mark.len() + 5))
            .ok_or("a rule without its change")?;
        let change = std::str::from_utf8(digits)?.parse()?;
        Ok((metadata.name, metadata.version, change))
    }

    fn is_complete(&self, state: &SinkState) -> bool {
        state.resources.len() == self.rules
            && self.wanted.borrow().iter().enumerate().all(|(at, wanted)| {
                state
                    .resources
                    .get(&rules::name(at))
                    .is_some_and(|(_, change)| change == wanted)
            })
    }

    async fn all(&self, what: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(why) = &*self.failure.borrow() {
                return Err(why.clone().into());
            }
            let missing = self
                .sinks
                .iter()
                .filter(|one| one.borrow().complete.is_none());
            let missing = missing.count();
            if missing == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{what}: {missing} sinks do not have it in time").into());
            }
            sleep(LOOK).await;
        }
    }

    /// Changes so many rules, and waits for every sink to get them. Times are since the last of them was written, and since
    /// the first response.
    async fn turn(
        &self,
        flags: &Sinks,
        directory: &Rules,
        turn: usize,
    ) -> Result<serde_json::Value, Failure> {
        for sink in &self.sinks {
            let mut state = sink.borrow_mut();
            (state.complete, state.first) = (None, None);
        }
        let ran = server::ran(flags.pid)?;
        let first = turn * flags.changes;
        for rule in (0..flags.changes).map(|at| (first + at) % flags.rules.max(1)) {
            if let Some(wanted) = self.wanted.borrow_mut().get_mut(rule) {
                *wanted = turn;
            }
            directory.put(rule, turn)?;
        }
        let written = self.start.elapsed();
        self.all("a change").await?;
        let moments = |of: fn(&SinkState) -> Option<Duration>| {
            self.sinks.iter().filter_map(move |one| of(&one.borrow()))
        };
        let last = moments(|state| state.complete).max().unwrap_or_default();
        let published = moments(|state| state.first).min().unwrap_or_default();
        let ran = server::ran(flags.pid)?.saturating_sub(ran);
        sleep(QUIET).await;
        if let Some(why) = &*self.failure.borrow() {
            return Err(why.clone().into());
        }
        let millis = |since: Duration| last.saturating_sub(since).as_secs_f64() * 1e3;
        Ok(json!({
            "last_ms": millis(written), "spread_ms": millis(published), "processor_ms": ran.as_secs_f64() * 1e3,
        }))
    }
}

/// A stream, and its first request on it.
async fn open(
    channel: Channel,
    first: RequestResources,
) -> Result<(UnboundedSender<RequestResources>, Streaming<Resources>), Failure> {
    let (say, requests) = unbounded_channel();
    // The server answers only after the first request.
    say.send(first)?;
    let mut client = Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES);
    client.ready().await?;
    let codec = ProstCodec::<RequestResources, Resources>::default();
    let response = client
        .streaming(
            Request::new(RequestStream(requests)),
            PathAndQuery::from_static(PATH),
            codec,
        )
        .await?;
    Ok((say, response.into_inner()))
}
