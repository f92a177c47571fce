//! Small worlds, one for each part of what a proxy may be given: goldens are made of them, and the real Envoy reads them.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::semicolon_if_nothing_returned,
    clippy::too_many_lines,
    reason = "each test takes what it needs of it, and may panic"
)]

pub mod bootstrap;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::istio::mesh::v1alpha1::MeshConfig;
use api::mesh;
use api::model::{
    Configured, Endpoint, EndpointAddress, EndpointShards, Labels, Locality, Port, Protocol,
    Registry, Resolution, Service, ServiceKey, Target, TlsMode, World,
};
use api::networking::{
    DestinationRule, DiscoveryKind as Rule, EnvoyFilter, Gateway, Sidecar, VirtualService,
};
use api::security::{
    AuthorizationPolicy, JwksSource, KeySet, PeerAuthentication, RequestAuthentication,
};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};
use xds::node::Node;
use xds::settings::Settings;

/// A proxy in a world.
pub struct Row {
    pub name: &'static str,
    pub world: World,
    pub node: Arc<Node>,
}

pub fn settings() -> Arc<Settings> {
    Arc::new(Settings::default())
}

pub fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}

fn text(text: &str) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    }
}

/// `metadata`: `NAME=value`, and `label:NAME=value`.
pub fn node(id: &str, metadata: &[&str], certificates: &str) -> Arc<Node> {
    let mut fields = BTreeMap::new();
    let mut labels = BTreeMap::new();
    for entry in metadata {
        let (name, value) = entry.split_once('=').unwrap();
        match name.strip_prefix("label:") {
            Some(name) => labels.insert(name.to_owned(), text(value)),
            None => fields.insert(name.to_owned(), text(value)),
        };
    }
    let labels = Struct {
        fields: labels.into_iter().collect(),
    };
    fields.insert(
        "LABELS".to_owned(),
        Value {
            kind: Some(Kind::StructValue(labels)),
        },
    );
    for side in ["SERVER", "CLIENT"] {
        for (what, file) in [
            ("CERT_CHAIN", "cert-chain"),
            ("KEY", "key"),
            ("ROOT_CERT", "root-cert"),
        ] {
            let path = format!("{certificates}/{file}.pem");
            fields.insert(format!("TLS_{side}_{what}"), text(&path));
        }
    }
    let read = Node::read(Some(&core::Node {
        id: id.to_owned(),
        metadata: Some(Struct {
            fields: fields.into_iter().collect(),
        }),
        ..core::Node::default()
    }));
    Arc::new(read.unwrap())
}

pub fn mesh(text: &str) -> Arc<MeshConfig> {
    let parsed = mesh::parse_over(&mesh::discovery_defaults(), text).unwrap();
    assert_eq!(parsed.warnings, Vec::<String>::new(), "{text}");
    Arc::new(parsed.config)
}

pub struct Builder(pub World);

/// A service that is being described.
pub struct Described<'a> {
    world: &'a mut World,
    service: Service,
    endpoints: Vec<Endpoint>,
}

impl Builder {
    pub fn new(mesh_config: &str) -> Self {
        Self(World::new(mesh(mesh_config)))
    }

    /// `ports`: `80/HTTP`.
    pub fn service(&mut self, name: &str, ports: &[&str], resolution: Resolution) -> Described<'_> {
        let hostname = if name.contains('.') {
            name.to_owned()
        } else {
            format!("{name}.demo.svc.cluster.local")
        };
        let ports = ports.iter().map(|port| {
            let (number, word) = port.split_once('/').unwrap();
            Port {
                name: format!("p{number}").as_str().into(),
                number: number.parse().unwrap(),
                protocol: Protocol::of_service_entry(word).unwrap(),
                target: Target::Number(number.parse().unwrap()),
            }
        });
        let service = Service {
            key: ServiceKey::new(&hostname, "demo"),
            registry: Registry::External,
            ports: ports.collect(),
            addresses: BTreeMap::new(),
            cluster: "Kubernetes".into(),
            resolution,
            mesh_external: false,
            selector: Labels::new(),
            created: Some(i64::try_from(self.0.services.len()).unwrap()),
            accounts: BTreeSet::new(),
            prefers_close: false,
            exported_to: Vec::new(),
            balancers: BTreeMap::new(),
        };
        Described {
            world: &mut self.0,
            service,
            endpoints: Vec::new(),
        }
    }

    pub fn networks(&mut self, text: &str) {
        self.0.networks = Arc::new(mesh::parse_networks(text).unwrap().config);
    }

    pub fn sidecar(&mut self, text: &str) {
        let (key, sidecar) = configured::<Sidecar>("own", text);
        Arc::make_mut(&mut self.0.sidecars).insert(key, sidecar);
    }

    pub fn gateway(&mut self, name: &str, text: &str) {
        let (key, gateway) = configured::<Gateway>(name, text);
        Arc::make_mut(&mut self.0.gateways).insert(key, gateway);
    }

    pub fn virtual_service(&mut self, name: &str, text: &str) {
        let (key, rule) = configured::<VirtualService>(name, text);
        Arc::make_mut(&mut self.0.virtual_services).insert(key, rule);
    }

    pub fn destination_rule(&mut self, name: &str, text: &str) {
        let (key, rule) = configured::<DestinationRule>(name, text);
        Arc::make_mut(&mut self.0.destination_rules).insert(key, rule);
    }

    pub fn peer_authentication(&mut self, name: &str, text: &str) {
        let (key, rule) = configured::<PeerAuthentication>(name, text);
        Arc::make_mut(&mut self.0.peer_authentications).insert(key, rule);
    }
}

/// Patches of each kind, with filters that users have.
const PATCHES: &str = include_str!("../../../../tests/data/envoy-filter.yaml");

type Keyed<T> = ((Arc<str>, Arc<str>), Arc<Configured<T>>);

/// A valid object of the namespace `demo`.
fn configured<T: Rule>(name: &str, text: &str) -> Keyed<T> {
    checked(name, text).unwrap()
}

fn checked<T: Rule>(name: &str, text: &str) -> Result<Keyed<T>, String> {
    let limits = api::yaml::Limits {
        bytes: 1_000_000,
        depth: 20,
        nodes: 100_000,
    };
    let spec: String = text.lines().map(|line| format!("  {line}\n")).collect();
    let object = format!(
        "apiVersion: {}/{}\nkind: {}\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n{spec}",
        T::GROUP,
        T::VERSIONS[0],
        T::NAME
    );
    let node = api::yaml::read(&object, limits).map_err(|error| error.to_string())?;
    let checked = api::networking::check::<T>(&node.unwrap().to_json());
    let spec = checked
        .spec
        .ok_or_else(|| format!("{object}: {:?}", checked.findings))?;
    let one = Configured {
        name: name.into(),
        namespace: "demo".into(),
        created: None,
        prefers_close: false,
        dry_run: false,
        spec,
    };
    Ok((("demo".into(), name.into()), Arc::new(one)))
}

