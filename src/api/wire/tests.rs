//! The wire against its own way back, against prost's, and against what never was a message.

use base64::Engine as _;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::config::{Severity, read_message};
use crate::proto_json::{BASE64, canonical};
use crate::schema::{self, Field, FieldKind, Key, Message, Shape};
use crate::{duration, timestamp};

/// All messages that objects are made of.
fn messages() -> Vec<&'static Message> {
    let mut messages: Vec<&'static Message> = crate::config::KINDS
        .iter()
        .map(|row| row.message)
        .chain([
            &schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG,
            &schema::ISTIO_MESH_V1ALPHA1_MESHNETWORKS,
        ])
        .collect();
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        for field in message.fields {
            if let FieldKind::Message(inner) = field.kind
                && !messages.iter().any(|known| known.name == inner.name)
            {
                messages.push(inner);
            }
        }
        at += 1;
    }
    messages.sort_by_key(|message| message.name);
    messages.dedup_by_key(|message| message.name);
    messages
}

/// JSON in its one spelling, without what the wire does not show: values that are their field's default.
fn value_of(message: &'static Message, depth: u32) -> BoxedStrategy<Json> {
    let fields: Vec<_> = message
        .fields
        .iter()
        .map(|field| {
            let name = field.json.to_owned();
            (
                Just(name),
                proptest::option::weighted(0.4, field_of(field, depth)),
            )
        })
        .collect();
    fields
        .prop_map(move |fields| {
            let mut out = Map::new();
            let mut groups = Vec::new();
            for (name, value) in fields {
                let group = message.field(&name).and_then(|field| field.oneof);
                let Some(value) = value.filter(|_| group.is_none() || !groups.contains(&group))
                else {
                    continue;
                };
                groups.push(group);
                out.insert(name, value);
            }
            Json::Object(out)
        })
        .boxed()
}

fn field_of(field: &'static Field, depth: u32) -> BoxedStrategy<Json> {
    let one = single(field.kind, depth);
    // A wrapper is there for its zero.
    let presence = field.presence || matches!(field.kind, FieldKind::Wrapper(_));
    match field.shape {
        Shape::One => one
            .prop_filter("the wire does not show it", move |value| {
                presence || !is_default(value)
            })
            .boxed(),
        Shape::List => proptest::collection::vec(one, 1..3)
            .prop_map(Json::from)
            .boxed(),
        Shape::Map(by) => {
            let key = match by {
                Key::String => "\\PC{0,4}".boxed(),
                Key::Uint32 => any::<u32>().prop_map(|key| key.to_string()).boxed(),
            };
            proptest::collection::btree_map(key, one, 1..3)
                .prop_map(|entries| Json::Object(entries.into_iter().collect()))
                .boxed()
        }
    }
}

fn is_default(value: &Json) -> bool {
    matches!(value, Json::Bool(false)) || value == "" || value == "0" || value == 0 || value == 0.0
}

fn single(kind: FieldKind, depth: u32) -> BoxedStrategy<Json> {
    match kind {
        FieldKind::String => "\\PC{0,8}".prop_map(Json::from).boxed(),
        FieldKind::Bytes => any::<Vec<u8>>()
            .prop_map(|bytes| Json::from(BASE64.encode(bytes)))
            .boxed(),
        FieldKind::Bool => any::<bool>().prop_map(Json::from).boxed(),
        FieldKind::Int32 => any::<i32>().prop_map(Json::from).boxed(),
        FieldKind::Uint32 => any::<u32>().prop_map(Json::from).boxed(),
        FieldKind::Int64 => any::<i64>()
            .prop_map(|value| Json::from(value.to_string()))
            .boxed(),
        FieldKind::Uint64 => any::<u64>()
            .prop_map(|value| Json::from(value.to_string()))
            .boxed(),
        FieldKind::Float => any::<f32>()
            .prop_map(|value| Json::from(f64::from(value)))
            .boxed(),
        FieldKind::Double => any::<f64>().prop_map(Json::from).boxed(),
        // The first is the default, where it stands alone.
        FieldKind::Enum(kinds) => (kinds.values.len().min(2) - 1..kinds.values.len())
            .prop_map(|at| Json::from(kinds.values[at].0))
            .boxed(),
        FieldKind::Message(_) if depth == 0 => Just(json!({})).boxed(),
        FieldKind::Message(message) => value_of(message, depth - 1),
        FieldKind::Duration => (-10_000_000_000_000_000_i64..10_000_000_000_000_000)
            .prop_map(|nanos| {
                let read = duration::parse(&format!("{nanos}ns")).unwrap();
                Json::from(duration::canonical(&read))
            })
            .boxed(),
        FieldKind::Timestamp => (-60_000_000_000_i64..250_000_000_000, 0..1_000_000_000_i32)
            .prop_map(|(seconds, nanos)| {
                Json::from(timestamp::text(&crate::google::protobuf::Timestamp {
                    seconds,
                    nanos,
                }))
            })
            .boxed(),
        FieldKind::Wrapper(kind) => single(*kind, depth),
        FieldKind::Struct => proptest::collection::btree_map("\\PC{0,4}", free(), 0..3)
            .prop_map(|fields| Json::Object(fields.into_iter().collect()))
            .boxed(),
        FieldKind::Any => unreachable!("objects have none"),
    }
}

