//! Server reflection: which services there are, and the descriptors of their messages, for tools such as grpcurl.

use std::sync::Arc;

use api::envoy::{DescriptorPool, ENVOY};
use bytes::Bytes;
use hyper::body::Incoming;
use prost::{Message, Oneof};
use tonic::{Code, Status};

use super::health;
use super::hub::Hub;
use super::wire::DISCOVERY;
use crate::grpc::{Inbound, ResponseSender, framed};

pub(super) const SERVICE: &str = "grpc.reflection.v1.ServerReflection";

#[derive(Clone, PartialEq, Message)]
struct ReflectionRequest {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "ReflectionQuery", tags = "3, 4, 7")]
    what: Option<ReflectionQuery>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ReflectionQuery {
    #[prost(string, tag = "3")]
    File(String),
    #[prost(string, tag = "4")]
    Symbol(String),
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, Message)]
struct ReflectionResponse {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(message, optional, tag = "2")]
    original_request: Option<ReflectionRequest>,
    #[prost(oneof = "ReflectionMessage", tags = "4, 6, 7")]
    message: Option<ReflectionMessage>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ReflectionMessage {
    #[prost(message, tag = "4")]
    Files(DescriptorFiles),
    #[prost(message, tag = "6")]
    Services(ServiceList),
    #[prost(message, tag = "7")]
    Wrong(Wrong),
}

#[derive(Clone, PartialEq, Message)]
struct DescriptorFiles {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceList {
    #[prost(message, repeated, tag = "1")]
    services: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceName {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Wrong {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

pub(super) async fn answer(
    hub: Arc<Hub>,
    mut inbound: Inbound<Incoming>,
    sender: Arc<ResponseSender>,
) {
    let mut begun = false;
    while !sender.is_gone() {
        let next = async {
            match begun {
                true => inbound.next::<ReflectionRequest>().await,
                false => inbound.first().await,
            }
        };
        tokio::select! {
            // A client that does not read its response gets no further request read.
            request = next, if sender.is_free() => match request {
                Ok(Some(request)) => {
                    begun = true;
                    sender.put([framed(&respond(request)).into()]);
                }
                Ok(None) => return sender.end(Status::ok("")),
                Err(status) => return sender.end(status),
            },
            () = sender.moved() => {}
            () = hub.lifecycle.streams_end() => return sender.end(Status::unavailable("server shutting down")),
        }
    }
}

fn respond(request: ReflectionRequest) -> ReflectionResponse {
    let message = match &request.what {
        Some(ReflectionQuery::Services(_)) => ReflectionMessage::Services(ServiceList {
            services: [DISCOVERY, health::SERVICE, SERVICE]
                .map(|name| ServiceName {
                    name: name.to_owned(),
                })
                .to_vec(),
        }),
        Some(ReflectionQuery::File(name)) => found(|all| all.file_named(name)),
        Some(ReflectionQuery::Symbol(name)) => found(|all| all.file_with(name)),
        None => found(|_| None),
    };
    ReflectionResponse {
        host: request.host.clone(),
        original_request: Some(request),
        message: Some(message),
    }
}

/// Descriptors are looked through for each request, and dropped with it: who reflects is a person.
fn found(find: impl Fn(&DescriptorPool<'static>) -> Option<&'static [u8]>) -> ReflectionMessage {
    let wrong = |code: Code, message: &str| {
        ReflectionMessage::Wrong(Wrong {
            code: code.into(),
            message: message.to_owned(),
        })
    };
    match DescriptorPool::new(ENVOY).map(|pool| find(&pool)) {
        Ok(Some(file)) => ReflectionMessage::Files(DescriptorFiles {
            files: vec![Bytes::from_static(file)],
        }),
        Ok(None) => wrong(Code::NotFound, "no description of that"),
        Err(_) => wrong(Code::Internal, "cannot read the descriptors of messages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::prost_types::FileDescriptorProto;
    use prost_reflect::{DescriptorPool as ReflectPool, DynamicMessage};

    fn answer_to(what: ReflectionQuery) -> ReflectionMessage {
        let request = ReflectionRequest {
            host: "h".to_owned(),
            what: Some(what),
        };
        let answer = respond(request.clone());
        assert_eq!(
            (&*answer.host, answer.original_request),
            ("h", Some(request))
        );
        answer.message.unwrap()
    }

    #[test]
    fn services_are_listed_and_files_are_found_by_what_is_in_them() {
        let ReflectionMessage::Services(all) = answer_to(ReflectionQuery::Services(String::new()))
        else {
            panic!("services");
        };
        let names: Vec<_> = all.services.into_iter().map(|one| one.name).collect();
        assert_eq!(names, [DISCOVERY, health::SERVICE, SERVICE]);
        for (service, path) in names.iter().zip([
            "envoy/service/discovery/v3/ads.proto",
            "grpc/health/v1/health.proto",
            "grpc/reflection/v1/reflection.proto",
        ]) {
            for what in [
                ReflectionQuery::Symbol(service.clone()),
                ReflectionQuery::File(path.to_owned()),
            ] {
                let ReflectionMessage::Files(files) = answer_to(what) else {
                    panic!("{path}");
                };
                let file = FileDescriptorProto::decode(files.files[0].clone()).unwrap();
                assert_eq!(file.name(), path);
            }
        }
        for what in [
            ReflectionQuery::Symbol("x.Y".to_owned()),
            ReflectionQuery::File("x".to_owned()),
        ] {
            assert!(matches!(answer_to(what), ReflectionMessage::Wrong(wrong) if wrong.code == 5));
        }
    }
    /// As another reader of descriptors understands them, and with what is spoken here.
    #[test]
    fn all_services_are_described_with_their_messages() {
        let all = ReflectPool::decode(ENVOY).unwrap();
        for (service, methods) in [
            (health::SERVICE, &["Check", "Watch"][..]),
            (SERVICE, &["ServerReflectionInfo"]),
        ] {
            let service = all.get_service_by_name(service).unwrap();
            let mut found: Vec<_> = service.methods().map(|one| one.name().to_owned()).collect();
            found.sort();
            assert_eq!(found, methods);
        }
        let request = ReflectionRequest {
            host: "h".to_owned(),
            what: Some(ReflectionQuery::Symbol("x.Y".to_owned())),
        };
        let answer = respond(request).encode_to_vec();
        let kind = all.get_message_by_name("grpc.reflection.v1.ServerReflectionResponse");
        let read = DynamicMessage::decode(kind.unwrap(), &*answer).unwrap();
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            serde_json::json!({
                "validHost": "h",
                "originalRequest": {"host": "h", "fileContainingSymbol": "x.Y"},
                "errorResponse": {"errorCode": 5, "errorMessage": "no description of that"},
            })
        );
    }
}
