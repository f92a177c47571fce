//! A source that sends invalid messages, on a stream that it has dialled itself.

use api::istio::networking::v1alpha3::ServiceEntry;
use mcp::message::{Metadata, RequestResources, Resource, Resources};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::transport::Endpoint;

use crate::client::soon;
use crate::place::{Discovery, Place};
use crate::sinks::address;
use crate::talk::Source;

const ENTRIES: &str = "istio/networking/v1alpha3/serviceentries";
const TYPE: &str = "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry";

fn resource(name: &str, type_url: &str, body: Vec<u8>) -> Resource {
    Resource {
        metadata: Some(Metadata {
            name: name.to_owned(),
            ..Metadata::default()
        }),
        body: Some(api::google::protobuf::Any {
            type_url: type_url.to_owned(),
            value: body.into(),
        }),
    }
}

fn entry(address: &str) -> Resource {
    let written = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "a", "namespace": "demo"},
        "spec": {"hosts": ["a.demo.svc.cluster.local"], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "main", "protocol": "TCP"}], "endpoints": [{"address": address}]},
    });
    let (object, found) = api::config::read(&written);
    assert!(found.is_empty(), "{found:?}");
    resource("demo/a", TYPE, object.unwrap().body.to_vec())
}

struct Said {
    source: Source,
    nonce: u64,
}

impl Said {
    /// Sends a response, and returns the answer.
    async fn say(&mut self, collection: &str, resources: Vec<Resource>) -> RequestResources {
        self.nonce += 1;
        self.source.say(Resources {
            collection: collection.to_owned(),
            resources,
            nonce: self.nonce.to_string(),
            ..Resources::default()
        });
        let answer = self.source.next().await;
        let nonce = self.nonce.to_string();
        assert_eq!(
            (&*answer.collection, &answer.response_nonce),
            (collection, &nonce)
        );
        answer
    }

    /// The same; by which code and words it is refused.
    async fn refused(&mut self, collection: &str, resources: Vec<Resource>) -> (i32, String) {
        let answer = self.say(collection, resources).await;
        let error = answer.error_detail.expect("it is taken");
        (error.code, error.message)
    }
}

fn served(discovery: &Discovery) -> Option<String> {
    address(&discovery.json("/debug/endpointz"))
}

fn sink(discovery: &Discovery) -> Value {
    discovery.json("/debug/sinkz")[0].clone()
}

/// A discovery that has one entry, and the stream over which it came.
async fn start() -> (Discovery, Said) {
    let place = Place::new().arg("--registries=MCP");
    let socket = format!("unix://{}", place.path("sink").display());
    let discovery = place.arg(&format!("--mcpSinkAddr={socket}")).begin();
    soon("its socket", || discovery.place.path("sink").exists()).await;
    let endpoint = Endpoint::from_shared(socket).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let source = Source::dial(&channel).await.unwrap();
    let mut source_stream = Said { source, nonce: 0 };
    let wanted = sink(&discovery)["collections"].as_object().unwrap().len();
    let mut asked = Vec::new();
    for _ in 0..wanted {
        asked.push(source_stream.source.next().await.collection);
    }
    for collection in asked {
        let resources = match &*collection {
            ENTRIES => vec![entry("10.0.0.1")],
            _ => Vec::new(),
        };
        let answer = source_stream.say(&collection, resources).await;
        assert_eq!(answer.error_detail, None);
    }
    soon("readiness", || discovery.get("/ready").0 == 200).await;
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.1"));
    (discovery, source_stream)
}

#[tokio::test]
async fn unreadable_responses_are_refused_and_invalid_objects_left_out() {
    let (discovery, mut source_stream) = start().await;
    let (code, message) = source_stream.refused("istio/nothing", Vec::new()).await;
    assert_eq!(
        (code, &*message),
        (12, "unsupported collection \"istio/nothing\"")
    );
    // A wrong type or an undecodable message: the whole response is refused.
    let of_another = resource(
        "demo/b",
        "type.googleapis.com/istio.networking.v1alpha3.Gateway",
        Vec::new(),
    );
    let no_message = resource("demo/c", TYPE, vec![0xff]);
    for (wrong, name) in [(of_another, "demo/b"), (no_message, "demo/c")] {
        let (code, message) = source_stream
            .refused(ENTRIES, vec![entry("10.0.0.2"), wrong])
            .await;
        assert!(code == 3 && message.contains(name), "{code} {message}");
        assert!(!message.contains("demo/a"), "{message}");
    }
    let state = sink(&discovery);
    let entries = &state["collections"][ENTRIES];
    assert_eq!(
        (&entries["count"], &entries["last_nack"]["code"]),
        (&json!(1), &json!(3))
    );
    let requests = state["requests"].as_array().unwrap();
    for (outcome, count) in [("nack 12", 1), ("nack 3", 2)] {
        let found = requests.iter().filter(|one| one["outcome"] == outcome);
        assert_eq!(found.count(), count, "{outcome}");
    }
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.1"));
    // A rule that is broken harms itself alone.
    let breaks = ServiceEntry {
        hosts: vec!["not a host".to_owned()],
        ..ServiceEntry::default()
    };
    let breaks = resource("demo/b", TYPE, breaks.encode_to_vec());
    let answer = source_stream
        .say(ENTRIES, vec![entry("10.0.0.2"), breaks])
        .await;
    assert_eq!(answer.error_detail, None);
    soon("the change", || {
        served(&discovery).as_deref() == Some("10.0.0.2")
    })
    .await;
    let rejected = sink(&discovery)["rejected"].clone();
    assert_eq!(rejected.as_array().unwrap().len(), 1);
    let listed = json!([rejected[0]["name"], rejected[0]["state"]]);
    assert_eq!(listed, json!(["demo/b", "refused"]));
    assert!(
        rejected[0]["errors"].to_string().contains("hosts"),
        "{rejected}"
    );
}

