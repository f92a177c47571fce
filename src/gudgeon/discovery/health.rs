//! gRPC's own health service: serving from the first snapshot until TERM.

use std::sync::Arc;

use hyper::body::Incoming;
use prost::Message;
use tonic::Status;

use super::hub::Hub;
use super::wire::DISCOVERY;
use crate::grpc::{Inbound, ResponseSender, framed};

pub(super) const SERVICE: &str = "grpc.health.v1.Health";

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const UNKNOWN: i32 = 3;

fn serving_status(serves: bool) -> i32 {
    if serves { SERVING } else { NOT_SERVING }
}

fn is_known(service: &str) -> bool {
    service.is_empty() || service == DISCOVERY || service == SERVICE
}

pub(super) async fn check(
    hub: Arc<Hub>,
    mut inbound: Inbound<Incoming>,
    sender: Arc<ResponseSender>,
) {
    let end = match inbound.first::<HealthCheckRequest>().await {
        Ok(Some(request)) if is_known(&request.service) => {
            let status = serving_status(hub.lifecycle.is_serving());
            sender.put([framed(&HealthCheckResponse { status }).into()]);
            Status::ok("")
        }
        Ok(Some(_)) => Status::not_found("no such service"),
        Ok(None) => Status::invalid_argument("no request"),
        Err(status) => status,
    };
    sender.end(end);
}

pub(super) async fn watch(
    hub: Arc<Hub>,
    mut inbound: Inbound<Incoming>,
    sender: Arc<ResponseSender>,
) {
    let request = match inbound.first::<HealthCheckRequest>().await {
        Ok(Some(request)) => request,
        Ok(None) => return sender.end(Status::invalid_argument("no request")),
        Err(status) => return sender.end(status),
    };
    let mut serving = hub.lifecycle.watch_serving();
    let mut sent = None;
    while !sender.is_gone() {
        // The protocol keeps the stream of an unknown service; only `Check` ends with NOT_FOUND.
        let status = if is_known(&request.service) {
            serving_status(*serving.borrow_and_update())
        } else {
            UNKNOWN
        };
        // A client that does not read finds the latest status once it does.
        if sent != Some(status) && sender.is_free() {
            sent = Some(status);
            sender.put([framed(&HealthCheckResponse { status }).into()]);
        }
        tokio::select! {
            changed = serving.changed() => if changed.is_err() { break },
            () = sender.moved() => {}
            () = hub.lifecycle.streams_end() => break,
        }
    }
    sender.end(Status::unavailable("server shutting down"));
}
