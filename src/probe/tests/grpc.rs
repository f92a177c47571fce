//! gRPC probes against a real health server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic and wait"
)]

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use support::{Outcome, run, runtime};
use tokio::runtime::Runtime;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// The authorities that clients sent, as the server saw them.
type Seen = Arc<Mutex<Vec<String>>>;

fn serve(runtime: &Runtime) -> (SocketAddr, Seen) {
    let reporter = HealthReporter::new();
    runtime.block_on(async {
        reporter
            .set_service_status("well", ServingStatus::Serving)
            .await;
        reporter
            .set_service_status("ill", ServingStatus::NotServing)
            .await;
        reporter
            .set_service_status("new", ServingStatus::Unknown)
            .await;
    });
    let seen = Seen::default();
    let record = seen.clone();
    let service = HealthServer::with_interceptor(
        HealthService::from_health_reporter(reporter),
        move |request: tonic::Request<()>| {
            let agent = request.metadata().get("user-agent").unwrap();
            record
                .lock()
                .unwrap()
                .push(agent.to_str().unwrap().to_owned());
            Ok(request)
        },
    );
    let _guard = runtime.enter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    runtime.spawn(
        Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming),
    );
    (address, seen)
}

fn check(address: SocketAddr, service: &str) -> Outcome {
    // As pintle does it.
    let service = ["--service=", service].concat();
    run(
        &[
            "grpc",
            &address.to_string(),
            &service,
            "--timeout-millis",
            "9000",
        ],
        b"",
    )
}

#[test]
fn a_server_that_serves_is_well() {
    let runtime = runtime();
    let (address, seen) = serve(&runtime);
    // The server as a whole serves from the beginning.
    assert_eq!(run(&["grpc", &address.to_string()], b"").body(), "SERVING");
    assert_eq!(check(address, "well").body(), "SERVING");
    let agent = concat!("pintle-probe/", env!("CARGO_PKG_VERSION"));
    assert_eq!(*seen.lock().unwrap(), [agent, agent]);
}

#[test]
fn any_other_state_is_told() {
    let runtime = runtime();
    let (address, _) = serve(&runtime);
    assert_eq!(check(address, "ill").failure(), "service is NOT_SERVING");
    assert_eq!(check(address, "new").failure(), "service is UNKNOWN");
    assert_eq!(
        check(address, "absent").failure(),
        format!("cannot check the health of absent at {address}: service not registered")
    );
}

#[test]
fn a_server_without_the_health_service_is_told() {
    let runtime = runtime();
    let guard = runtime.enter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let routes = tonic::service::Routes::default();
    runtime.spawn(
        Server::builder()
            .add_routes(routes)
            .serve_with_incoming(incoming),
    );
    drop(guard);
    assert_eq!(
        check(address, "").failure(),
        format!("cannot check the health of {address}: it has no grpc.health.v1.Health")
    );
}

#[test]
fn a_server_that_speaks_something_else_is_told() {
    let runtime = runtime();
    let address = support::serve(&runtime, support::HTTP2);
    let failure = check(address, "").failure();
    assert!(
        failure.starts_with(&format!("cannot check the health of {address}: ")),
        "{failure}"
    );
}