impl Described<'_> {
    pub fn with(mut self, change: impl FnOnce(&mut Service)) -> Self {
        change(&mut self.service);
        self
    }

    pub fn kubernetes(self) -> Self {
        self.with(|service| service.registry = Registry::Kubernetes)
    }

    pub fn at(self, addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        self.with(|service| {
            service.addresses.insert("Kubernetes".into(), addresses);
        })
    }

    pub fn selects(self, pairs: &[(&str, &str)]) -> Self {
        let pairs = labels(pairs);
        self.with(|service| service.selector = pairs)
    }

    /// `ADDRESS PORT PORTNAME`.
    pub fn endpoint(self, place: &str) -> Self {
        self.endpoint_with(place, |_| ())
    }

    pub fn endpoint_with(mut self, place: &str, change: impl FnOnce(&mut Endpoint)) -> Self {
        let [address, port, name] = place.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{place}");
        };
        let mut endpoint =
            Endpoint::new(EndpointAddress::read(address), port.parse().unwrap(), name);
        change(&mut endpoint);
        self.endpoints.push(endpoint);
        self
    }

    pub fn end(self) {
        let key = self.service.key.clone();
        let shards = EndpointShards::from([("Kubernetes".into(), self.endpoints.into())]);
        Arc::make_mut(&mut self.world.endpoints).insert(key.clone(), Arc::new(shards));
        Arc::make_mut(&mut self.world.services).insert(key, Arc::new(self.service));
    }
}

const KEEPALIVE: &str = "tcpKeepalive: {probes: 3, time: 10s, interval: 5s}\n";
const ID: &str = "sidecar~10.0.0.1~a-1.demo~demo.svc.cluster.local";

/// Every kind of port, with and without addresses.
fn all_ports(builder: &mut Builder) {
    use Resolution::{Dns, DnsRoundRobin, None, Static};
    for (name, port) in [
        ("http", "80/HTTP"),
        ("http2", "80/HTTP2"),
        ("grpc", "8081/GRPC"),
        ("web", "8082/GRPC-WEB"),
        ("tcp", "9000/TCP"),
        ("mongo", "27017/MONGO"),
        ("tls", "9443/TLS"),
        ("https", "443/HTTPS"),
        ("auto", "7000/"),
    ] {
        let name_of_port = format!("p{}", port.split_once('/').unwrap().0);
        let place = |last: u8| format!("10.1.0.{last} 1{} {name_of_port}", last + 100);
        builder
            .service(name, &[port], Static)
            .endpoint(&place(1))
            .endpoint(&place(2))
            .end();
        let with_address = format!("{name}-at");
        builder
            .service(&with_address, &[port], Static)
            .at(&["10.2.0.1", "2001:db8::1"])
            .endpoint(&place(3))
            .end();
        let (number, word) = port.split_once('/').unwrap();
        let elsewhere = format!("{}/{word}", number.parse::<u16>().unwrap() + 1000);
        builder
            .service(&format!("{name}-range"), &[&elsewhere], None)
            .at(&["10.3.0.0/16", "10.4.0.0/16"])
            .end();
    }
    builder
        .service("headless", &["6000/TCP", "6001/HTTP", "6002/"], None)
        .kubernetes()
        .endpoint("10.5.0.1 6000 p6000")
        .endpoint("10.0.0.1 6000 p6000")
        .endpoint("10.5.0.1 6002 p6002")
        .end();
    builder
        .service("*.wild.example", &["443/TLS", "80/HTTP"], None)
        .end();
    builder.service("dns.example", &["5000/HTTP"], Dns).end();
    builder
        .service("names.example", &["5001/HTTP"], Dns)
        .endpoint("x.example 80 p5001")
        .endpoint("10.6.0.1 80 p5001")
        .end();
    builder
        .service("robin.example", &["5002/TCP"], DnsRoundRobin)
        .endpoint("y.example 80 p5002")
        .end();
    builder
        .service("pipe", &["5003/HTTP"], Static)
        .endpoint("unix:///run/pipe 0 p5003")
        .end();
}

fn own_services(builder: &mut Builder) {
    builder
        .service(
            "own",
            &["80/HTTP", "81/", "82/TCP", "83/GRPC"],
            Resolution::Static,
        )
        .kubernetes()
        .selects(&[("app", "a")])
        .endpoint("10.0.0.1 8080 p80")
        .end();
}

/// Every field of VirtualServices and DestinationRules that has an effect.
fn rules(builder: &mut Builder) {
    own_services(builder);
    let version = |version: &'static str| {
        move |e: &mut Endpoint| e.labels = Arc::new(labels(&[("version", version)]))
    };
    for name in ["b", "c", "d", "e", "f", "g"] {
        builder
            .service(
                name,
                &["80/HTTP", "90/TCP", "91/", "92/GRPC"],
                Resolution::Static,
            )
            .endpoint_with("10.1.0.1 80 p80", version("v1"))
            .endpoint_with("10.1.0.2 80 p80", version("v2"))
            .end();
    }
    builder
        .service("out.example", &["443/HTTP"], Resolution::Dns)
        .with(|service| service.mesh_external = true)
        .end();
    let subsets = "subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}, \
                   trafficPolicy: {loadBalancer: {simple: RANDOM}}}]";
    let pool = "connectionPool: {tcp: {maxConnections: 5, connectTimeout: 3s, tcpKeepalive: {probes: 4, time: 9s, interval: 2s}, \
                maxConnectionDuration: 1h}, http: {http1MaxPendingRequests: 6, http2MaxRequests: 7, maxRetries: 8, \
                maxRequestsPerConnection: 9, idleTimeout: 10s, h2UpgradePolicy: UPGRADE, maxConcurrentStreams: 11, \
                http2KeepAlive: {interval: 30s, timeout: 5s}}}";
    let detection = "outlierDetection: {consecutive5xxErrors: 7, consecutiveGatewayErrors: 0, interval: 5m, baseEjectionTime: 15s, \
                     maxEjectionPercent: 50, minHealthPercent: 30, splitExternalLocalOriginErrors: true, \
                     consecutiveLocalOriginFailures: 4}";
    for (name, policy) in [
        ("b", format!("loadBalancer: {{simple: LEAST_REQUEST}}, {pool}, {detection}")),
        (
            "c",
            "loadBalancer: {consistentHash: {httpCookie: {name: user, path: /, ttl: 60s}, maglev: {tableSize: 65537}}}, tls: {mode: ISTIO_MUTUAL}"
                .to_owned(),
        ),
        (
            "d",
            "loadBalancer: {consistentHash: {httpHeaderName: x-user, minimumRingSize: 99999999}}, connectionPool: {http: {useClientProtocol: true}}"
                .to_owned(),
        ),
        ("e", "loadBalancer: {simple: PASSTHROUGH}, tls: {mode: DISABLE}".to_owned()),
        (
            "f",
            "loadBalancer: {simple: ROUND_ROBIN, localityLbSetting: {distribute: [{from: '*', to: {'*': 100}}]}}, \
             outlierDetection: {consecutiveErrors: 3}"
                .to_owned(),
        ),
        ("g", "loadBalancer: {consistentHash: {useSourceIp: true}}".to_owned()),
        ("out.example", "tls: {mode: SIMPLE, subjectAltNames: [out.example]}".to_owned()),
    ] {
        let rule = name.replace('.', "-");
        builder.destination_rule(&rule, &format!("host: {name}\ntrafficPolicy: {{{policy}}}\n{subsets}"));
    }
    builder.virtual_service(
        "b",
        "hosts: [b, alone.example, '*.wild.example']\nhttp:\n\
         - {name: first, match: [{name: one, uri: {exact: /x}, headers: {a: {exact: b}, c: {regex: 'd+'}, e: {}}, \
            withoutHeaders: {f: {prefix: g}}, method: {exact: GET}, scheme: {exact: http}, authority: {prefix: b}, \
            queryParams: {q: {exact: r}}, ignoreUriCase: true}], \
            rewrite: {uri: /y, authority: other.example}, timeout: 5s, \
            retries: {attempts: 3, perTryTimeout: 1s, retryOn: 'gateway-error,404', retryRemoteLocalities: true, backoff: 20ms}, \
            route: [{destination: {host: b, subset: v1}, weight: 90, headers: {request: {set: {a: b}}}}, \
             {destination: {host: b, subset: v2}, weight: 10}]}\n\
         - {match: [{uri: {regex: '/r.*'}}], rewrite: {uriRegexRewrite: {match: '^/r(.*)$', rewrite: '/s\\1'}}, \
            route: [{destination: {host: c}}]}\n\
         - {match: [{uri: {prefix: /redirect}}], redirect: {uri: '%PREFIX()%/to', authority: d.example, scheme: https, port: 8443, redirectCode: 308}}\n\
         - {match: [{uri: {prefix: /answer}}], directResponse: {status: 503, body: {string: closed}}}\n\
         - {match: [{uri: {prefix: /fault}}], fault: {delay: {fixedDelay: 1s, percentage: {value: 0.1}}, abort: {grpcStatus: UNAVAILABLE, percentage: {value: 50}}}, \
            corsPolicy: {allowOrigins: [{exact: 'https://d.example'}], allowMethods: [GET], maxAge: 1h, allowCredentials: true, unmatchedPreflights: FORWARD}, \
            mirrors: [{destination: {host: d}, percentage: {value: 10}}], \
            headers: {request: {add: {a: b}, remove: [c]}, response: {set: {d: e}, remove: [f]}}, \
            route: [{destination: {host: g}}]}\n\
         - {mirror: {host: e}, route: [{destination: {host: gone.example}}]}\n",
    );
}

