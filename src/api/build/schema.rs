//! The table of all messages and their fields, as Rust statics for `schema.rs` in the crate.

use std::fmt::Write as _;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// The text of all tables.
pub(crate) fn tables(set: &FileDescriptorSet) -> String {
    let mut text = String::new();
    for file in &set.file {
        let scope = format!(".{}", file.package());
        if file.package() == super::WELL_KNOWN {
            continue;
        }
        for message in &file.message_type {
            write_message(&scope, message, file.syntax() != "proto3", &mut text);
        }
        for kinds in &file.enum_type {
            write_enum(&scope, kinds, &mut text);
        }
    }
    text
}

fn write_message(scope: &str, message: &DescriptorProto, proto2: bool, text: &mut String) {
    let name = format!("{scope}.{}", message.name());
    let plain = name.trim_start_matches('.');
    let mut in_order: Vec<_> = message.field.iter().collect();
    in_order.sort_by_key(|field| field.number());
    let fields: String = in_order
        .into_iter()
        .map(|field| row(message, field, proto2))
        .collect();
    writeln!(
        text,
        "/// `{plain}`.\npub static {}: Message = Message {{ name: \"{plain}\", fields: &[{fields}] }};",
        constant(&name)
    )
    .expect("a string takes all");
    for inner in &message.nested_type {
        if !is_map_entry(inner) {
            write_message(&name, inner, proto2, text);
        }
    }
    for kinds in &message.enum_type {
        write_enum(&name, kinds, text);
    }
}

fn write_enum(scope: &str, kinds: &EnumDescriptorProto, text: &mut String) {
    let name = format!("{scope}.{}", kinds.name());
    let plain = name.trim_start_matches('.');
    let values: String = kinds
        .value
        .iter()
        .map(|value| format!("({:?}, {}),", value.name(), value.number()))
        .collect();
    writeln!(
        text,
        "/// `{plain}`.\npub static {}: Enum = Enum {{ name: \"{plain}\", values: &[{values}] }};",
        constant(&name)
    )
    .expect("a string takes all");
}

fn row(message: &DescriptorProto, field: &FieldDescriptorProto, proto2: bool) -> String {
    let entry = message.nested_type.iter().find(|inner| {
        is_map_entry(inner) && field.type_name().ends_with(&format!(".{}", inner.name()))
    });
    let (shape, kind) = match entry {
        Some(entry) => {
            let value = entry
                .field
                .iter()
                .find(|part| part.number() == 2)
                .expect("a map has values");
            (format!("Map({})", key(entry)), kind(value))
        }
        None if field.label() == Label::Repeated => ("List".to_owned(), kind(field)),
        None => ("One".to_owned(), kind(field)),
    };
    let oneof = field
        .oneof_index
        .and_then(|at| usize::try_from(at).ok())
        .and_then(|at| message.oneof_decl.get(at))
        .filter(|_| !field.proto3_optional())
        .map_or_else(
            || "None".to_owned(),
            |oneof| format!("Some({:?})", oneof.name()),
        );
    let presence = field.oneof_index.is_some() || proto2 && field.label() == Label::Optional;
    let deprecated = field
        .options
        .as_ref()
        .is_some_and(prost_types::FieldOptions::deprecated);
    format!(
        "Field {{ name: {:?}, json: {:?}, go: {:?}, number: {}, shape: Shape::{shape}, kind: {kind}, oneof: {oneof}, \
         presence: {presence}, deprecated: {deprecated} }},",
        field.name(),
        field.json_name(),
        go_name(field.name()),
        field.number(),
    )
}

fn key(entry: &DescriptorProto) -> &'static str {
    let key = entry
        .field
        .iter()
        .find(|part| part.number() == 1)
        .expect("a map has keys");
    match kind(key).as_str() {
        "FieldKind::String" => "Key::String",
        "FieldKind::Uint32" => "Key::Uint32",
        other => panic!("maps by {other} are not read yet: add them to Key in schema.rs"),
    }
}

fn kind(field: &FieldDescriptorProto) -> String {
    let well_known = match field.type_name() {
        ".google.protobuf.Duration" => "FieldKind::Duration",
        ".google.protobuf.Timestamp" => "FieldKind::Timestamp",
        ".google.protobuf.BoolValue" => "FieldKind::Wrapper(&FieldKind::Bool)",
        ".google.protobuf.StringValue" => "FieldKind::Wrapper(&FieldKind::String)",
        ".google.protobuf.BytesValue" => "FieldKind::Wrapper(&FieldKind::Bytes)",
        ".google.protobuf.Int32Value" => "FieldKind::Wrapper(&FieldKind::Int32)",
        ".google.protobuf.Int64Value" => "FieldKind::Wrapper(&FieldKind::Int64)",
        ".google.protobuf.UInt32Value" => "FieldKind::Wrapper(&FieldKind::Uint32)",
        ".google.protobuf.UInt64Value" => "FieldKind::Wrapper(&FieldKind::Uint64)",
        ".google.protobuf.FloatValue" => "FieldKind::Wrapper(&FieldKind::Float)",
        ".google.protobuf.DoubleValue" => "FieldKind::Wrapper(&FieldKind::Double)",
        ".google.protobuf.Struct" => "FieldKind::Struct",
        ".google.protobuf.Any" => "FieldKind::Any",
        name if name.starts_with(".google.protobuf.") => {
            panic!("{name} is not read yet: add it to FieldKind in schema.rs")
        }
        _ => "",
    };
    if !well_known.is_empty() {
        return well_known.to_owned();
    }
    let scalar = match field.r#type() {
        Type::Enum => return format!("FieldKind::Enum(&{})", constant(field.type_name())),
        Type::Message | Type::Group => {
            return format!("FieldKind::Message(&{})", constant(field.type_name()));
        }
        Type::String => "String",
        Type::Bytes => "Bytes",
        Type::Bool => "Bool",
        Type::Int32 | Type::Sint32 | Type::Sfixed32 => "Int32",
        Type::Int64 | Type::Sint64 | Type::Sfixed64 => "Int64",
        Type::Uint32 | Type::Fixed32 => "Uint32",
        Type::Uint64 | Type::Fixed64 => "Uint64",
        Type::Float => "Float",
        Type::Double => "Double",
    };
    format!("FieldKind::{scalar}")
}

fn is_map_entry(message: &DescriptorProto) -> bool {
    message
        .options
        .as_ref()
        .is_some_and(prost_types::MessageOptions::map_entry)
}

/// `.istio.mesh.v1alpha1.MeshConfig` is `ISTIO_MESH_V1ALPHA1_MESHCONFIG`.
fn constant(name: &str) -> String {
    name.trim_start_matches('.')
        .replace('.', "_")
        .to_ascii_uppercase()
}

/// As protoc-gen-go names a field: `sds_uds_path` is `SdsUdsPath`.
fn go_name(name: &str) -> String {
    let mut text = String::new();
    let mut upper = true;
    for letter in name.chars() {
        match letter {
            '_' if !upper => upper = true,
            letter if upper => {
                text.push(letter.to_ascii_uppercase());
                upper = false;
            }
            letter => text.push(letter),
        }
    }
    text
}
