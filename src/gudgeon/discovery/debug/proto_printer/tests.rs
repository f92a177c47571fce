//! Every kind of field, as bytes and as JSON; and that another reader of descriptors says the same.

use prost::Message as _;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, OneofDescriptorProto,
};
use prost_reflect::{DescriptorPool as ReflectPool, DynamicMessage, SerializeOptions};
use serde_json::{Value, json};

use api::envoy::{DescriptorPool, kind};

use super::printed;

fn field(name: &str, number: i32, of: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(of.into()),
        type_name: (!type_name.is_empty()).then(|| type_name.to_owned()),
        ..FieldDescriptorProto::default()
    }
}

fn list(name: &str, number: i32, of: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated.into()),
        ..field(name, number, of, type_name)
    }
}

fn in_group(group: i32, field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto {
        oneof_index: Some(group),
        ..field
    }
}

fn message(name: &str, fields: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields,
        ..DescriptorProto::default()
    }
}

fn entry(name: &str, key: Type, value: FieldDescriptorProto) -> DescriptorProto {
    DescriptorProto {
        options: Some(MessageOptions {
            map_entry: Some(true),
            ..MessageOptions::default()
        }),
        ..message(name, vec![field("key", 1, key, ""), value])
    }
}

const SCALARS: [(&str, Type); 15] = [
    ("double", Type::Double),
    ("float", Type::Float),
    ("int64", Type::Int64),
    ("uint64", Type::Uint64),
    ("int32", Type::Int32),
    ("fixed64", Type::Fixed64),
    ("fixed32", Type::Fixed32),
    ("bool", Type::Bool),
    ("string", Type::String),
    ("bytes", Type::Bytes),
    ("uint32", Type::Uint32),
    ("sfixed32", Type::Sfixed32),
    ("sfixed64", Type::Sfixed64),
    ("sint32", Type::Sint32),
    ("sint64", Type::Sint64),
];

fn file(name: &str, package: &str, messages: Vec<DescriptorProto>) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        message_type: messages,
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

/// One message with all that there is.
fn all() -> DescriptorProto {
    let numbered = (1..).zip(SCALARS);
    let mut fields: Vec<_> = numbered
        .map(|(number, (name, of))| field(name, number, of, ""))
        .collect();
    let known = |name: &str| format!(".google.protobuf.{name}");
    fields.extend([
        field("color", 16, Type::Enum, ".t.Color"),
        field("inner", 17, Type::Message, ".t.All"),
        list("numbers", 20, Type::Sint32, ""),
        list("texts", 21, Type::String, ""),
        list("colors", 22, Type::Enum, ".t.Color"),
        list("floats", 23, Type::Float, ""),
        list("inners", 24, Type::Message, ".t.All"),
        list("by_text", 25, Type::Message, ".t.All.ByTextEntry"),
        list("by_flag", 26, Type::Message, ".t.All.ByFlagEntry"),
        in_group(0, field("one_text", 30, Type::String, "")),
        in_group(0, field("one_number", 31, Type::Int32, "")),
        in_group(0, field("one_inner", 32, Type::Message, ".t.All")),
        FieldDescriptorProto {
            proto3_optional: Some(true),
            ..in_group(1, field("maybe", 33, Type::Int32, ""))
        },
        field("any", 40, Type::Message, &known("Any")),
        field("duration", 41, Type::Message, &known("Duration")),
        field("timestamp", 42, Type::Message, &known("Timestamp")),
        field("struct", 43, Type::Message, &known("Struct")),
        field("value", 44, Type::Message, &known("Value")),
        field("list_value", 45, Type::Message, &known("ListValue")),
        field("wrapped", 46, Type::Message, &known("Int64Value")),
        field("wrapped_flag", 47, Type::Message, &known("BoolValue")),
        field("empty", 48, Type::Message, &known("Empty")),
    ]);
    let group = |name: &str| OneofDescriptorProto {
        name: Some(name.to_owned()),
        ..OneofDescriptorProto::default()
    };
    DescriptorProto {
        nested_type: vec![
            entry(
                "ByTextEntry",
                Type::String,
                field("value", 2, Type::Int32, ""),
            ),
            entry(
                "ByFlagEntry",
                Type::Bool,
                field("value", 2, Type::Message, ".t.All"),
            ),
        ],
        oneof_decl: vec![group("one"), group("_maybe")],
        ..message("All", fields)
    }
}