/// A proxy with patches of each kind: no golden, for it is users who say what is in it.
pub fn patched(certificates: &str) -> Row {
    let mut builder = Builder::new("enableAutoMtls: true\n");
    all_ports(&mut builder);
    own_services(&mut builder);
    let (key, filter) = configured::<EnvoyFilter>("f", PATCHES);
    Arc::make_mut(&mut builder.0.envoy_filters).insert(key, filter);
    let metadata = ["label:app=a", "label:security.istio.io/tlsMode=istio"];
    Row {
        name: "envoy-filters",
        world: builder.0,
        node: node(ID, &metadata, certificates),
    }
}

/// Endpoints as heavy as can be in several localities, and balancers that add their weights up.
pub fn heavy(certificates: &str) -> Row {
    let mut builder = Builder::new("");
    for (name, resolution, policy) in [
        (
            "ring",
            Resolution::Static,
            "consistentHash: {useSourceIp: true}",
        ),
        (
            "ring-dns",
            Resolution::Dns,
            "consistentHash: {useSourceIp: true}",
        ),
        (
            "maglev",
            Resolution::Static,
            "consistentHash: {useSourceIp: true, maglev: {}}",
        ),
        ("robin", Resolution::Static, "simple: ROUND_ROBIN"),
    ] {
        let mut service = builder.service(name, &["80/HTTP"], resolution);
        for (at, region) in ["a", "a", "b", "c"].iter().enumerate() {
            let weight = if at == 1 { 1 } else { u32::MAX };
            service = service.endpoint_with(&format!("10.1.0.{at} 80 p80"), |endpoint| {
                (endpoint.weight, endpoint.locality) = (weight, Locality::from(*region));
            });
        }
        service.end();
        let rule = format!("host: {name}\ntrafficPolicy: {{loadBalancer: {{{policy}}}}}");
        builder.destination_rule(name, &rule);
    }
    Row {
        name: "heavy",
        world: builder.0,
        node: node(ID, &[], certificates),
    }
}

/// One row for each way in which a proxy can stand in the mesh.
pub fn rows(certificates: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add =
        |name: &'static str, mesh: &str, metadata: &[&str], fill: &dyn Fn(&mut Builder)| {
            let mut builder = Builder::new(mesh);
            fill(&mut builder);
            let id = if name.starts_with("router") {
                ID.replacen("sidecar", "router", 1)
            } else {
                ID.to_owned()
            };
            rows.push(Row {
                name,
                world: builder.0,
                node: node(&id, metadata, certificates),
            });
        };
    let ports_and_own = |builder: &mut Builder| {
        all_ports(builder);
        own_services(builder);
    };
    add("redirect", KEEPALIVE, &["label:app=a"], &ports_and_own);
    add(
        "tproxy",
        "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\nproxyHttpPort: 15080\naccessLogFile: /dev/stdout\n\
         outboundClusterStatName: '%SERVICE%_%SERVICE_PORT_NAME%_%SERVICE_PORT%'\ninboundClusterStatName: '%SERVICE_FQDN%'\n",
        &[
            "INTERCEPTION_MODE=TPROXY",
            "INSTANCE_IPS=10.0.0.1,2001:db8::a",
            "label:app=a",
            "HTTP10=1",
            "IDLE_TIMEOUT=30s",
        ],
        &ports_and_own,
    );
    add(
        "none",
        "accessLogFile: /tmp/log\naccessLogEncoding: JSON\nenableTracing: false\n",
        &["INTERCEPTION_MODE=NONE", "label:app=a"],
        &|builder: &mut Builder| {
            ports_and_own(builder);
            builder.sidecar(
                "workloadSelector: {labels: {app: a}}\ningress:\n\
                 - {port: {number: 8080, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:80'}\n\
                 - {port: {number: 8081, protocol: TCP, name: tcp}, bind: 127.0.0.9, defaultEndpoint: 'unix:///run/app'}\n",
            );
        },
    );
    for (name, mesh) in [
        (
            "mutual-auto",
            "enableAutoMtls: true\nenableEnvoyAccessLogService: true\ndefaultConfig: {envoyAccessLogService: {address: \
             'logs.example:15000', tlsSettings: {mode: ISTIO_MUTUAL, subjectAltNames: [logs]}}}\n",
        ),
        (
            "mutual-strict",
            "authPolicy: MUTUAL_TLS\naccessLogFile: /dev/stderr\naccessLogEncoding: JSON\n",
        ),
    ] {
        add(
            name,
            mesh,
            &["label:app=a", "label:security.istio.io/tlsMode=istio"],
            &|builder: &mut Builder| {
                own_services(builder);
                builder
                    .service("b", &["80/HTTP", "90/TCP", "91/"], Resolution::Static)
                    .with(|service| {
                        service.accounts =
                            BTreeSet::from(["spiffe://cluster.local/ns/demo/sa/z".into()])
                    })
                    .endpoint_with("10.1.0.1 80 p80", |endpoint| {
                        endpoint.tls = TlsMode::Istio;
                        endpoint.account = Some("spiffe://cluster.local/ns/demo/sa/b".into());
                        endpoint.pod = Some("demo/b-1".into());
                        endpoint.network = Some("west".into());
                    })
                    .endpoint("10.1.0.2 80 p80")
                    .end();
                builder
                    .service("out.example", &["80/HTTP"], Resolution::Dns)
                    .with(|service| service.mesh_external = true)
                    .end();
            },
        );
    }
    let places = |builder: &mut Builder| {
        builder
            .service("b", &["80/HTTP"], Resolution::Static)
            .endpoint_with("10.1.0.1 80 p80", |e| {
                e.locality = Locality::from("eu/west/a")
            })
            .endpoint_with("10.1.0.2 80 p80", |e| {
                e.locality = Locality::from("eu/west/b")
            })
            .endpoint_with("10.1.0.3 80 p80", |e| {
                e.locality = Locality::from("eu/east/a")
            })
            .endpoint_with("10.1.0.4 80 p80", |e| {
                (e.weight, e.locality) = (3, Locality::from("us/west"))
            })
            .endpoint_with("10.0.0.1 80 p80", |e| {
                e.locality = Locality::from("eu/west/a")
            })
            .end();
    };
    add(
        "near",
        "localityLbSetting: {enabled: true, failover: [{from: eu, to: asia}]}\n",
        &[],
        &places,
    );
    add(
        "shares",
        "localityLbSetting: {enabled: true, distribute: [{from: 'eu/west/*', to: {'eu/*': 75, 'us/west': 25}}]}\n",
        &[],
        &places,
    );
    add(
        "networks",
        "enableAutoMtls: true\n",
        &["NETWORK=one"],
        &|builder: &mut Builder| {
            builder.networks(
            "networks:\n  one: {endpoints: [{fromCidr: 10.1.0.0/16}], gateways: []}\n\
             \x20 two: {endpoints: [{fromCidr: 10.2.0.0/16}], gateways: [{address: 198.51.100.1, port: 443}]}\n\
             \x20 three: {endpoints: [{fromCidr: 10.3.0.0/16}], gateways: [{address: 198.51.100.2, port: 443}, {address: 198.51.100.3, port: 444}]}\n",
        );
            builder
                .service("b", &["80/HTTP"], Resolution::Static)
                .endpoint("10.1.0.1 80 p80")
                .endpoint_with("10.2.0.1 80 p80", |e| e.weight = 2)
                .endpoint("10.2.0.2 80 p80")
                .endpoint("10.3.0.1 80 p80")
                .end();
        },
    );
    add("rules", "enableAutoMtls: true\n", &["label:app=a"], &rules);
    add(
        "sidecar",
        "",
        &["INSTANCE_IPS=10.0.0.1,2001:db8::a", "label:app=a"],
        &|builder: &mut Builder| {
            ports_and_own(builder);
            builder.sidecar(
                "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: tcp, port: {number: 9000}}}\negress:\n\
                 - {port: {number: 80, protocol: HTTP, name: one}, bind: 127.0.0.7, captureMode: NONE, hosts: [./http.demo.svc.cluster.local]}\n\
                 - {port: {number: 9443, protocol: TLS, name: two}, bind: 10.7.0.1, hosts: ['*/*']}\n\
                 - {port: {number: 7000, protocol: TCP, name: three}, hosts: ['*/*']}\n\
                 - {port: {number: 3128, protocol: HTTP_PROXY, name: four}, captureMode: NONE, hosts: ['*/*']}\n\
                 - {hosts: ['./*.demo.svc.cluster.local', '~demo/https.demo.svc.cluster.local']}\n",
            );
        },
    );
    add("router", KEEPALIVE, &[], &|builder: &mut Builder| {
        all_ports(builder)
    });
    add(
        "router-gateways",
        "enableAutoMtls: true\naccessLogFile: /dev/stdout\n",
        &["istio=edge", "INSTANCE_IPS=10.0.0.1,2001:db8::a"],
        &|builder: &mut Builder| gateways(builder, certificates),
    );
    rows
}