#[tokio::test]
async fn a_refused_object_stands_in_configz_beside_the_version_that_is_served() {
    let (discovery, mut source_stream) = start().await;
    let breaks = ServiceEntry {
        hosts: vec!["not a host".to_owned()],
        ..ServiceEntry::default()
    };
    let breaks = |name| resource(name, TYPE, breaks.encode_to_vec());
    let rows = || {
        let all = discovery.json("/debug/configz");
        let rows = all.as_array().unwrap().iter().map(|row| {
            let status = &row["status"];
            let is_told = status["messages"].to_string().contains("hosts");
            json!([
                row["metadata"]["name"],
                row["source"],
                status["accepted"],
                is_told
            ])
        });
        rows.collect::<Vec<_>>()
    };
    let source = rows()[0][1].clone();
    let served = json!(["a", source, true, false]);
    assert_eq!(rows(), std::slice::from_ref(&served));
    // One that was good before, and one that never was.
    let changed = vec![breaks("demo/a"), breaks("demo/b")];
    let answer = source_stream.say(ENTRIES, changed).await;
    assert_eq!(answer.error_detail, None);
    let refused = ["a", "b"].map(|name| json!([name, source, false, true]));
    let [stale, new] = refused;
    soon("the refused versions", || {
        rows() == [served.clone(), stale.clone(), new.clone()]
    })
    .await;
    let answer = source_stream.say(ENTRIES, vec![entry("10.0.0.2")]).await;
    assert_eq!(answer.error_detail, None);
    soon("the good version", || rows() == [served.clone()]).await;
}

#[tokio::test]
async fn wrong_things_without_end_fill_neither_the_log_nor_the_metrics() {
    let (discovery, mut source_stream) = start().await;
    for turn in 0..200 {
        let name = format!("istio/nothing/{turn}");
        assert_eq!(source_stream.refused(&name, Vec::new()).await.0, 12);
    }
    let labels = "component=\"pilot\",collection=\"other\",code=\"12\"";
    let nacks = format!("istio_mcp_request_nacks_total{{{labels}}}");
    assert_eq!(discovery.metric(&nacks), 200.0);
    assert!(!discovery.get("/metrics").1.contains("istio/nothing"));
    let lines = discovery.logged("unsupported collection");
    // Ten in a minute, and the machine may be slow.
    assert!((10..=50).contains(&lines), "{lines} lines");
}

/// Kinds without effect come and go as often as somebody likes, and fill no log.
#[tokio::test]
async fn a_rule_that_comes_later_is_reported_to_have_no_effect() {
    const ROLES: &str = "istio/rbac/v1alpha1/serviceroles";
    let (discovery, mut source_stream) = start().await;
    let url = "type.googleapis.com/istio.rbac.v1alpha1.ServiceRole";
    // rules: [{services: ["*"]}]
    let role = || vec![resource("shop/all", url, b"\x0a\x03\x0a\x01*".to_vec())];
    let answer = source_stream.say(ROLES, role()).await;
    assert_eq!(answer.error_detail, None);
    let message = "1 ServiceRole have no effect in this release";
    soon("the warning", || discovery.logged(message) == 1).await;
    let rows = discovery.json("/debug/configz?kind=ServiceRole");
    assert_eq!(rows[0]["status"]["effect"], "none");
    assert_eq!(discovery.get("/ready").0, 200);
    for turn in 0..60 {
        let roles = if turn % 2 == 0 { Vec::new() } else { role() };
        assert_eq!(source_stream.say(ROLES, roles).await.error_detail, None);
    }
    let lines = discovery.logged("effect");
    assert!(lines <= 60, "{lines} lines");
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.1"));
}