fn set() -> Vec<u8> {
    let value = |name: &str, number| EnumValueDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        ..EnumValueDescriptorProto::default()
    };
    let google = ReflectPool::global();
    let mut files: Vec<_> = google.file_descriptor_protos().cloned().collect();
    files.push(FileDescriptorProto {
        enum_type: vec![EnumDescriptorProto {
            name: Some("Color".to_owned()),
            value: vec![value("NONE", 0), value("RED", 1), value("ODD", -1)],
            ..EnumDescriptorProto::default()
        }],
        dependency: [
            "any",
            "duration",
            "empty",
            "struct",
            "timestamp",
            "wrappers",
        ]
        .map(|name| format!("google/protobuf/{name}.proto"))
        .to_vec(),
        ..file("t.proto", "t", vec![all()])
    });
    FileDescriptorSet { file: files }.encode_to_vec()
}

/// As the wire has it: a tag, and what stands behind it.
fn tagged(number: u32, form: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(u64::from(number << 3 | form), &mut out);
    if form == 2 {
        prost::encoding::encode_varint(value.len() as u64, &mut out);
    }
    out.extend_from_slice(value);
    out
}

fn varint(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(value, &mut out);
    tagged(number, 0, &out)
}

fn part(number: u32, bytes: &[u8]) -> Vec<u8> {
    tagged(number, 2, bytes)
}

const MINUS: u64 = u64::MAX;

fn scalars() -> Vec<(Vec<u8>, Value)> {
    vec![
        (vec![], json!({})),
        (tagged(1, 1, &1.5_f64.to_le_bytes()), json!({"double": 1.5})),
        (
            tagged(1, 1, &f64::NAN.to_le_bytes()),
            json!({"double": "NaN"}),
        ),
        (
            tagged(2, 5, &(-0.5_f32).to_le_bytes()),
            json!({"float": -0.5}),
        ),
        (
            tagged(2, 5, &f32::INFINITY.to_le_bytes()),
            json!({"float": "Infinity"}),
        ),
        (
            tagged(2, 5, &f32::NEG_INFINITY.to_le_bytes()),
            json!({"float": "-Infinity"}),
        ),
        (varint(3, MINUS), json!({"int64": "-1"})),
        (varint(4, MINUS), json!({"uint64": "18446744073709551615"})),
        (varint(5, MINUS), json!({"int32": -1})),
        (tagged(6, 1, &7_u64.to_le_bytes()), json!({"fixed64": "7"})),
        (tagged(7, 5, &7_u32.to_le_bytes()), json!({"fixed32": 7})),
        (varint(8, 1), json!({"bool": true})),
        (part(9, "é".as_bytes()), json!({"string": "é"})),
        (part(10, &[0xfb, 0xff]), json!({"bytes": "+/8="})),
        (
            varint(11, u64::from(u32::MAX)),
            json!({"uint32": 4_294_967_295_u32}),
        ),
        (
            tagged(12, 5, &(-7_i32).to_le_bytes()),
            json!({"sfixed32": -7}),
        ),
        (
            tagged(13, 1, &(-7_i64).to_le_bytes()),
            json!({"sfixed64": "-7"}),
        ),
        (varint(14, 3), json!({"sint32": -2})),
        (varint(15, MINUS), json!({"sint64": i64::MIN.to_string()})),
        (varint(16, 1), json!({"color": "RED"})),
        (varint(16, MINUS), json!({"color": "ODD"})),
        (varint(16, 9), json!({"color": 9})),
        // Defaults are as good as nothing, and the last counts.
        (
            [varint(5, 0), part(9, b""), varint(8, 0), varint(16, 0)].concat(),
            json!({}),
        ),
        ([varint(5, 3), varint(5, 4)].concat(), json!({"int32": 4})),
        ([varint(5, 3), varint(5, 0)].concat(), json!({})),
        // Not described.
        (
            [varint(900, 3), part(901, b"x"), varint(5, 4)].concat(),
            json!({"int32": 4}),
        ),
    ]
}