/// Every kind of server, and rules for each.
fn gateways(builder: &mut Builder, certificates: &str) {
    rules(builder);
    let files = format!(
        "serverCertificate: {certificates}/cert-chain.pem, privateKey: {certificates}/key.pem, caCertificates: {certificates}/root-cert.pem"
    );
    let server = |number: u16, protocol: &str, hosts: &str, tls: &str| {
        let name = protocol.to_ascii_lowercase();
        format!(
            "- {{port: {{number: {number}, name: {name}-{number}, protocol: {protocol}}}, hosts: {hosts}{tls}}}\n"
        )
    };
    let spec =
        |servers: &[String]| format!("selector: {{istio: edge}}\nservers:\n{}", servers.concat());
    let pins = "subjectAltNames: ['spiffe://a', a.example], minProtocolVersion: TLSV1_0, maxProtocolVersion: TLSV1_3, \
                cipherSuites: [ECDHE-ECDSA-AES128-GCM-SHA256, DES-CBC3-SHA], \
                verifyCertificateSpki: ['eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=']";
    builder.gateway(
        "one",
        &spec(&[
            server(
                80,
                "HTTP",
                "[b.example, 'demo/*.example', 10.0.0.9, '2001:db8::9']",
                ", tls: {httpsRedirect: true}",
            ),
            server(8080, "GRPC-WEB", "['*']", ""),
            server(
                443,
                "HTTPS",
                "[b.example, '*.wild.example']",
                &format!(", tls: {{mode: SIMPLE, {files}}}"),
            ),
            server(
                8443,
                "HTTPS",
                "['*']",
                &format!(", tls: {{mode: MUTUAL, {files}, {pins}}}"),
            ),
            server(9443, "TLS", "['*']", ", tls: {mode: PASSTHROUGH}"),
            server(
                15443,
                "TLS",
                "['*.local']",
                ", tls: {mode: AUTO_PASSTHROUGH}",
            ),
            server(9000, "TCP", "['*']", ""),
        ]),
    );
    builder.gateway(
        "two",
        &spec(&[
            server(80, "HTTP", "['*']", ""),
            server(8081, "HTTP", "['*']", ", bind: 127.0.0.1"),
            server(
                443,
                "HTTPS",
                "[mesh.example]",
                ", tls: {mode: ISTIO_MUTUAL}",
            ),
            server(
                443,
                "TLS",
                "[tls.example]",
                &format!(", tls: {{mode: OPTIONAL_MUTUAL, {files}}}"),
            ),
            server(
                9443,
                "TLS",
                "[auto.example]",
                ", tls: {mode: AUTO_PASSTHROUGH}",
            ),
        ]),
    );
    builder.virtual_service(
        "edge",
        "hosts: [b.example, x.example, '*.wild.example', 10.0.0.9, '2001:db8::9']\ngateways: [one, two, mesh]\nhttp:\n\
         - {match: [{uri: {prefix: /x}}], route: [{destination: {host: b, port: {number: 80}}}]}\n\
         - {match: [{gateways: [two], port: 80}], route: [{destination: {host: c, port: {number: 80}}}]}\n\
         - {route: [{destination: {host: d, port: {number: 80}}}]}\n\
         tls:\n\
         - {match: [{sniHosts: [b.example, x.example, '*.wild.example'], port: 9443}], route: [{destination: {host: b, port: {number: 90}}}]}\n\
         tcp:\n\
         - {match: [{port: 9000, destinationSubnets: [10.0.0.0/8, '2001:db8::/32']}], route: [{destination: {host: b, port: {number: 90}}}]}\n\
         - {route: [{destination: {host: c, port: {number: 90}}, weight: 40}, {destination: {host: d, port: {number: 90}}, weight: 60}]}\n",
    );
    builder.virtual_service(
        "tls",
        "hosts: [tls.example]\ngateways: [demo/two]\ntcp: [{route: [{destination: {host: b, port: {number: 90}}}]}]",
    );
}

