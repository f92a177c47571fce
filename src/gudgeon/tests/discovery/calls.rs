//! The gRPC services beside xDS, what is said of calls and requests that nothing answers, and causes of pushes.

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::client::*;
use crate::place::{Place, documents};
use crate::talk::Talk;

const XDS: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

async fn next(watched: &mut Streaming<HealthCheckResponse>) -> ServingStatus {
    let message = tokio::time::timeout(crate::place::SOON, watched.message()).await;
    message.unwrap().unwrap().unwrap().status()
}

#[tokio::test]
async fn health_is_serving_until_the_server_drains() {
    let mut discovery = Place::new()
        .with("config/a.yaml", &service("a", &["10.0.0.1"]))
        .arg("--drainDuration=2s")
        .start();
    let mut client = HealthClient::new(connect(discovery.address().port()).await);
    let of = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    for known in ["", XDS, "grpc.health.v1.Health"] {
        let answer = client.check(of(known)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{known}");
    }
    let unknown = client.check(of("x")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let mut of_unknown = client.watch(of("x")).await.unwrap().into_inner();
    assert_eq!(next(&mut of_unknown).await, ServingStatus::ServiceUnknown);
    let mut watched = client.watch(of(XDS)).await.unwrap().into_inner();
    assert_eq!(next(&mut watched).await, ServingStatus::Serving);
    discovery.signal("TERM");
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    assert_eq!(discovery.wait().code(), Some(0));
}

#[tokio::test]
async fn what_is_not_served_is_said() {
    let discovery = Place::new()
        .with("config/a.yaml", &service("a", &["10.0.0.1"]))
        .start();
    let port = discovery.address().port();
    let v2 = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources";
    let channel = connect(port).await;
    let refused = Talk::<DiscoveryRequest, DiscoveryResponse>::call(&channel, v2).await;
    let refused = refused.err().unwrap();
    assert_eq!(refused.code(), Code::Unimplemented);
    let words = format!("this server speaks v3, {XDS}");
    assert!(refused.message().contains(&words), "{refused}");

    let unknown = || discovery.metric("gudgeon_unknown_type_requests_total");
    assert_eq!(unknown(), 0.0);
    let mut stream = Sotw::open(port).await;
    stream.ask("type.googleapis.com/envoy.api.v2.Cluster", &[]);
    soon("the count", || unknown() == 1.0).await;
    // Nothing answers it, and the stream goes on.
    stream.ask(CDS, &[]);
    stream.hear(CDS).await;
}

const ROUTE: &str = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: demo}\nspec: {hosts: [a], \
                     http: [{route: [{destination: {host: a}}]}]}\n";

fn pod(version: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: client-1, namespace: demo, labels: {{version: {version}}}}}\nstatus: {{podIP: \
         127.0.0.1, phase: Running}}\n"
    )
}

#[tokio::test]
async fn pushes_are_counted_by_their_causes() {
    let a = || service("a", &["10.0.0.1"]);
    let discovery = Place::new()
        .with("config/all.yaml", &a())
        .with("config/pod.yaml", &pod("v1"))
        .start();
    let mut stream = Sotw::open(discovery.address().port()).await;
    stream.settle(&[A], &["8080"]).await;
    let causes = ["endpoint", "service", "config", "global", "proxy"];
    let counted = || {
        causes.map(|cause| discovery.metric(&format!("pilot_push_triggers{{type=\"{cause}\"}}")))
    };
    let changes = [
        ("config/all.yaml", service("a", &["10.0.0.2"])),
        (
            "config/all.yaml",
            documents(&[service("a", &["10.0.0.2"]), service("b", &["10.0.0.3"])]),
        ),
        ("config/route.yaml", ROUTE.to_owned()),
        ("mesh", "connectTimeout: 7s\n".to_owned()),
        ("config/pod.yaml", pod("v2")),
    ];
    for (at, (file, text)) in changes.iter().enumerate() {
        let mut expected = counted();
        expected[at] += 1.0;
        discovery.place.write(file, text);
        soon(causes[at], || counted() == expected).await;
    }
}
