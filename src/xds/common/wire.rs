//! Small parts of Envoy's messages, each said once; and the few messages whose maps must come out in one order.
//!
//! `envoy-types` holds maps in hash maps, which are written in any order. A map of one entry has one order; where there may
//! be more, the message is declared here, with the same field numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use api::duration::MAX_ENVOY_SECONDS;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use envoy_types::pb::google::protobuf::{self, Any, BoolValue, UInt32Value};
use prost::{Message, Name};

pub(crate) fn any<M: Message + Name>(message: &M) -> Any {
    any_of(M::type_url(), message)
}

/// Packs a message under the type of another message that has the same form.
pub(crate) fn any_of(type_url: String, message: &impl Message) -> Any {
    Any {
        type_url,
        value: message.encode_to_vec(),
    }
}

/// Converts a duration, bounded by the longest one that Envoy takes: for a longer one Envoy would refuse the whole response.
pub(crate) fn duration(duration: Duration) -> protobuf::Duration {
    let duration = duration.min(Duration::from_secs(MAX_ENVOY_SECONDS));
    protobuf::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

pub(crate) const fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

pub(crate) const fn boolean(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

pub(crate) fn socket(address: IpAddr, port: u16) -> core::SocketAddress {
    core::SocketAddress {
        address: address.to_string(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port.into())),
        ..core::SocketAddress::default()
    }
}

pub(crate) fn address(address: IpAddr, port: u16) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(socket(address, port))),
    }
}

/// A socket; `mode`: of its file, 0: as Envoy makes it.
pub(crate) fn pipe(path: &str, mode: u32) -> core::Address {
    core::Address {
        address: Some(core::address::Address::Pipe(core::Pipe {
            path: path.to_owned(),
            mode,
        })),
    }
}

pub(crate) fn range(address: IpAddr, bits: u8) -> core::CidrRange {
    core::CidrRange {
        address_prefix: address.to_string(),
        prefix_len: number(bits.into()),
    }
}

pub(crate) const fn all_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns a source of resources that uses the requesting ADS stream.
pub(crate) fn ads(initial_fetch_timeout: Duration) -> core::ConfigSource {
    core::ConfigSource {
        initial_fetch_timeout: Some(duration(initial_fetch_timeout)),
        resource_api_version: core::ApiVersion::V3.into(),
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            core::AggregatedConfigSource {},
        )),
        ..core::ConfigSource::default()
    }
}

pub(crate) fn file(name: &str) -> core::DataSource {
    core::DataSource {
        specifier: Some(core::data_source::Specifier::Filename(name.to_owned())),
        ..core::DataSource::default()
    }
}

pub(crate) fn transport_socket<M: Message + Name>(
    name: &str,
    message: &M,
) -> core::TransportSocket {
    core::TransportSocket {
        name: name.to_owned(),
        config_type: Some(core::transport_socket::ConfigType::TypedConfig(any(
            message,
        ))),
    }
}

pub(crate) fn filter<M: Message + Name>(name: &str, message: &M) -> listener::Filter {
    filter_of(name, any(message))
}

/// Returns a filter whose message is given.
pub(crate) fn filter_of(name: &str, config: Any) -> listener::Filter {
    listener::Filter {
        name: name.to_owned(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(config)),
    }
}

pub(crate) fn http_filter(name: &str, config: Any) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(config)),
        ..HttpFilter::default()
    }
}

pub(crate) fn listener_filter<M: Message + Name>(
    name: &str,
    message: &M,
) -> listener::ListenerFilter {
    listener::ListenerFilter {
        name: name.to_owned(),
        config_type: Some(listener::listener_filter::ConfigType::TypedConfig(any(
            message,
        ))),
        ..listener::ListenerFilter::default()
    }
}

/// `google.protobuf.Struct` of texts and of such objects.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Object {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) fields: BTreeMap<String, Member>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Member {
    #[prost(oneof = "MemberKind", tags = "3")]
    pub(crate) kind: Option<MemberKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum MemberKind {
    #[prost(string, tag = "3")]
    Text(String),
}

impl Object {
    pub(crate) fn of<'text>(fields: impl IntoIterator<Item = (&'text str, &'text str)>) -> Self {
        let member = |text: &str| Member {
            kind: Some(MemberKind::Text(text.to_owned())),
        };
        Self {
            fields: fields
                .into_iter()
                .map(|(name, text)| (name.to_owned(), member(text)))
                .collect(),
        }
    }
}

/// `envoy.config.core.v3.Metadata`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) filter_metadata: BTreeMap<String, Object>,
}

/// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    pub(crate) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) endpoints: Vec<LocalityLbEndpoints>,
}

/// `envoy.config.endpoint.v3.LocalityLbEndpoints`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocalityLbEndpoints {
    #[prost(message, optional, tag = "1")]
    pub(crate) locality: Option<core::Locality>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) lb_endpoints: Vec<LbEndpoint>,
    #[prost(message, optional, tag = "3")]
    pub(crate) load_balancing_weight: Option<UInt32Value>,
    #[prost(uint32, tag = "5")]
    pub(crate) priority: u32,
}