/// A world with one rule; `None` where the rules refuse it.
pub fn with_rule(kind: &str, spec: &str, certificates: &str) -> Option<Row> {
    let mesh_config = match kind {
        "ExtensionProvider" => format!("extensionProviders: [{spec}]"),
        _ => String::new(),
    };
    mesh::parse_over(&mesh::discovery_defaults(), &mesh_config).ok()?;
    let mut builder = Builder::new(&mesh_config);
    for name in ["a", "b"] {
        builder
            .service(
                name,
                &["80/HTTP", "90/TCP", "443/TLS", "91/"],
                Resolution::Static,
            )
            .endpoint("10.1.0.1 80 p80")
            .end();
    }
    let mut id = ID.to_owned();
    // The same ports at an address, and in a range.
    builder
        .service("at", &["90/TCP", "443/TLS"], Resolution::Static)
        .at(&["10.96.0.1"])
        .end();
    builder
        .service("range", &["90/TCP", "91/", "443/TLS"], Resolution::None)
        .at(&["10.97.0.0/16"])
        .end();
    match kind {
        "VirtualService" => {
            let (key, rule) = checked::<VirtualService>("a", spec).ok()?;
            Arc::make_mut(&mut builder.0.virtual_services).insert(key, rule);
        }
        "Gateway" => {
            id = ID.replacen("sidecar", "router", 1);
            let spec = spec.replace("CERTIFICATES", certificates);
            let (key, rule) = checked::<Gateway>("a", &spec).ok()?;
            Arc::make_mut(&mut builder.0.gateways).insert(key, rule);
            builder.virtual_service(
                "edge",
                "hosts: ['*']\ngateways: [a]\nhttp: [{route: [{destination: {host: b, port: {number: 80}}}]}]\n\
                 tls: [{match: [{sniHosts: ['*']}], route: [{destination: {host: b, port: {number: 90}}}]}]\n\
                 tcp: [{route: [{destination: {host: b, port: {number: 90}}}]}]",
            );
        }
        "AuthorizationPolicy" => {
            own_services(&mut builder);
            let (key, rule) = checked::<AuthorizationPolicy>("a", spec).ok()?;
            Arc::make_mut(&mut builder.0.authorization_policies).insert(key, rule);
        }
        "ExtensionProvider" => {
            own_services(&mut builder);
            builder
                .service("authz", &["80/HTTP", "90/GRPC"], Resolution::Static)
                .endpoint("10.1.0.1 80 p80")
                .end();
            let policy = "{action: CUSTOM, provider: {name: a}, rules: [{}]}";
            let (key, rule) = checked::<AuthorizationPolicy>("a", policy).unwrap();
            Arc::make_mut(&mut builder.0.authorization_policies).insert(key, rule);
        }
        "RequestAuthentication" => {
            own_services(&mut builder);
            let (key, rule) = checked::<RequestAuthentication>("a", spec).ok()?;
            let world = &mut builder.0;
            Arc::make_mut(&mut world.request_authentications).insert(key, rule);
            let uris = [
                "https://fetched.example/keys",
                "https://points.example/keys",
            ];
            let keys = uris.map(|uri| {
                (
                    JwksSource::Set(uri.into()),
                    KeySet::published(POINTS).unwrap(),
                )
            });
            world.key_sets = Arc::new(keys.into());
        }
        _ => {
            let (key, rule) = checked::<DestinationRule>("a", spec).ok()?;
            Arc::make_mut(&mut builder.0.destination_rules).insert(key, rule);
        }
    }
    Some(Row {
        name: "edge",
        world: builder.0,
        node: node(&id, &["label:app=a"], certificates),
    })
}

/// On no curve.
const POINTS: &str =
    r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}, {"kty": "RSA"}]}"#;

/// Tokens with values at the edge.
fn tokens(odd: &[&str]) -> Vec<(&'static str, String)> {
    let mut sets = vec![
        POINTS.to_owned(),
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}]}"#.to_owned(),
        r#"{"keys": [{"kty": "oct", "k": "AQ", "alg": "HS256"}]}"#.to_owned(),
    ];
    // Numbers of RSA, the shortest and the longest.
    for (letters, last) in [(170, '8'), (1365, 'w')] {
        for exponent in ["Aw", "AQAB", "AAEAAQ"] {
            let n = format!("{}{last}", "_".repeat(letters));
            let keys = format!(r#"{{"keys": [{{"kty": "RSA", "n": "{n}", "e": "{exponent}"}}]}}"#);
            assert!(KeySet::inline(&keys).is_ok(), "{keys}");
            sets.push(keys);
        }
    }
    let mut rules: Vec<_> = sets
        .iter()
        .map(|keys| format!("jwks: '{keys}', issuer: i"))
        .collect();
    rules.push("issuer: i".to_owned());
    rules.push("jwksUri: 'https://fetched.example/keys', presence: REQUIRED".to_owned());
    rules.push("jwksUri: 'https://points.example/keys', issuer: ''".to_owned());
    rules.push("jwksUri: 'https://other.example/keys', issuer: i".to_owned());
    let long = format!("a{}", "x".repeat(20_000));
    for value in odd
        .iter()
        .copied()
        .chain([&*long, "':path'", "host", "\"x\\u0001\""])
    {
        for field in [
            "audiences: [VALUE]",
            "fromHeaders: [{name: VALUE}]",
            "fromHeaders: [{name: VALUE, prefix: VALUE}, {name: x, prefix: VALUE}]",
            "fromHeaders: [{name: VALUE}], fromCookies: [c]",
            "fromParams: [VALUE]",
            "fromCookies: [VALUE]",
            "outputPayloadToHeader: VALUE",
            "outputClaimToHeaders: [{header: VALUE, claim: c}]",
            "outputClaimToHeaders: [{header: x, claim: VALUE}, {header: x, claim: c}]",
            "spaceDelimitedClaims: [VALUE]",
        ] {
            rules.push(format!(
                "jwks: '{POINTS}', issuer: i, {}",
                field.replace("VALUE", value)
            ));
        }
        rules.push(format!("jwks: '{POINTS}', issuer: {value}"));
    }
    let mut specs: Vec<_> = rules
        .iter()
        .map(|rule| format!("{{jwtRules: [{{{rule}}}]}}"))
        .collect();
    specs.push("{}".to_owned());
    specs.push(format!(
        "{{jwtRules: [{{{}}}, {{{}}}]}}",
        rules[0], rules[1]
    ));
    specs.push(format!(
        "{{jwtRules: [{{{}, presence: REQUIRED}}]}}",
        rules[0]
    ));
    specs
        .into_iter()
        .map(|spec| ("RequestAuthentication", spec))
        .collect()
}

/// Providers with values at the edge.
fn providers(odd: &[&str]) -> Vec<(&'static str, String)> {
    let place = "service: authz.demo.svc.cluster.local";
    let mut all = vec![
        format!("envoyExtAuthzGrpc: {{{place}, port: 90}}"),
        format!(
            "envoyExtAuthzGrpc: {{{place}, port: 90, timeout: 1ms, failOpen: true, statusOnError: '429', clearRouteCache: true}}"
        ),
        format!(
            "envoyExtAuthzGrpc: {{{place}, port: 90, includeRequestBodyInCheck: {{maxRequestBytes: 4294967295, packAsBytes: true}}}}"
        ),
        format!("envoyExtAuthzGrpc: {{{place}, port: 80}}"),
        format!("envoyExtAuthzHttp: {{{place}, port: 80, timeout: 100000h}}"),
        format!("envoyExtAuthzHttp: {{{place}, port: 80, timeout: 0s}}"),
        format!("envoyExtAuthzHttp: {{{place}, port: 80, pathPrefix: //a}}"),
        format!(
            "envoyExtAuthzHttp: {{{place}, port: 80, includeRequestBodyInCheck: {{maxRequestBytes: 1}}}}"
        ),
        "zipkin: {service: a}".to_owned(),
    ];
    for status in [
        "0", "99", "100", "200", "299", "418", "511", "600", "-1", "x",
    ] {
        all.push(format!(
            "envoyExtAuthzHttp: {{{place}, port: 80, statusOnError: '{status}'}}"
        ));
    }
    for value in odd
        .iter()
        .copied()
        .chain(["'*'", "'x*'", "'*x'", "'**'", "':path'", "Host"])
    {
        for field in [
            "pathPrefix: VALUE",
            "includeRequestHeadersInCheck: [VALUE]",
            "includeHeadersInCheck: [VALUE]",
            "includeAdditionalHeadersInCheck: {x: VALUE}",
            "includeAdditionalHeadersInCheck: {VALUE: x}",
            "headersToUpstreamOnAllow: [VALUE]",
            "headersToDownstreamOnDeny: [VALUE]",
            "headersToDownstreamOnAllow: [VALUE]",
        ] {
            let field = field.replace("VALUE", value);
            all.push(format!("envoyExtAuthzHttp: {{{place}, port: 80, {field}}}"));
        }
    }
    let named = all.iter().map(|one| format!("{{name: a, {one}}}"));
    named.map(|one| ("ExtensionProvider", one)).collect()
}

