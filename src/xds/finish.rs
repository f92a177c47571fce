//! The last step: Envoy's messages become bytes, all of them here.
//!
//! Generators and rules work on values. [`Draft::finish`] encodes one, hashes it and keeps the objects that it was made from.
//! Equal messages have equal bytes on every replica: `envoy-types` holds maps in hash maps, which are written in any order, so
//! messages whose maps may have several entries are sorted on the wire ([`sort`]), and those that are made by the thousand are
//! declared with ordered maps in [`wire`].

use std::ops::Range;
use std::sync::Arc;

use api::model::ObjectRef;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use prost::Message;

use crate::common::wire::{self, ClusterLoadAssignment, ClusterTail};
use crate::view::Resource;

/// A resource that is being made.
#[derive(Clone, Debug)]
pub(crate) struct Draft<M> {
    pub(crate) name: Arc<str>,
    pub(crate) message: M,
    /// Rules that had a part in it, besides the services that it is about.
    pub(crate) from: Vec<ObjectRef>,
}

/// A cluster, what its connections are if they carry HTTP, and its endpoints where it has them itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterParts {
    pub(crate) cluster: Cluster,
    pub(crate) http: Option<HttpProtocolOptions>,
    pub(crate) endpoints: ClusterTail,
}

/// The name of the HTTP options among a cluster's extensions.
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// A message of a resource.
pub(crate) trait Encode {
    fn encode(self) -> Vec<u8>;

    /// The resource of encoded bytes.
    fn resource(name: Arc<str>, body: Vec<u8>) -> Resource {
        Resource::new(name, body)
    }
}

impl<M> Draft<M> {
    pub(crate) fn new(name: impl Into<Arc<str>>, message: M) -> Self {
        Self {
            name: name.into(),
            message,
            from: Vec::new(),
        }
    }
}

impl<M: Encode> Draft<M> {
    pub(crate) fn finish(self) -> Resource {
        Resource {
            from: self.from.into(),
            ..M::resource(self.name, self.message.encode())
        }
    }
}

impl<M: Encode> Draft<M> {
    /// Encodes a message of this name of which users wrote a part, with the entries of its maps sorted: any map may have
    /// several entries.
    pub(crate) fn finish_canonical(self, message: &str) -> Resource {
        let body = api::envoy::canonical(message, &self.message.encode());
        Resource {
            from: self.from.into(),
            ..M::resource(self.name, body)
        }
    }
}

impl Encode for ClusterParts {
    fn encode(self) -> Vec<u8> {
        let mut cluster = self.cluster;
        if let Some(http) = &self.http {
            let extensions = &mut cluster.typed_extension_protocol_options;
            extensions.insert(HTTP_OPTIONS.to_owned(), wire::any(http));
        }
        let mut body = cluster.encode_to_vec();
        // A message may come in parts.
        body.extend(self.endpoints.encode_to_vec());
        body
    }
}

