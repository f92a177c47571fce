//! The effect of environment variables on a proxy's resources.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::envoy::config::core::v3::{ConfigSource, Node};
use envoy_types::pb::envoy::config::listener::v3::{Listener, filter};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;

use crate::client::*;
use crate::place::{Discovery, Place, SOON, documents};

const DB: &str = "outbound|9000||db.demo.svc.cluster.local";

/// One service with HTTP, and one without an address that has two pods.
fn place() -> Place {
    let b = service("b", &["10.0.0.2"]);
    let db = "apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: demo}\nspec: {clusterIP: None, ports: [{name: tcp, \
              port: 9000}]}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: db-1, namespace: demo, \
              labels: {kubernetes.io/service-name: db}}\naddressType: IPv4\nports: [{name: tcp, port: 9000}]\nendpoints:\n- \
              {addresses: [10.0.0.7]}\n- {addresses: [10.0.0.8]}\n";
    Place::new()
        .with("config/all.yaml", &documents(&[b, db.to_owned()]))
        .with("mesh", "enableTracing: true\n")
}

/// Seconds.
fn patience(source: Option<&ConfigSource>) -> i64 {
    source
        .unwrap()
        .initial_fetch_timeout
        .as_ref()
        .unwrap()
        .seconds
}

/// The resources of a sidecar with interception.
struct Given {
    cds: DiscoveryResponse,
    lds: DiscoveryResponse,
    db: Vec<String>,
}

impl Given {
    async fn by(discovery: &Discovery) -> Self {
        let mut stream = Sotw::open(discovery.grpc).await;
        let intercepted = Node {
            metadata: None,
            ..node_of("sidecar~10.0.0.1~client-1.demo~demo.svc.cluster.local")
        };
        stream.ask_as(intercepted, CDS, &[]);
        let cds = stream.hear(CDS).await;
        stream.say(request(EDS, &[DB]));
        let db = endpoints(&stream.hear(EDS).await, DB);
        stream.ack(&cds, &[]);
        stream.say(request(LDS, &[]));
        let lds = stream.hear(LDS).await;
        Self { cds, lds, db }
    }

    fn kind(&self, cluster: &str) -> DiscoveryType {
        let cluster: Cluster = decoded(&self.cds, cluster);
        let Some(ClusterDiscoveryType::Type(kind)) = cluster.cluster_discovery_type else {
            panic!("{cluster:?}")
        };
        DiscoveryType::try_from(kind).unwrap()
    }

    fn manager(&self) -> HttpConnectionManager {
        let listener: Listener = decoded(&self.lds, "0.0.0.0_8080");
        let filter = &listener.filter_chains[0].filters[0];
        let Some(filter::ConfigType::TypedConfig(any)) = &filter.config_type else {
            panic!("{filter:?}")
        };
        HttpConnectionManager::decode(&*any.value).unwrap()
    }

    /// Returns the timeouts of EDS and of RDS.
    fn patience(&self) -> (i64, i64) {
        let cluster: Cluster = decoded(&self.cds, B);
        let of_endpoints = cluster.eds_cluster_config.unwrap().eds_config;
        let Some(RouteSpecifier::Rds(routes)) = self.manager().route_specifier else {
            panic!("routes by name")
        };
        (
            patience(of_endpoints.as_ref()),
            patience(routes.config_source.as_ref()),
        )
    }

    fn sampling(&self) -> f64 {
        let tracing = self.manager().tracing.unwrap();
        tracing.random_sampling.unwrap().value
    }

    fn takes_http10(&self) -> bool {
        let options = self.manager().http_protocol_options;
        options.is_some_and(|options| options.accept_http_10)
    }

    /// Listeners of the port of the service without an address.
    fn doors(&self) -> Vec<String> {
        let mut names = names_of(&self.lds);
        names.retain(|name| name.ends_with("_9000"));
        names.sort();
        names
    }
}

#[tokio::test]
async fn variables_show_in_what_a_proxy_is_given() {
    let usual = Given::by(&place().start()).await;
    assert_eq!(usual.patience(), (0, 0));
    assert_eq!(usual.sampling(), 1.0);
    assert!(!usual.takes_http10());
    assert_eq!(usual.kind(DB), DiscoveryType::OriginalDst);
    assert_eq!(usual.doors(), ["10.0.0.7_9000", "10.0.0.8_9000"]);

    let discovery = place()
        .env("PILOT_INITIAL_FETCH_TIMEOUT", "7s")
        .env("PILOT_TRACE_SAMPLING", "12.5")
        .env("PILOT_HTTP10", "true")
        .env("PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES", "true")
        .start();
    let given = Given::by(&discovery).await;
    assert_eq!(given.patience(), (7, 7));
    assert_eq!(given.sampling(), 12.5);
    assert!(given.takes_http10());
    assert_eq!(given.kind(DB), DiscoveryType::Eds);
    assert_eq!(given.db, ["10.0.0.7:9000", "10.0.0.8:9000"]);
    assert_eq!(given.doors(), usual.doors());

    let discovery = place().env("PILOT_ENABLE_HEADLESS_SERVICE", "false");
    let given = Given::by(&discovery.start()).await;
    assert_eq!(given.doors(), ["0.0.0.0_9000", "10.0.0.1_9000"]);
    assert_eq!(given.kind(DB), DiscoveryType::OriginalDst);
}

#[tokio::test]
async fn a_connection_carries_as_many_streams_as_the_variable_says() {
    let discovery = place().env("ISTIO_GPRC_MAXSTREAMS", "2").start();
    let channel = connect(discovery.grpc).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = Sotw::over(channel.clone()).await;
        stream.ask(CDS, &[]);
        stream.hear(CDS).await;
        open.push(stream);
    }
    let mut third = Box::pin(Sotw::over(channel));
    let early = tokio::time::timeout(QUIET, &mut third).await;
    assert!(early.is_err(), "a third one");
    // Its place is the next one's.
    open.pop();
    let mut third = tokio::time::timeout(SOON, third).await.unwrap();
    third.ask(CDS, &[]);
    third.hear(CDS).await;
}
