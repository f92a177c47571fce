//! All proxies of a run: connects them, changes what the server serves, and waits for the last of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};

use crate::facts::{Facts, Kind, Library};
use crate::proxy::{Protocol, Proxy};
use crate::wire::Line;
use crate::yaml::{self, Directory};
use crate::{Failure, Run, Variant, server};

/// The timeout of each phase.
const DEADLINE: Duration = Duration::from_secs(120);
/// The time in which no further response may come after a change has reached every client.
const QUIET: Duration = Duration::from_millis(500);
/// The interval of polls for the proxies' progress.
const LOOK: Duration = Duration::from_millis(10);
/// Flow-control windows of a connection, and of a stream.
const CONNECTION_BYTES: u32 = 64 << 20;
const STREAM_BYTES: u32 = 4 << 20;

/// The part of the server's state that must reach proxies.
enum Wanted {
    Cluster(String),
    /// Of an assignment.
    Endpoint(String, String),
    /// Of the routes of all services.
    Route(String),
}

impl Wanted {
    const fn kind(&self) -> Kind {
        match self {
            Self::Cluster(_) => Kind::Cluster,
            Self::Endpoint(..) => Kind::Endpoint,
            Self::Route(_) => Kind::Route,
        }
    }

    /// Returns true if a resource of its kind has it.
    fn is_in(&self, one: &Facts) -> bool {
        match self {
            Self::Cluster(name) => one.name == *name,
            Self::Endpoint(name, endpoint) => one.name == *name && one.endpoints.contains(endpoint),
            Self::Route(name) => one.route_names.contains(name),
        }
    }
}

/// A change that must reach proxies, and the times at which it did.
#[derive(Default)]
struct Awaited {
    wanted: Option<Wanted>,
    came: Vec<Duration>,
}

struct Fleet {
    start: Instant,
    library: RefCell<Library>,
    proxies: Vec<RefCell<Proxy>>,
    awaited: RefCell<Awaited>,
    /// Bytes of resources, by kind.
    bytes: Cell<[u64; Kind::ALL.len()]>,
    /// The time of the last change of the server's objects.
    changed: Cell<Duration>,
    failure: RefCell<Option<String>>,
}