/// `envoy.config.endpoint.v3.LbEndpoint`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    pub(crate) endpoint: Option<EndpointMessage>,
    #[prost(enumeration = "core::HealthStatus", tag = "2")]
    pub(crate) health_status: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "4")]
    pub(crate) load_balancing_weight: Option<UInt32Value>,
}

/// `envoy.config.endpoint.v3.Endpoint`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<core::Address>,
}

/// A part that is appended to an encoded cluster with endpoints of its own: fields of one message may come in parts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterTail {
    #[prost(message, optional, tag = "33")]
    pub(crate) load_assignment: Option<ClusterLoadAssignment>,
}

/// `SubstitutionFormatString` of JSON, in the only field of a logger to standard output.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JsonFormat {
    #[prost(message, optional, tag = "2")]
    pub(crate) json_format: Option<Object>,
}

/// `StdoutAccessLog` and `StderrAccessLog`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JsonStreamLog {
    #[prost(message, optional, tag = "1")]
    pub(crate) log_format: Option<JsonFormat>,
}

/// `FileAccessLog`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JsonFileLog {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) log_format: Option<JsonFormat>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
    use envoy_types::pb::envoy::extensions::access_loggers::file::v3::{
        FileAccessLog, file_access_log,
    };
    use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{
        StdoutAccessLog, stdout_access_log,
    };

    /// Read as Envoy's own message, all of it is there.
    #[test]
    fn own_messages_encode_as_those_of_envoy_types() {
        let metadata = Metadata {
            filter_metadata: BTreeMap::from([
                (
                    "istio".to_owned(),
                    Object::of([("network", "n"), ("uid", "u")]),
                ),
                (
                    "envoy.transport_socket_match".to_owned(),
                    Object::of([("tlsMode", "istio")]),
                ),
            ]),
        };
        let place = EndpointMessage {
            address: Some(address([10, 0, 0, 1].into(), 80)),
        };
        let assignment = ClusterLoadAssignment {
            cluster_name: "c".to_owned(),
            endpoints: vec![LocalityLbEndpoints {
                locality: Some(core::Locality {
                    region: "r".to_owned(),
                    ..core::Locality::default()
                }),
                lb_endpoints: vec![LbEndpoint {
                    endpoint: Some(place),
                    health_status: core::HealthStatus::Healthy.into(),
                    metadata: Some(metadata),
                    load_balancing_weight: number(2),
                }],
                load_balancing_weight: number(3),
                priority: 1,
            }],
        };
        let mut bytes = Cluster {
            name: "c".to_owned(),
            ..Cluster::default()
        }
        .encode_to_vec();
        ClusterTail {
            load_assignment: Some(assignment),
        }
        .encode(&mut bytes)
        .unwrap();
        let read = Cluster::decode(bytes.as_slice()).unwrap();
        assert_eq!(read.encoded_len(), bytes.len(), "nothing is unknown in it");
        let printed = format!("{read:?}");
        for part in [
            "\"uid\"",
            "\"tlsMode\"",
            "priority: 1",
            "Healthy",
            "value: 3",
        ] {
            assert!(printed.contains(part), "{part} in {printed}");
        }
    }

    /// The longest duration is one that Envoy 1.40 takes, by `--mode validate`.
    #[test]
    fn no_duration_is_longer_than_envoy_takes() {
        let seconds = |seconds| duration(Duration::new(seconds, 999_000_000)).seconds;
        assert_eq!(seconds(9_223_372_034), 9_223_372_034);
        for longer in [9_223_372_035, 9_223_372_036, u64::MAX] {
            assert_eq!(seconds(longer), 9_223_372_035);
            assert_eq!(duration(Duration::from_secs(longer)).nanos, 0);
        }
    }

    #[test]
    fn json_formats_are_the_same_on_the_wire() {
        let format = JsonFormat {
            json_format: Some(Object::of([("a", "%A%"), ("b", "%B%")])),
        };
        let stream = JsonStreamLog {
            log_format: Some(format.clone()),
        };
        let read = StdoutAccessLog::decode(stream.encode_to_vec().as_slice()).unwrap();
        let Some(stdout_access_log::AccessLogFormat::LogFormat(read)) = read.access_log_format
        else {
            panic!("a format");
        };
        assert!(
            matches!(read.format, Some(Format::JsonFormat(object)) if object.fields.len() == 2)
        );
        let file = JsonFileLog {
            path: "/log".to_owned(),
            log_format: Some(format),
        };
        let read = FileAccessLog::decode(file.encode_to_vec().as_slice()).unwrap();
        assert_eq!(read.path, "/log");
        assert!(matches!(
            read.access_log_format,
            Some(file_access_log::AccessLogFormat::LogFormat(_))
        ));
    }
}