/// Any JSON, numbers as doubles.
fn free() -> BoxedStrategy<Json> {
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<f64>().prop_map(canonical),
        "\\PC{0,4}".prop_map(Json::from),
    ]
    .prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
            proptest::collection::btree_map("\\PC{0,4}", inner, 0..3)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
    .boxed()
}

/// The same with all keys the other way round, and in the other spelling.
fn reordered(message: &'static Message, value: &Json) -> Json {
    let Json::Object(fields) = value else {
        return value.clone();
    };
    let entries = fields.iter().rev().map(|(name, value)| {
        let field = message.field(name).unwrap();
        let inner = |value: &Json| {
            let FieldKind::Message(inner) = field.kind else {
                return value.clone();
            };
            reordered(inner, value)
        };
        let value = match (field.shape, value) {
            (Shape::List, Json::Array(items)) => items.iter().map(inner).collect(),
            (Shape::Map(_), Json::Object(entries)) => Json::Object(
                entries
                    .iter()
                    .rev()
                    .map(|(key, value)| (key.clone(), inner(value)))
                    .collect(),
            ),
            (_, value) => inner(value),
        };
        (field.name.to_owned(), value)
    });
    Json::Object(entries.collect())
}

/// A message with one of its values.
fn some() -> impl Strategy<Value = (&'static Message, Json)> {
    proptest::sample::select(messages())
        .prop_flat_map(|message| value_of(message, 2).prop_map(move |value| (message, value)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encoded_messages_decode_to_the_same((message, value) in some()) {
        let bytes = encode(message, &value);
        prop_assert_eq!(decode(message, &bytes).unwrap(), value, "{}", message.name);
    }

    #[test]
    fn order_and_spelling_change_nothing((message, value) in some()) {
        let other = reordered(message, &value);
        let (read, findings) = read_message(message, &other, Severity::Error);
        prop_assert!(findings.iter().all(|finding| finding.severity == Severity::Warning), "{findings:?}");
        prop_assert_eq!(&read, &value);
        prop_assert_eq!(encode(message, &read), encode(message, &value));
    }

    #[test]
    fn no_bytes_are_too_much(message in proptest::sample::select(messages()), bytes: Vec<u8>) {
        if let Ok(value) = decode(message, &bytes) {
            // What a newer writer sends may have no name here; it comes to rest all the same.
            let again = decode(message, &encode(message, &value)).unwrap();
            prop_assert_eq!(encode(message, &again), encode(message, &value));
        }
    }

    #[test]
    fn no_cut_message_is_too_much((message, value) in some(), cut: proptest::sample::Index) {
        let bytes = encode(message, &value);
        let cut = cut.index(bytes.len() + 1);
        let _any = decode(message, &bytes[..cut]);
    }

    #[test]
    fn no_json_is_too_much(message in proptest::sample::select(messages()), value in free()) {
        let (read, _) = read_message(message, &value, Severity::Error);
        let bytes = encode(message, &read);
        prop_assert!(decode(message, &bytes).is_ok());
    }

    #[test]
    fn unknown_fields_are_skipped((message, value) in some(), extra: Vec<u8>, number in 100_000_u32..500_000) {
        let bytes = encode(message, &value);
        let mut more = Vec::new();
        for wire_type in [VARINT, FIXED64, FIXED32, BYTES, GROUP] {
            prost::encoding::encode_varint(u64::from(number << 3 | wire_type), &mut more);
            match wire_type {
                FIXED64 => more.extend_from_slice(&[1; 8]),
                FIXED32 => more.extend_from_slice(&[1; 4]),
                BYTES => {
                    prost::encoding::encode_varint(extra.len() as u64, &mut more);
                    more.extend_from_slice(&extra);
                }
                GROUP => {
                    more.extend_from_slice(&[1 << 3, 5]);
                    prost::encoding::encode_varint(u64::from(number << 3 | GROUP_END), &mut more);
                }
                _ => more.push(7),
            }
        }
        more.extend_from_slice(&bytes);
        prop_assert_eq!(decode(message, &more).unwrap(), value);
    }
}

#[test]
fn there_are_as_many_messages_as_there_should_be() {
    assert!(messages().len() > 150, "{}", messages().len());
}

#[test]
fn prost_reads_and_writes_the_same() {
    use crate::istio::networking::v1alpha3::ServiceEntry;
    let value = json!({
        "hosts": ["a", "b"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "location": "MESH_INTERNAL", "resolution": "DYNAMIC_DNS",
        "endpoints": [{"address": "10.0.0.1", "ports": {"http": 8080, "x": 1}, "weight": 0}],
        "workloadSelector": {"labels": {"b": "2", "a": "1"}},
    });
    let bytes = encode(&schema::ISTIO_NETWORKING_V1ALPHA3_SERVICEENTRY, &value);
    let typed = <ServiceEntry as prost::Message>::decode(bytes.as_slice()).unwrap();
    assert_eq!(prost::Message::encode_to_vec(&typed), bytes);
    assert_eq!(
        crate::read::to_json(&typed).unwrap(),
        *value.as_object().unwrap()
    );
}

#[test]
fn lists_of_numbers_are_read_packed_and_not() {
    let message = &schema::ISTIO_RBAC_V1ALPHA1_ACCESSRULE;
    let value = json!({"ports": [1, 300]});
    assert_eq!(encode(message, &value), [9 << 3 | 2, 3, 1, 0xac, 2]);
    assert_eq!(
        decode(message, &[9 << 3, 1, 9 << 3, 0xac, 2]).unwrap(),
        value
    );
}

#[test]
fn the_last_of_several_counts_and_messages_merge() {
    let message = &schema::ISTIO_NETWORKING_V1ALPHA3_DESTINATION;
    let parts: Vec<u8> = [
        json!({"host": "a", "subset": "x"}),
        json!({"host": "b", "port": {"number": 1}}),
    ]
    .iter()
    .flat_map(|part| encode(message, part))
    .collect();
    assert_eq!(
        decode(message, &parts).unwrap(),
        json!({"host": "b", "subset": "x", "port": {"number": 1}})
    );
    let message = &schema::ISTIO_NETWORKING_V1ALPHA3_STRINGMATCH;
    let parts: Vec<u8> = [json!({"exact": "a"}), json!({"prefix": ""})]
        .iter()
        .flat_map(|part| encode(message, part))
        .collect();
    assert_eq!(decode(message, &parts).unwrap(), json!({"prefix": ""}));
}

#[test]
fn decoding_errors_name_their_cause() {
    let message = &schema::ISTIO_NETWORKING_V1ALPHA3_DESTINATION;
    for (bytes, want) in [
        (&[0x0a][..], DecodeError::Short),
        (&[0x0a, 5, b'a'], DecodeError::Short),
        (&[0x0a, 1, 0xff], DecodeError::Text),
        (&[0x08, 1], DecodeError::WireType),
        (&[0x00], DecodeError::WireType),
        (&[0x0f], DecodeError::WireType),
        (&[0x84, 1], DecodeError::WireType),
    ] {
        assert_eq!(decode(message, bytes), Err(want), "{bytes:?}");
    }
    let mut deep = [0x83_u8, 1].repeat(MAX_DEPTH + 1);
    assert_eq!(decode(message, &deep), Err(DecodeError::Deep));
    deep.truncate(2);
    assert_eq!(decode(message, &deep), Err(DecodeError::Short));
    // A Value in a list in a Value, again and again.
    let mut value = vec![0x08, 0];
    for _ in 0..MAX_DEPTH {
        for tag in [0x0a, 0x32] {
            let mut outer = vec![tag];
            prost::encoding::encode_varint(value.len() as u64, &mut outer);
            outer.append(&mut value);
            value = outer;
        }
    }
    let entry = [
        vec![0x0a, 1, b'a', 0x12],
        {
            let mut length = Vec::new();
            prost::encoding::encode_varint(value.len() as u64, &mut length);
            length
        },
        value,
    ]
    .concat();
    let mut fields = vec![0x0a];
    prost::encoding::encode_varint(entry.len() as u64, &mut fields);
    fields.extend(entry);
    assert_eq!(decode_struct(&fields), Err(DecodeError::Deep));
}