/// Policies with values at the edge, and all that are shown by what they decide.
fn policies(odd: &[&str]) -> Vec<(&'static str, String)> {
    let rows = include_str!("../../../../tests/data/authorization.rows").lines();
    let written = rows.filter_map(|row| row.strip_prefix("policy ")?.split_once(' '));
    let mut specs: Vec<_> = written.map(|(_, spec)| spec.to_owned()).collect();
    let long = format!("a{}", "x".repeat(3000));
    for value in odd.iter().copied().chain([
        &*long, "'/'", "'*'", "'*x'", "'x*'", "'a/'", "'/a'", "'a/*'", "'*/a'",
    ]) {
        for field in [
            "from: [{source: {principals: [VALUE], notPrincipals: [VALUE]}}]",
            "from: [{source: {requestPrincipals: [VALUE], notRequestPrincipals: [VALUE]}}]",
            "from: [{source: {namespaces: [VALUE], notNamespaces: [VALUE]}}]",
            "from: [{source: {serviceAccounts: [VALUE]}}]",
            "from: [{source: {trustDomains: [VALUE]}}]",
            "from: [{source: {ipBlocks: [VALUE]}}]",
            "to: [{operation: {hosts: [VALUE], notHosts: [VALUE]}}]",
            "to: [{operation: {methods: [VALUE]}}]",
            "to: [{operation: {paths: [VALUE], notPaths: [VALUE]}}]",
            "to: [{operation: {ports: [VALUE]}}]",
            "when: [{key: 'request.headers[x]', values: [VALUE], notValues: [VALUE]}]",
            "when: [{key: 'request.auth.claims[a][b]', values: [VALUE]}]",
            "when: [{key: 'experimental.envoy.filters.a[b]', values: [VALUE]}]",
            "when: [{key: connection.sni, values: [VALUE]}]",
            "when: [{key: source.principal, values: [VALUE]}]",
            "when: [{key: 'request.headers[VALUE]', values: [x]}]",
            "when: [{key: 'request.auth.claims[VALUE]', values: [x]}]",
        ] {
            // Inside of a text it stands without its own marks.
            let bare = value.trim_matches(['\'', '"']);
            let rule = match field.contains("[VALUE]\'") {
                true if value.starts_with('"') => field.replace('\'', "\"").replace("VALUE", bare),
                true => field.replace("VALUE", bare),
                false => field.replace("VALUE", value),
            };
            specs.push(format!("{{rules: [{{{rule}}}]}}"));
        }
    }
    for range in [
        "0.0.0.0/0",
        "'::/0'",
        "10.1.2.3/8",
        "'::ffff:10.0.0.1'",
        "'fe80::1/64'",
    ] {
        specs.push(format!("{{rules: [{{from: [{{source: {{ipBlocks: [{range}], remoteIpBlocks: [{range}]}}}}]}}]}}"));
    }
    let of = |spec| ("AuthorizationPolicy", spec);
    specs.into_iter().map(of).collect()
}

/// Gateways with values at the edge.
fn servers(odd: &[&str]) -> Vec<(&'static str, String)> {
    let files = "serverCertificate: CERTIFICATES/cert-chain.pem, privateKey: CERTIFICATES/key.pem, caCertificates: CERTIFICATES/root-cert.pem";
    let mut specs = Vec::new();
    let one =
        |port: &str, hosts: &str, more: &str| format!("{{port: {port}, hosts: {hosts}{more}}}");
    let tls = |more: &str| {
        let port = "{number: 443, name: a, protocol: HTTPS}";
        one(
            port,
            "['*']",
            &format!(", tls: {{mode: MUTUAL, {files}, {more}}}"),
        )
    };
    let http = "{number: 80, name: a, protocol: HTTP}";
    let through = "{number: 443, name: a, protocol: TLS}";
    for value in odd {
        specs.push(tls(&format!("subjectAltNames: [{value}]")));
        specs.push(tls(&format!("cipherSuites: [{value}, AES128-SHA]")));
        specs.push(tls(&format!("verifyCertificateHash: [{value}]")));
        specs.push(one(
            &format!("{{number: 443, name: {value}, protocol: HTTPS}}"),
            "['*']",
            &format!(", tls: {{mode: SIMPLE, {files}}}"),
        ));
        specs.push(one(http, &format!("[{value}]"), ""));
    }
    for hosts in [
        "['*.a.example', a.example]",
        "['A.Example', a.example, './a.example', '*/a.example']",
        "['2001:db8::1', '2001:0DB8::0:1']",
        "['*']",
        "['*', a.example]",
        "['*.example', '*.a.example', b.example]",
        "[10.0.0.1, '2001:db8::1']",
        "['::1']",
        "[a.example.]",
        "['xn--a.example', 'a_b.example']",
    ] {
        specs.push(one(http, hosts, ""));
        specs.push(one(http, hosts, ", tls: {httpsRedirect: true}"));
        for mode in ["PASSTHROUGH", "AUTO_PASSTHROUGH", "ISTIO_MUTUAL"] {
            specs.push(one(through, hosts, &format!(", tls: {{mode: {mode}}}")));
        }
        specs.push(one("{number: 3306, name: a, protocol: MYSQL}", hosts, ""));
    }
    for versions in [
        "minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_0",
        "minProtocolVersion: TLSV1_0",
        "maxProtocolVersion: TLSV1_1",
        "cipherSuites: [AES128-GCM-SHA384]",
        "cipherSuites: [AES128-GCM-SHA256, AES256-GCM-SHA384, AES256-SHA, AES256-SHA, DES-CBC3-SHA]",
        "verifyCertificateHash: ['abababababababababababababababababababababababababababababababab']",
    ] {
        specs.push(tls(versions));
    }
    for bind in ["127.0.0.1", "'::1'", "0.0.0.0", "'::'", "'unix:///a'"] {
        specs.push(one(http, "['*']", &format!(", bind: {bind}")));
    }
    for port in [
        "{number: 65535, name: a, protocol: HTTP2}",
        "{number: 15001, name: a, protocol: HTTP}",
        "{number: 80, name: a, protocol: UDP}",
        "{number: 80, name: a, protocol: HTTP_PROXY}",
        "{number: 80, name: a, protocol: GRPC-WEB}",
    ] {
        specs.push(one(port, "['*']", ""));
    }
    let all = specs
        .iter()
        .map(|spec| ("Gateway", format!("servers: [{spec}]")));
    all.collect()
}