impl Encode for ClusterLoadAssignment {
    fn encode(self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

impl Encode for Listener {
    fn encode(self) -> Vec<u8> {
        self.encode_to_vec()
    }

    fn resource(name: Arc<str>, body: Vec<u8>) -> Resource {
        Resource::listener(name, body)
    }
}

impl Encode for Secret {
    fn encode(self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

impl Encode for RouteConfiguration {
    fn encode(self) -> Vec<u8> {
        let mut body = self.encode_to_vec();
        sort(&mut body, ROUTE_CONFIGURATION);
        body
    }
}

/// A field that is a map, or that has some below it.
struct Field {
    number: u32,
    kind: FieldKind,
}

enum FieldKind {
    Map,
    Message(&'static [Field]),
}

const fn map(number: u32) -> Field {
    let kind = FieldKind::Map;
    Field { number, kind }
}

const fn message(number: u32, below: &'static [Field]) -> Field {
    let kind = FieldKind::Message(below);
    Field { number, kind }
}

/// `typed_per_filter_config` wherever rules set it (envoy/config/route/v3/route.proto and route_components.proto).
const ROUTE_CONFIGURATION: &[Field] = &[message(2, VIRTUAL_HOST)];
const VIRTUAL_HOST: &[Field] = &[message(3, ROUTE), map(15)];
const ROUTE: &[Field] = &[message(2, ROUTE_ACTION), map(13)];
const ROUTE_ACTION: &[Field] = &[message(3, WEIGHTED_CLUSTERS)];
const WEIGHTED_CLUSTERS: &[Field] = &[message(1, &[map(10)])];

/// Brings the entries of maps into the order of their bytes: an entry begins with its key. No length changes by that.
fn sort(body: &mut [u8], fields: &[Field]) {
    let mut entries: Vec<(u32, Range<usize>)> = Vec::new();
    let mut at = 0;
    while let Some(part) = next(body, at) {
        let known = fields.iter().find(|field| field.number == part.number);
        match known.map(|field| &field.kind) {
            Some(FieldKind::Message(below)) => {
                if let Some(inner) = body.get_mut(part.content.clone()) {
                    sort(inner, below);
                }
            }
            Some(FieldKind::Map) => entries.push((part.number, part.start..part.content.end)),
            None => {}
        }
        at = part.content.end;
    }
    // The entries of a map stand in one piece.
    for one in entries.chunk_by(|(one, _), (other, _)| one == other) {
        let (Some((_, first)), Some((_, last))) = (one.first(), one.last()) else {
            continue;
        };
        let mut sorted: Vec<&[u8]> = one
            .iter()
            .filter_map(|(_, range)| body.get(range.clone()))
            .collect();
        // Behind its own length, which differs with the value's.
        sorted.sort_by_key(|entry| next(entry, 0).and_then(|part| entry.get(part.content)));
        let sorted = sorted.concat();
        if let Some(place) = body.get_mut(first.start..last.end)
            // Malformed bytes stay as they are: an entry that cannot be cut out would be lost.
            && place.len() == sorted.len()
        {
            place.copy_from_slice(&sorted);
        }
    }
}

/// A field with content of a known length.
struct DelimitedField {
    number: u32,
    /// The start of its key.
    start: usize,
    content: Range<usize>,
}

/// The field there; others than those with a length are passed over. `None` at the end.
fn next(body: &[u8], mut at: usize) -> Option<DelimitedField> {
    loop {
        let mut rest = body.get(at..).filter(|rest| !rest.is_empty())?;
        let whole = rest.len();
        let (number, kind) = prost::encoding::decode_key(&mut rest).ok()?;
        let skip = match kind {
            prost::encoding::WireType::LengthDelimited => {
                let length = prost::encoding::decode_varint(&mut rest).ok()?;
                let start = at + (whole - rest.len());
                let end = start.checked_add(usize::try_from(length).ok()?)?;
                let content = start..end;
                let part = DelimitedField {
                    number,
                    start: at,
                    content,
                };
                return (end <= body.len()).then_some(part);
            }
            prost::encoding::WireType::Varint => {
                prost::encoding::decode_varint(&mut rest).ok()?;
                0
            }
            prost::encoding::WireType::ThirtyTwoBit => 4,
            prost::encoding::WireType::SixtyFourBit => 8,
            prost::encoding::WireType::StartGroup | prost::encoding::WireType::EndGroup => {
                return None;
            }
        };
        at += whole - rest.len() + skip;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
    use envoy_types::pb::envoy::config::route::v3::{
        Route, RouteAction, VirtualHost, WeightedCluster, route, route_action,
    };
    use envoy_types::pb::google::protobuf::Any;

    use super::*;

    /// Each has a value of another length, and a hash map of its own seed.
    fn filters() -> HashMap<String, Any> {
        let any = |at: u8| Any {
            type_url: "a".repeat(at.into()),
            value: vec![at; 200 * usize::from(at)],
        };
        let names = (0..9).map(|at| (format!("filter-{at}"), any(9 - at)));
        names.collect()
    }

    fn routes() -> RouteConfiguration {
        let weight = ClusterWeight {
            name: "a".to_owned(),
            typed_per_filter_config: filters(),
            ..ClusterWeight::default()
        };
        let action = RouteAction {
            cluster_specifier: Some(route_action::ClusterSpecifier::WeightedClusters(
                WeightedCluster {
                    clusters: vec![weight.clone(), weight],
                    ..WeightedCluster::default()
                },
            )),
            ..RouteAction::default()
        };
        let route = Route {
            name: "b".to_owned(),
            action: Some(route::Action::Route(action)),
            typed_per_filter_config: filters(),
            ..Route::default()
        };
        RouteConfiguration {
            name: "80".to_owned(),
            virtual_hosts: vec![VirtualHost {
                name: "c".to_owned(),
                domains: vec!["*".to_owned()],
                routes: vec![route.clone(), route],
                include_request_attempt_count: true,
                typed_per_filter_config: filters(),
                ..VirtualHost::default()
            }],
            ..RouteConfiguration::default()
        }
    }

    #[test]
    fn equal_messages_have_equal_bytes_whatever_order_their_maps_are_in() {
        let first = Draft::new("80", routes()).finish();
        for _ in 0..20 {
            assert_eq!(Draft::new("80", routes()).finish().body, first.body);
        }
        let read = RouteConfiguration::decode(first.body.clone()).unwrap();
        assert_eq!(read, routes());
        assert!((0..20).any(|_| routes().encode_to_vec() != first.body));
    }

    #[test]
    fn malformed_bytes_stay_as_they_are() {
        for bytes in [
            &b"\x0a"[..],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x12\x05\x1a\x09\x0a",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0d\x01",
            b"\x0b\x0c",
        ] {
            let mut sorted = bytes.to_vec();
            sort(&mut sorted, ROUTE_CONFIGURATION);
            assert_eq!(sorted, bytes);
        }
    }

    #[test]
    fn a_resource_keeps_what_it_was_made_from() {
        let rule = ObjectRef {
            kind: "VirtualService",
            namespace: "demo".into(),
            name: "b".into(),
        };
        let draft = Draft {
            from: vec![rule.clone()],
            ..Draft::new("80", routes())
        };
        assert_eq!(*draft.finish().from, [rule]);
    }
}