pub(crate) async fn run(flags: Run) -> Result<String, Failure> {
    let fleet = Rc::new(Fleet::new(&flags));
    let before = server::ran(flags.pid)?;
    let empty = server::resident(flags.pid)?;
    let began = Instant::now();
    fleet.connect(&flags).await?;
    fleet
        .until("every proxy has everything", Fleet::is_complete)
        .await?;
    let complete = began.elapsed();
    let ran = server::ran(flags.pid)?;
    sleep(QUIET).await;
    let clusters = fleet.check(&flags)?;
    let resident = server::resident(flags.pid)?;
    let most = server::most_resident(flags.pid)?;
    let bytes = fleet.bytes.get();
    let by_kind = bytes.iter().zip(["cds", "eds", "lds", "rds"]);
    let by_kind: BTreeMap<_, _> = by_kind.map(|(bytes, kind)| (kind, *bytes)).collect();
    let mut changes = Vec::new();
    for change in 1..=flags.changes {
        changes.push(fleet.change(&flags, change).await?);
    }
    let mut exchanges = Vec::new();
    for exchange in 0..flags.exchanges {
        exchanges.push(fleet.exchange(&flags, exchange).await?);
    }
    let mut rules = Vec::new();
    for change in 1..=flags.rules {
        rules.push(fleet.rule(&flags, change).await?);
    }
    let figures = json!({
        "proxies": flags.proxies, "services": flags.services, "clusters": clusters,
        "complete_ms": millis(complete), "complete_processor_ms": millis(ran.saturating_sub(before)),
        "bytes": bytes.iter().sum::<u64>(), "bytes_by_kind": by_kind, "different_resources": fleet.library.borrow().len(),
        "resident_before": empty, "resident": resident, "resident_most": most,
        "resident_after": server::resident(flags.pid)?,
        "changes": changes, "exchanges": exchanges, "rules": rules,
    });
    Ok(figures.to_string())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Fleet {
    fn new(flags: &Run) -> Self {
        let protocol = |at: usize| match flags.variant {
            Variant::State => Protocol::State,
            Variant::Delta => Protocol::Delta,
            Variant::Both if at.is_multiple_of(2) => Protocol::State,
            Variant::Both => Protocol::Delta,
        };
        let proxies = (0..flags.proxies).map(|at| RefCell::new(Proxy::new(protocol(at))));
        Self {
            start: Instant::now(),
            library: RefCell::default(),
            proxies: proxies.collect(),
            awaited: RefCell::default(),
            bytes: Cell::default(),
            changed: Cell::new(Duration::ZERO),
            failure: RefCell::default(),
        }
    }

    /// Opens all streams; each goes on by itself, as soon as its connection is open: a proxy does not wait for the others,
    /// and the server evicts connections without a stream in favour of new ones.
    async fn connect(self: &Rc<Self>, flags: &Run) -> Result<(), Failure> {
        let (connections, namespaces) = (flags.connections.max(1), flags.namespaces);
        for first in 0..connections {
            let endpoint = Endpoint::from_shared(format!("http://{}", flags.address))?
                .initial_connection_window_size(CONNECTION_BYTES)
                .initial_stream_window_size(STREAM_BYTES);
            let channel = endpoint.connect().await?;
            for at in (first..flags.proxies).step_by(connections) {
                let (fleet, channel) = (self.clone(), channel.clone());
                tokio::task::spawn_local(async move {
                    if let Err(why) = fleet.live(node(at, namespaces), at, channel).await {
                        let why = format!("proxy {at}: {why}");
                        fleet.failure.borrow_mut().get_or_insert(why);
                    }
                });
            }
        }
        Ok(())
    }

    /// Runs one proxy, until an error.
    async fn live(&self, node: Node, at: usize, channel: Channel) -> Result<(), Failure> {
        let proxy = self.proxies.get(at).ok_or("there is no such proxy")?;
        let (protocol, first) = {
            let mut proxy = proxy.borrow_mut();
            (proxy.protocol(), proxy.begin())
        };
        let mut line = Line::open(channel, protocol, node, first).await?;
        loop {
            let came = line.hear().await?;
            let mut bytes = 0;
            let response = came.read(&mut self.library.borrow_mut(), &mut bytes)?;
            let mut all = self.bytes.get();
            for (all, kind) in all.iter_mut().zip(Kind::ALL) {
                *all += if kind == response.kind { bytes } else { 0 };
            }
            self.bytes.set(all);
            let now = self.start.elapsed();
            let mut awaited = self.awaited.borrow_mut();
            if let Some(wanted) = &awaited.wanted
                && response.kind == wanted.kind()
                && response.resources.iter().any(|one| {
                    let had = proxy.borrow().get(response.kind, &one.name).cloned();
                    wanted.is_in(one) && had.is_none_or(|had| !wanted.is_in(&had))
                })
            {
                awaited.came.push(now);
            }
            drop(awaited);
            for request in proxy.borrow_mut().hear(self.changed.get(), now, response)? {
                line.say(request)?;
            }
        }
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + DEADLINE;
        while !is_so(self) {
            self.is_well()?;
            if Instant::now() > deadline {
                let complete = self
                    .proxies
                    .iter()
                    .filter(|one| one.borrow().is_complete())
                    .count();
                let of = self.proxies.len();
                return Err(format!("{what}: not in time; {complete} of {of} are complete").into());
            }
            sleep(LOOK).await;
        }
        self.is_well()
    }

    fn is_well(&self) -> Result<(), Failure> {
        self.failure
            .borrow()
            .as_ref()
            .map_or(Ok(()), |why| Err(why.clone().into()))
    }

    fn is_complete(&self) -> bool {
        self.proxies
            .iter()
            .all(|proxy| proxy.borrow().is_complete())
    }

    /// Every proxy has every service with all its endpoints, and equal versions. How many clusters each has.
    fn check(&self, flags: &Run) -> Result<usize, Failure> {
        let names: Vec<String> = (0..flags.services).map(yaml::cluster).collect();
        let mut versions = BTreeSet::new();
        let mut clusters = 0;
        for (at, proxy) in self.proxies.iter().enumerate() {
            let proxy = proxy.borrow();
            for name in &names {
                let has = proxy
                    .get(Kind::Cluster, name)
                    .is_some_and(|cluster| cluster.eds);
                let count = proxy
                    .get(Kind::Endpoint, name)
                    .map_or(0, |one| one.endpoints.len());
                if !has || count != flags.endpoints {
                    return Err(format!("proxy {at} has {count} endpoints of {name}").into());
                }
            }
            if proxy.len(Kind::Endpoint) != flags.services {
                return Err(format!("proxy {at} has assignments of something else").into());
            }
            clusters = proxy.len(Kind::Cluster);
            let own = proxy.versions().map(str::to_owned);
            // Listeners name the proxy's own address.
            let [cluster, endpoint, _, route] = own;
            versions.insert((
                proxy.protocol() == Protocol::State,
                cluster,
                endpoint,
                route,
            ));
        }
        if versions.len() > 2 {
            return Err(format!("equal proxies have {} different versions", versions.len()).into());
        }
        Ok(clusters)
    }

    fn await_it(&self, wanted: Wanted) {
        *self.awaited.borrow_mut() = Awaited {
            wanted: Some(wanted),
            came: Vec::new(),
        };
    }

    /// Returns the responses that each proxy has had.
    fn responses(&self) -> Vec<[usize; 4]> {
        let all = self.proxies.iter();
        all.map(|proxy| proxy.borrow().responses()).collect()
    }

    /// Checks that each of these proxies has had one more response of a kind since `before`, and nobody anything else.
    fn had_one_each(
        &self,
        before: &[[usize; 4]],
        kind: Kind,
        proxies: impl Fn(usize) -> bool,
    ) -> Result<(), Failure> {
        for (at, (before, after)) in before.iter().zip(self.responses()).enumerate() {
            let more = |one: Kind| usize::from(one == kind && proxies(at));
            let mut wanted = *before;
            for (count, one) in wanted.iter_mut().zip(Kind::ALL) {
                *count += more(one);
            }
            if after != wanted {
                return Err(format!(
                    "proxy {at}: {before:?} to {after:?} responses and not to {wanted:?}"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Changes an endpoint: every proxy gets one response with it, and nothing else.
    async fn change(&self, flags: &Run, change: usize) -> Result<Value, Failure> {
        let service = change % flags.services;
        let last = flags.endpoints.saturating_sub(1);
        let endpoint = format!("{}:{}", yaml::address(service, last, change), yaml::PORT);
        self.await_it(Wanted::Endpoint(yaml::cluster(service), endpoint));
        let before = self.responses();
        let ran = server::ran(flags.pid)?;
        let began = self.start.elapsed();
        self.changed.set(began);
        match &flags.dir {
            Some(dir) => Directory::new(dir, flags.endpoints).put(service, change)?,
            None => announce(service, &yaml::address(service, last, change))?,
        }
        let all = |fleet: &Self| fleet.awaited.borrow().came.len() >= fleet.proxies.len();
        self.until("an endpoint's change", all).await?;
        sleep(QUIET).await;
        self.is_well()?;
        self.had_one_each(&before, Kind::Endpoint, |_| true)?;
        self.took(flags, began, ran)
    }

    /// A service goes while another comes.
    async fn exchange(&self, flags: &Run, exchange: usize) -> Result<Value, Failure> {
        let (old, new) = (flags.services - 1 - exchange, flags.services + exchange);
        self.await_it(Wanted::Cluster(yaml::cluster(new)));
        let ran = server::ran(flags.pid)?;
        let began = self.start.elapsed();
        self.changed.set(began);
        let directory = directory(flags)?;
        directory.put(new, 0)?;
        directory.remove(old)?;
        let gone = yaml::cluster(old);
        let all = |fleet: &Self| {
            fleet.awaited.borrow().came.len() >= fleet.proxies.len()
                && fleet.is_complete()
                && fleet
                    .proxies
                    .iter()
                    .all(|proxy| proxy.borrow().get(Kind::Cluster, &gone).is_none())
        };
        self.until("a service's exchange", all).await?;
        sleep(QUIET).await;
        self.is_well()?;
        self.took(flags, began, ran)
    }

    /// Changes a rule of the first proxy's namespace: each proxy of it gets one response with it, and nobody else a byte.
    async fn rule(&self, flags: &Run, change: usize) -> Result<Value, Failure> {
        let is_concerned =
            |at: usize| namespace(at, flags.namespaces) == namespace(0, flags.namespaces);
        let concerned = (0..self.proxies.len())
            .filter(|at| is_concerned(*at))
            .count();
        self.await_it(Wanted::Route(yaml::route(change)));
        let before = self.responses();
        let ran = server::ran(flags.pid)?;
        let began = self.start.elapsed();
        self.changed.set(began);
        let directory = directory(flags)?;
        directory.put_rule(&namespace(0, flags.namespaces), change)?;
        let all = |fleet: &Self| fleet.awaited.borrow().came.len() >= concerned;
        self.until("a rule's change", all).await?;
        sleep(QUIET).await;
        self.is_well()?;
        self.had_one_each(&before, Kind::Route, is_concerned)?;
        self.took(flags, began, ran)
    }

    /// Returns the times at which half and all of the proxies had the change, and its cost.
    fn took(&self, flags: &Run, began: Duration, ran: Duration) -> Result<Value, Failure> {
        let mut came = self.awaited.borrow().came.clone();
        came.sort_unstable();
        let after = |at: usize| came.get(at).map(|came| millis(came.saturating_sub(began)));
        Ok(json!({
            "last_ms": after(came.len().saturating_sub(1)), "half_ms": after(came.len() / 2), "first_ms": after(0),
            "processor_ms": millis(server::ran(flags.pid)?.saturating_sub(ran)),
        }))
    }
}

/// The directory that the server serves, for changes that the caller makes for nobody.
fn directory(flags: &Run) -> Result<Directory, Failure> {
    let dir = flags.dir.as_deref();
    let dir = dir.ok_or("services and rules are changed in a directory: name it with --dir")?;
    Ok(Directory::new(dir, flags.endpoints))
}

/// Asks the caller to change the last endpoint of a service.
fn announce(service: usize, address: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "change {service} {address}")?;
    Ok(stdout.flush()?)
}

/// The namespace of a proxy: `demo`, or one of so many others.
fn namespace(at: usize, namespaces: usize) -> String {
    match at.checked_rem(namespaces) {
        Some(number) => format!("n{number}"),
        None => "demo".to_owned(),
    }
}

/// A sidecar; each has an address of its own.
fn node(at: usize, namespaces: usize) -> Node {
    let address = format!("10.200.{}.{}", at >> 8 & 255, at & 255);
    let namespace = namespace(at, namespaces);
    Node {
        id: format!("sidecar~{address}~load-{at}.{namespace}~{namespace}.svc.cluster.local"),
        ..Node::default()
    }
}
