//! Rules that change while the server is away, under load: the proxies that come back have clusters that are gone, and lack new ones.

use std::net::{Ipv4Addr, SocketAddr};

use crate::backend::{Backend, Load};
use crate::place::{Address, Discovery, Place, documents, until};
use crate::proxy::{Proxy, Setup, in_sync};
use crate::relay::Relay;

const PORT: u16 = 18191;

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: demo}}\nspec: {spec}\n"
    )
}

fn service(name: &str, resolution: &str, ip: Ipv4Addr, backend: u16) -> String {
    let spec = format!(
        "{{hosts: [{name}.demo.svc.cluster.local], location: MESH_INTERNAL, resolution: {resolution}, \
         ports: [{{number: {PORT}, name: main, protocol: HTTP}}], \
         endpoints: [{{address: {ip}, ports: {{main: {backend}}}, labels: {{version: v1}}}}]}}"
    );
    object("ServiceEntry", name, &spec)
}

/// A route to the last of these subsets.
fn route(name: &str, turn: usize, subsets: impl Iterator<Item = usize>) -> [String; 2] {
    let subsets: Vec<_> = subsets
        .map(|subset| format!("{{name: s{subset}, labels: {{version: v1}}}}"))
        .collect();
    let subsets = format!("{{host: {name}, subsets: [{}]}}", subsets.join(", "));
    let routes = format!(
        "{{hosts: [{name}], http: [{{name: {name}-turn-{turn}, route: [{{destination: {{host: {name}, subset: s{turn}}}}}]}}]}}"
    );
    [
        object("DestinationRule", name, &subsets),
        object("VirtualService", name, &routes),
    ]
}

/// The only subset of one service has another name at each turn, and the other service gets one more.
fn rules(turn: usize) -> String {
    let renamed = route("renamed", turn, turn..=turn);
    let added = route("added", turn, 0..=turn);
    documents(&[renamed, added].concat())
}

/// The service whose cluster needs no assignment, and whose requests go to another at each turn but the first.
const PLAIN: &str = "plain";

fn first_assignments(turn: usize, ip: Ipv4Addr, backend: u16) -> String {
    let target = format!("turn-{turn}");
    let spec = format!(
        "{{hosts: [{PLAIN}], http: [{{name: {PLAIN}-turn-{turn}, route: [{{destination: {{host: {}}}}}]}}]}}",
        if turn == 0 { PLAIN } else { &target }
    );
    let mut all = vec![object("VirtualService", PLAIN, &spec)];
    if turn > 0 {
        all.push(service(&target, "STATIC", ip, backend));
    }
    documents(&all)
}

/// The configuration of a mesh.
struct Config {
    services: Vec<String>,
    /// The rest of each turn.
    rules: Box<dyn Fn(usize) -> String>,
    /// The services whose routes have a name that tells the turn.
    routed: &'static [&'static str],
}

/// Two proxies and their discovery, which can be away.
struct Mesh {
    discovery: Discovery,
    config: Config,
    relays: [Relay; 2],
    state: Proxy,
    delta: Proxy,
    /// Addresses of the services, and of discovery.
    _addresses: [Address; 2],
}

impl Mesh {
    /// A mesh whose clusters all need assignments.
    fn of_assignments() -> Self {
        Self::start(|ip, backend| Config {
            services: ["renamed", "added"]
                .map(|name| service(name, "STATIC", ip, backend))
                .into(),
            rules: Box::new(rules),
            routed: &["renamed", "added"],
        })
    }

    fn start(config: impl FnOnce(Ipv4Addr, u16) -> Config) -> Self {
        let (ip, own) = (Address::new(), Address::new());
        let backend = Backend::new(ip.ip, "v1");
        let config = config(ip.ip, backend.port);
        let at = SocketAddr::from((own.ip, 15010));
        let discovery = Place::new()
            .with("config/services.yaml", &documents(&config.services))
            .with("config/rules.yaml", &(config.rules)(0))
            .arg(&format!("--grpcAddr={at}"))
            .start();
        let relays = [Relay::new(at), Relay::new(at)];
        let state = Setup::new("state", relays[0].port).start();
        let delta = Setup::new("delta", relays[1].port).delta().start();
        let this = Self {
            discovery,
            config,
            relays,
            state,
            delta,
            _addresses: [ip, own],
        };
        this.until_known(0);
        this
    }

    fn proxies(&self) -> [&Proxy; 2] {
        [&self.state, &self.delta]
    }

    fn change(&self, turn: usize) {
        self.discovery
            .place
            .write("config/rules.yaml", &(self.config.rules)(turn));
    }

    /// Until both proxies have the routes of this turn.
    fn until_known(&self, turn: usize) {
        for proxy in self.proxies() {
            until(&format!("turn {turn} at {}", proxy.name), || {
                let known = proxy.ask("/config_dump?resource=dynamic_route_configs");
                let mut routed = self.config.routed.iter();
                routed
                    .all(|name| known.contains(&format!("\"{name}-turn-{turn}\"")))
                    .then_some(())
            });
        }
    }

    /// Lets both proxies have the new clusters of this turn, without their assignments.
    fn begin(&self, turn: usize) {
        self.relays.iter().for_each(|relay| relay.stop_after(1));
        self.change(turn);
        for proxy in self.proxies() {
            until(&format!("clusters that warm at {}", proxy.name), || {
                (proxy.stat("cluster_manager.warming_clusters") > 0).then_some(())
            });
        }
    }

    /// Kills discovery; the next one has the rules of this turn.
    fn pass(&mut self, turn: usize) {
        self.discovery.kill();
        self.relays.iter().for_each(Relay::cut);
        self.change(turn);
        self.discovery.again();
        self.until_known(turn);
        in_sync(&self.discovery, "delta");
    }

    /// In state of the world the server does not know what a proxy has that is gone, so nothing asks for the renamed one there.
    fn loads(&self) -> [Load; 3] {
        let of = |proxy: &Proxy, host| Load::new(proxy.ip, host, PORT);
        [
            of(&self.state, "added"),
            of(&self.delta, "added"),
            of(&self.delta, "renamed"),
        ]
    }
}

#[test]
fn rules_that_change_while_the_server_is_away_lose_no_request() {
    let mut mesh = Mesh::of_assignments();
    let loads = mesh.loads();
    for turn in 1..=4 {
        mesh.pass(turn);
    }
    let gone = format!("outbound|{PORT}|s3|renamed.demo.svc.cluster.local");
    until("the last subset is gone", || {
        (!mesh.delta.knows(&gone)).then_some(())
    });
    for load in loads {
        load.end_after(50);
    }
}

/// Their proxies ask the next server for all but clusters, until they have the assignments of those that warm.
#[test]
fn rules_that_change_while_clusters_warm_lose_no_request() {
    let mut mesh = Mesh::of_assignments();
    let loads = mesh.loads();
    for turn in [1, 3, 5] {
        mesh.begin(turn);
        mesh.pass(turn + 1);
    }
    for load in loads {
        load.end_after(50);
    }
}

/// Their proxies ask the next server for listeners and routes first, and for assignments behind them.
#[test]
fn rules_that_change_while_the_first_assignments_are_awaited_lose_no_request() {
    let mut mesh = Mesh::start(|ip, backend| Config {
        services: vec![service(PLAIN, "DNS", ip, backend)],
        rules: Box::new(move |turn| first_assignments(turn, ip, backend)),
        routed: &[PLAIN],
    });
    let loads = mesh.proxies().map(|proxy| Load::new(proxy.ip, PLAIN, PORT));
    mesh.begin(1);
    mesh.pass(2);
    for load in loads {
        load.end_after(50);
    }
}