/// Rules with values at the edge of what Envoy takes.
pub fn edges() -> Vec<(&'static str, String)> {
    let route = "route: [{destination: {host: b}}]";
    let odd = [
        "''",
        "'50%'",
        "'%%'",
        "'%REQ(x)%'",
        "'%NO(x)%'",
        "'%REQ(x'",
        "\"a\\nb\"",
        "\"a\\0b\"",
        "'a b'",
        "'ä'",
        "' '",
        "'a:b'",
        "'a/b?c#d'",
    ];
    let mut http = Vec::new();
    for value in odd {
        for field in [
            "headers: {request: {set: {x: VALUE}}}",
            "headers: {request: {add: {VALUE: x}}}",
            "headers: {response: {set: {x: VALUE}}}",
            "headers: {request: {remove: [VALUE]}}",
            "headers: {request: {set: {':authority': VALUE}}}",
            "appendHeaders: {x: VALUE}, removeRequestHeaders: [VALUE]",
            "appendResponseHeaders: {VALUE: x}, removeResponseHeaders: [VALUE]",
            "headers: {request: {set: {':path': VALUE}}}",
            "headers: {request: {remove: [':path', Host]}}",
            "match: [{headers: {VALUE: {exact: x}}}]",
            "match: [{headers: {x: {exact: VALUE}}}]",
            "match: [{withoutHeaders: {x: {prefix: VALUE}}}]",
            "match: [{queryParams: {VALUE: {exact: x}}}]",
            "match: [{queryParams: {x: {exact: VALUE}}}]",
            "match: [{queryParams: {x: {regex: VALUE}}}]",
            "match: [{uri: {prefix: VALUE}}]",
            "match: [{uri: {exact: VALUE}}]",
            "match: [{uri: {regex: VALUE}}]",
            "match: [{authority: {prefix: VALUE}}]",
            "rewrite: {uri: VALUE}",
            "rewrite: {authority: VALUE}",
            "rewrite: {uriRegexRewrite: {match: '.*', rewrite: VALUE}}",
            "rewrite: {uriRegexRewrite: {match: VALUE, rewrite: x}}",
            "corsPolicy: {allowOrigins: [{exact: VALUE}], allowMethods: [VALUE], allowHeaders: [VALUE], exposeHeaders: [VALUE]}",
            "corsPolicy: {allowOrigins: [{prefix: VALUE}]}",
            "corsPolicy: {allowOrigins: [{regex: VALUE}]}",
            "corsPolicy: {allowOrigin: [VALUE]}",
            "retries: {attempts: 1, retryOn: VALUE}",
            "name: VALUE",
            "match: [{name: VALUE}]",
        ] {
            http.push(format!("{}, {route}", field.replace("VALUE", value)));
        }
        for field in [
            "redirect: {uri: VALUE}",
            "redirect: {authority: VALUE}",
            "redirect: {uri: /x, scheme: VALUE}",
            "directResponse: {status: 200, body: {string: VALUE}}",
            "route: [{destination: {host: b, subset: VALUE}}]",
            "route: [{destination: {host: VALUE}}]",
        ] {
            http.push(field.replace("VALUE", value));
        }
    }
    for field in [
        "timeout: 100000h",
        "timeout: 1ms",
        "timeout: 1ns",
        "retries: {attempts: 2147483647, perTryTimeout: 100000h, backoff: 1ms}",
        "retries: {attempts: 1, backoff: 100h}",
        "retries: {attempts: 1, retryOn: '999999,0,5xx'}",
        "fault: {abort: {httpStatus: 599, percentage: {value: 100}}}",
        "fault: {abort: {httpStatus: 600, percentage: {value: 100}}}",
        "fault: {abort: {httpStatus: 100, percentage: {value: 100}}}",
        "fault: {delay: {fixedDelay: 1ms, percentage: {value: 0.00001}}}",
        "fault: {delay: {fixedDelay: 0s, percentage: {value: 1}}}",
        "corsPolicy: {maxAge: 1ns, allowOrigins: [{exact: a}]}",
        "mirrorPercentage: {value: 100.0}, mirror: {host: b}",
        "mirrors: [{destination: {host: b}, percentage: {value: 0}}]",
    ] {
        http.push(format!("{field}, {route}"));
    }
    let headers: Vec<_> = (0..1500).map(|at| format!("x{at}: a")).collect();
    http.push(format!(
        "headers: {{request: {{set: {{{}}}}}}}, {route}",
        headers.join(", ")
    ));
    let letters = "a".repeat(1023);
    for regex in [
        &*letters,
        ".{1000}",
        "(a|b){1000}",
        "\\pL{100}",
        "[a-z]{1000}",
        "([a-z]{10}){100}",
    ] {
        http.push(format!(
            "match: [{{uri: {{regex: '/{}'}}}}], {route}",
            &regex[..regex.len().min(1023)]
        ));
        http.push(format!(
            "match: [{{headers: {{x: {{regex: '{regex}'}}}}}}], {route}"
        ));
        http.push(format!(
            "rewrite: {{uriRegexRewrite: {{match: '{regex}', rewrite: x}}}}, {route}"
        ));
        http.push(format!(
            "corsPolicy: {{allowOrigins: [{{regex: '{regex}'}}]}}, {route}"
        ));
    }
    let wide = "\\pL\\PN\\p{Greek}".repeat(60);
    http.push(format!(
        "match: [{{headers: {{x: {{regex: '({wide}){{1000}}'}}}}}}], {route}"
    ));
    http.push(format!(
        "match: [{{headers: {{x: {{regex: '({wide}){{10}}'}}}}}}], {route}"
    ));
    for operator in [
        "%REQ(a?b?c)%",
        "%STREAM_INFO_REQ(a?b?c)%",
        "%REQ(a b)%",
        "%METADATA(a:b)%",
        "%GRPC_STATUS(FOO)%",
        "%REQUESTED_SERVER_NAME(FOO)%",
        "%QUERY_PARAMS(FOO)%",
        "%PATH(a:b:c)%",
        "%COMMON_DURATION(a)%",
        "%FILTER_STATE(a:b:c:d)%",
        "%COALESCE(a)%",
        "%XFCC_VALUE(zz)%",
        "%CEL((((%",
        "%START_TIME(%Y)%",
        "%START_TIME(%Y)%%REQ(a?b?c)%",
        "%REQ(x)%%%%REQ(a?b?c)%",
        "%REQ(:path)%",
        "%REQ(x?y):5%",
        "%ENVIRONMENT(HOME)%",
        "%DYNAMIC_METADATA(a:b)%",
        "%PROTOCOL%",
        "%UPSTREAM_METADATA(a:b)%",
        "%RESP(x)%",
        "%TRAILER(x)%",
        "%DOWNSTREAM_PEER_URI_SAN%",
    ] {
        http.push(format!(
            "headers: {{request: {{set: {{x: '{operator}'}}}}}}, {route}"
        ));
    }
    let long = "x".repeat(20_000);
    for field in [
        "headers: {request: {set: {x: LONG}}}",
        "headers: {request: {set: {LONG: x}}}",
        "match: [{queryParams: {LONG: {exact: x}}}]",
    ] {
        http.push(format!("{}, {route}", field.replace("LONG", &long)));
    }
    for status in [99, 100, 199, 200, 304, 599, 600] {
        http.push(format!(
            "directResponse: {{status: {status}, body: {{string: x}}}}"
        ));
    }
    http.push(format!(
        "directResponse: {{status: 200, body: {{string: {}}}}}",
        "x".repeat(100_000)
    ));
    let same = [
        "hosts: [a, a]",
        "hosts: [a, a.demo.svc.cluster.local]",
        "hosts: [c.example, C.example]",
        "hosts: ['*.example', '*.example']",
        "hosts: [10.0.0.1, 10.96.0.1]",
        "hosts: ['2001:db8::1', '2001:0DB8::0:1']",
    ];
    let mut rules: Vec<_> = http
        .into_iter()
        .map(|http| {
            (
                "VirtualService",
                format!("hosts: [a, c.example]\nhttp: [{{{http}}}]"),
            )
        })
        .collect();
    rules.extend(same.map(|hosts| ("VirtualService", format!("{hosts}\nhttp: [{{{route}}}]"))));
    let all = "hosts: [a, at, range, '*.example']";
    for connections in [
        "tcp: [{ROUTE}]",
        "tcp: [{match: [{destinationSubnets: [10.97.0.0/16, 10.97.0.0/16, 10.97.1.2/16]}], ROUTE}]",
        "tcp: [{match: [{destinationSubnets: [10.97.0.0/16]}, {destinationSubnets: [10.97.0.0/16, 10.1.0.0/16]}], ROUTE}, {ROUTE}]",
        "tcp: [{match: [{destinationSubnets: ['0.0.0.0/0', '::/0', 10.0.0.1]}, {sourceSubnet: 10.1.0.0/16}, {sourceSubnet: 10.1.0.0/16}], ROUTE}]",
        "tcp: [{match: [{sourceSubnet: 10.1.2.3/16}, {sourceSubnet: 10.1.0.0/16}, {sourceSubnet: '::1/128'}], ROUTE}]",
        "tcp: [{route: [{destination: {host: a}, weight: 1}, {destination: {host: b}, weight: 99}, {destination: {host: c}, weight: 0}]}]",
        "tcp: [{route: [{destination: {host: a, subset: x}, weight: 50}, {destination: {host: a, subset: x}, weight: 50}]}]",
        "tls: [{match: [{sniHosts: [a.example, A.example]}, {sniHosts: ['*.example', a.example]}], ROUTE}]",
        "tls: [{match: [{sniHosts: [x.example], destinationSubnets: [10.97.0.0/16, 10.1.0.0/16]}], ROUTE}, {match: [{sniHosts: [x.example]}], ROUTE}]",
        "tls: [{match: [{sniHosts: [x.example], destinationSubnets: [10.1.0.0/16]}], ROUTE}, {match: [{sniHosts: [x.example, y.example], destinationSubnets: [10.1.0.0/16, 10.2.0.0/16]}], ROUTE}]",
        "tls: [{match: [{sniHosts: [at.demo.svc.cluster.local, range.demo.svc.cluster.local, a.demo.svc.cluster.local]}], ROUTE}]",
        "tls: [{match: [{sniHosts: [10.0.0.1]}, {sniHosts: ['*.a.example', '*.b.a.example']}], ROUTE}]",
        "tls: [{match: [{sniHosts: [a.example]}], route: [{destination: {host: a}, weight: 40}, {destination: {host: b}, weight: 60}]}]",
    ] {
        let hosts = "hosts: [a.demo.svc.cluster.local, at.demo.svc.cluster.local, range.demo.svc.cluster.local, '*.example', 10.0.0.1]";
        for hosts in [all, hosts] {
            let connections = connections.replace("ROUTE", route);
            rules.push(("VirtualService", format!("{hosts}\n{connections}")));
        }
    }
    rules.push((
        "VirtualService",
        format!(
            "hosts: ['*foo.com', a.demo.svc.cluster.local]\ntls: [{{match: [{{sniHosts: ['*foo.com']}}], {route}}}]"
        ),
    ));
    let mut policies = vec![
        format!("tls: {{mode: SIMPLE, sni: {}}}", &long[..300]),
        format!(
            "loadBalancer: {{consistentHash: {{httpCookie: {{name: a, ttl: 1s, attributes: [{{name: {long}}}, {{name: a, value: {long}}}]}}}}}}"
        ),
    ];
    for value in odd {
        for field in [
            "loadBalancer: {consistentHash: {httpHeaderName: VALUE}}",
            "loadBalancer: {consistentHash: {httpQueryParameterName: VALUE}}",
            "loadBalancer: {consistentHash: {httpCookie: {name: VALUE, path: VALUE, ttl: 1s}}}",
            "loadBalancer: {consistentHash: {httpCookie: {name: a, ttl: 1s, attributes: [{name: VALUE, value: VALUE}]}}}",
            "tls: {mode: SIMPLE, sni: VALUE}",
            "tls: {mode: ISTIO_MUTUAL, subjectAltNames: [VALUE]}",
        ] {
            policies.push(field.replace("VALUE", value));
        }
        rules.push((
            "DestinationRule",
            format!("host: a\nsubsets: [{{name: {value}, labels: {{a: b}}}}]"),
        ));
        rules.push(("DestinationRule", format!("host: {value}")));
    }
    policies.extend(
        [
            "loadBalancer: {consistentHash: {httpCookie: {name: a, ttl: 0s}}}",
            "loadBalancer: {consistentHash: {useSourceIp: false}}",
            "loadBalancer: {warmupDurationSecs: 0s}",
            "loadBalancer: {warmupDurationSecs: -1s}",
            "loadBalancer: {warmupDurationSecs: 100000h}",
            "loadBalancer: {warmupDurationSecs: 0.0001s}",
            "loadBalancer: {simple: ROUND_ROBIN, warmup: {duration: 1ms, minimumPercent: 0, aggression: 1}}",
            "loadBalancer: {simple: LEAST_REQUEST, warmup: {duration: 100000h, minimumPercent: 100, aggression: 1e308}}",
            "proxyProtocol: {version: V1}",
            "proxyProtocol: {version: V2}, tls: {mode: SIMPLE}",
            "retryBudget: {percent: 0, minRetryConcurrency: 4294967295, budgetInterval: 0s}",
            "retryBudget: {percent: 100, budgetInterval: 100000h}",
            "retryBudget: {percent: 101, budgetInterval: -1s}",
            "retryBudget: {percent: -1, budgetInterval: 0.0001s}",
            "loadBalancer: {consistentHash: {useSourceIp: true, minimumRingSize: 18446744073709551615}}",
            "loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 2}}}",
            "loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 5000011}}}",
            "loadBalancer: {localityLbSetting: {distribute: [{from: a, to: {b: 100}}]}}",
            "outlierDetection: {consecutive5xxErrors: 0, interval: 1ms, baseEjectionTime: 1ms, maxEjectionPercent: 100, minHealthPercent: 100}",
            "outlierDetection: {consecutive5xxErrors: 4294967295, interval: 100000h, baseEjectionTime: 100000h}",
            "outlierDetection: {maxEjectionPercent: 101}",
            "outlierDetection: {minHealthPercent: 101}",
            "outlierDetection: {consecutiveErrors: 2147483647}",
            "connectionPool: {tcp: {maxConnections: 2147483647, connectTimeout: 1ms, maxConnectionDuration: 1ms, tcpKeepalive: {probes: 4294967295, time: 1s, interval: 1s}}}",
            "connectionPool: {tcp: {connectTimeout: 100000h, tcpKeepalive: {time: 100000h}}}",
            "connectionPool: {http: {http1MaxPendingRequests: 2147483647, http2MaxRequests: 2147483647, maxRequestsPerConnection: 2147483647, maxRetries: 2147483647, idleTimeout: 1ms}}",
            "connectionPool: {http: {h2UpgradePolicy: UPGRADE, maxConcurrentStreams: 2147483647, http2KeepAlive: {interval: 1ms, timeout: 1ms}}}",
            "connectionPool: {http: {h2UpgradePolicy: UPGRADE, useClientProtocol: true, idleTimeout: 100000h}}",
        ]
        .map(str::to_owned),
    );
    rules.extend(self::policies(&odd));
    rules.extend(servers(&odd));
    rules.extend(tokens(&odd));
    rules.extend(providers(&odd));
    rules.extend(policies.into_iter().map(|policy| {
        (
            "DestinationRule",
            format!("host: a\ntrafficPolicy: {{{policy}}}"),
        )
    }));
    rules
}