fn shapes() -> Vec<(Vec<u8>, Value)> {
    let text = |key: &[u8], value: u64| [part(1, key), varint(2, value)].concat();
    vec![
        (part(17, &[]), json!({"inner": {}})),
        (
            [part(17, &varint(5, 1)), part(17, &varint(8, 1))].concat(),
            json!({"inner": {"int32": 1, "bool": true}}),
        ),
        (part(20, &[2, 1, 0xac, 2]), json!({"numbers": [1, -1, 150]})),
        (
            [varint(20, 2), part(20, &[1]), varint(20, 0)].concat(),
            json!({"numbers": [1, -1, 0]}),
        ),
        (
            [part(21, b"a"), part(21, b"")].concat(),
            json!({"texts": ["a", ""]}),
        ),
        (part(22, &[1, 0, 9]), json!({"colors": ["RED", "NONE", 9]})),
        (
            part(23, &[0, 0, 0, 63, 0, 0, 0, 0]),
            json!({"floats": [0.5, 0.0]}),
        ),
        (
            [part(24, &[]), part(24, &varint(5, 1))].concat(),
            json!({"inners": [{}, {"int32": 1}]}),
        ),
        (
            [
                part(25, &text(b"a", 1)),
                part(25, &[]),
                part(25, &text(b"a", 2)),
            ]
            .concat(),
            json!({"by_text": {"a": 2, "": 0}}),
        ),
        (
            [part(26, &varint(1, 1)), part(26, &part(2, &varint(5, 1)))].concat(),
            json!({"by_flag": {"true": {}, "false": {"int32": 1}}}),
        ),
        (part(30, b""), json!({"one_text": ""})),
        (
            [part(30, b"a"), varint(31, 0)].concat(),
            json!({"one_number": 0}),
        ),
        (
            [varint(31, 5), part(32, &varint(5, 1))].concat(),
            json!({"one_inner": {"int32": 1}}),
        ),
        (varint(33, 0), json!({"maybe": 0})),
    ]
}

fn well_known() -> Vec<(Vec<u8>, Value)> {
    let packed = |name: &str, value: &[u8]| {
        let url = format!("type.googleapis.com/{name}");
        [part(1, url.as_bytes()), part(2, value)].concat()
    };
    let all = |value: &[u8]| packed("t.All", value);
    let moment = |seconds, nanos| [varint(1, seconds), varint(2, nanos)].concat();
    let text = |text: &[u8]| part(3, text);
    vec![
        (
            part(40, &all(&part(40, &all(&varint(5, 1))))),
            json!({"any": {
                "@type": "type.googleapis.com/t.All",
                "any": {"@type": "type.googleapis.com/t.All", "int32": 1},
            }}),
        ),
        (
            part(40, &packed("google.protobuf.Duration", &moment(1, 0))),
            json!({"any": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}}),
        ),
        (
            part(41, &moment(1, 500_000_000)),
            json!({"duration": "1.500s"}),
        ),
        (part(41, &[]), json!({"duration": "0s"})),
        (
            part(42, &moment(1, 0)),
            json!({"timestamp": "1970-01-01T00:00:01Z"}),
        ),
        (
            part(
                43,
                &part(1, &[part(1, b"a"), part(2, &text(b"b"))].concat()),
            ),
            json!({"struct": {"a": "b"}}),
        ),
        (part(44, &varint(4, 1)), json!({"value": true})),
        (
            part(45, &part(1, &text(b"a"))),
            json!({"list_value": ["a"]}),
        ),
        (part(46, &varint(1, MINUS)), json!({"wrapped": "-1"})),
        (part(46, &[]), json!({"wrapped": "0"})),
        (part(47, &varint(1, 1)), json!({"wrapped_flag": true})),
        (part(48, &[]), json!({"empty": {}})),
    ]
}

#[test]
fn every_kind_of_field_is_printed_as_another_reader_has_it() {
    let set = set();
    let own_pool = DescriptorPool::new(&set).unwrap();
    let pool = ReflectPool::decode(set.as_slice()).unwrap();
    let described = pool.get_message_by_name("t.All").unwrap();
    let options = SerializeOptions::new().use_proto_field_name(true);
    for (bytes, want) in [scalars(), shapes(), well_known()].concat() {
        assert_eq!(
            printed(&own_pool, "t.All", &bytes),
            Ok(want.clone()),
            "{bytes:?}"
        );
        let other = DynamicMessage::decode(described.clone(), bytes.as_slice()).unwrap();
        let other = other.serialize_with_options(serde_json::value::Serializer, &options);
        assert_eq!(other.unwrap(), want, "{bytes:?}");
    }
}

#[test]
fn malformed_bytes_are_an_error() {
    let set = set();
    let all = DescriptorPool::new(&set).unwrap();
    let nested = (0..200).fold(Vec::new(), |inner, _| part(17, &inner));
    let unknown = [part(1, b"type.googleapis.com/x.Y"), part(2, b"")].concat();
    for (bytes, want) in [
        (part(9, &[0xff]), "text that is not UTF-8"),
        (vec![9 << 3 | 2, 5, b'a'], "the message ends early"),
        (vec![0], "a field of another wire type"),
        (part(5, b"a"), "int32: a field of another wire type"),
        (varint(17, 1), "inner: a field of another wire type"),
        (
            [varint(17, 1), varint(17, 1)].concat(),
            "a field of another wire type",
        ),
        (varint(25, 1), "a field of another wire type"),
        (part(23, &[1]), "the message ends early"),
        (part(17, &[0x80]), "the message ends early"),
        (nested, "nested too deeply"),
        (part(40, &unknown), "no description of x.Y"),
        (part(40, &[0xff]), "the message ends early"),
    ] {
        assert_eq!(
            printed(&all, "t.All", &bytes),
            Err(want.to_owned()),
            "{bytes:?}"
        );
    }
    assert_eq!(
        printed(&all, "t.None", &[]),
        Err("no description of t.None".to_owned())
    );
    for (bytes, _) in [scalars(), shapes(), well_known()].concat() {
        for cut in 0..bytes.len() {
            // Said or refused, and no more.
            drop(printed(&all, "t.All", &bytes[..cut]));
        }
    }
    for cut in 0..set.len().min(2000) {
        drop(DescriptorPool::new(&set[..cut]));
    }
}

#[test]
fn numbers_of_kinds_are_those_of_descriptions() {
    for (ours, theirs) in [
        (kind::DOUBLE, Type::Double),
        (kind::FLOAT, Type::Float),
        (kind::INT64, Type::Int64),
        (kind::STRING, Type::String),
        (kind::MESSAGE, Type::Message),
        (kind::ENUM, Type::Enum),
        (kind::SINT64, Type::Sint64),
    ] {
        assert_eq!(ours, u64::try_from(i32::from(theirs)).unwrap());
    }
}

/// The values of users' EnvoyFilters become the bytes that another reader of descriptors makes of them.
#[test]
fn json_is_encoded_as_another_encoder_does() {
    let text = include_str!("../../../../../tests/data/envoy-filter.yaml");
    let limits = api::yaml::Limits {
        bytes: 100_000,
        depth: 50,
        nodes: 10_000,
    };
    let spec = api::yaml::read(text, limits).unwrap().unwrap().to_json();
    let pool = ReflectPool::decode(api::envoy::ENVOY).unwrap();
    let mut count = 0;
    for patch in spec["configPatches"].as_array().unwrap() {
        let name =
            api::config::discovery_notes::patched_message(patch["applyTo"].as_str().unwrap());
        let message = pool.get_message_by_name(name.unwrap()).unwrap();
        let value = &patch["patch"]["value"];
        // The other one does not know what took the place of types of the v2 API, nor what a TypedStruct stands for.
        let unknown = [".v2.", ".TypedStruct"];
        if value.is_null() || unknown.iter().any(|part| value.to_string().contains(part)) {
            continue;
        }
        let other = DynamicMessage::deserialize(message.clone(), value.clone()).unwrap();
        let own = api::envoy::encode(name.unwrap(), value, "").unwrap();
        let own = DynamicMessage::decode(message, own.as_slice()).unwrap();
        let json = |message: &DynamicMessage| {
            let options = SerializeOptions::new().use_proto_field_name(true);
            let json = message.serialize_with_options(serde_json::value::Serializer, &options);
            json.unwrap()
        };
        assert_eq!(json(&own), json(&other), "{value}");
        count += 1;
    }
    assert!(count > 12, "{count}");
}
