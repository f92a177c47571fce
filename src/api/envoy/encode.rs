//! JSON as users write it to bytes, by descriptors.
//!
//! Every written value counts: a zero, a `false` or an empty text is on the wire, too, so that it replaces another value in a
//! merge. `null` is nothing. Types of Envoy's v2 API are read as the messages that took their place.

mod typed_struct;

use base64::Engine as _;
use prost::Message as _;
use serde_json::{Map, Value as Json};

use self::typed_struct::TYPED_STRUCTS;
use super::descriptor_pool::{DescriptorPool, FieldDescriptor, MessageDescriptor, kind};
use super::descriptors;
use super::numbers::{float, signed, unsigned, zigzag};
use super::{config_discovery, old_fields};
use crate::did_you_mean::nearest;
use crate::finding::{Finding, push_index, push_key, quoted};
use crate::google::protobuf::Struct;
use crate::proto_json::BASE64;
use crate::well_known::TYPE_URL_PREFIX;
use crate::wire::{
    MAX_DEPTH, WireScalar, decode_struct, encode_struct, encode_value, length_delimited,
};
use crate::{duration, timestamp};

/// Maximum number of findings for one value.
const MAX_FINDINGS: usize = 20;

/// The bytes of a message of this name. `path`: of the value, in front of the places of mistakes.
///
/// # Errors
///
/// Fields, types and values that the message does not have: warnings with their places, `MAX_FINDINGS` at most.
pub fn encode(message: &str, value: &Json, path: &str) -> Result<Vec<u8>, Vec<Finding>> {
    let Some(pool) = descriptors() else {
        let finding = Finding::warning(path, "cannot read the descriptors of messages");
        return Err(vec![finding]);
    };
    let mut encoder = Encoder {
        pool,
        path: path.to_owned(),
        found: Vec::new(),
    };
    let mut out = Vec::new();
    encoder.message(message, value, 0, &mut out);
    if encoder.found.is_empty() {
        Ok(out)
    } else {
        Err(encoder.found)
    }
}

/// As above, for the value of a patch of an EnvoyFilter.
///
/// # Errors
///
/// As [`encode`].
pub fn encode_written(message: &str, written: &Struct) -> Result<Vec<u8>, Vec<Finding>> {
    match decode_struct(&written.encode_to_vec()) {
        Ok(value) => encode(message, &Json::Object(value), ""),
        Err(error) => Err(vec![Finding::warning("", error.to_string())]),
    }
}

/// The part of a listener that Envoy refuses without the bootstrap extension of internal listeners, which pintle's bootstrap lacks.
const INTERNAL_LISTENER: &str = "envoy.config.listener.v3.Listener.InternalListenerConfig";

struct Encoder {
    pool: &'static DescriptorPool<'static>,
    path: String,
    found: Vec<Finding>,
}

impl Encoder {
    fn fail(&mut self, message: impl Into<String>) {
        if !self.is_full() {
            self.found.push(Finding::warning(&self.path, message));
        }
    }

    /// Returns true if no further finding is kept: the rest of the value is not read then, for it has no bytes and no findings.
    const fn is_full(&self) -> bool {
        self.found.len() >= MAX_FINDINGS
    }

    /// One place deeper.
    fn below(&mut self, go: impl FnOnce(&mut String), then: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        go(&mut self.path);
        then(self);
        self.path.truncate(length);
    }

    fn message(&mut self, name: &str, value: &Json, depth: usize, out: &mut Vec<u8>) {
        if depth > MAX_DEPTH {
            return self.fail("is nested too deeply");
        }
        if let Some(short) = name.strip_prefix("google.protobuf.")
            && self.well_known(short, value, depth, out)
        {
            return;
        }
        let Json::Object(values) = value else {
            return self.fail(format!("want an object, {name}"));
        };
        let Ok(Some(descriptor)) = self.pool.fields(name) else {
            return self.fail(format!("{name} is not a message of Envoy 1.40"));
        };
        if name == config_discovery::SOURCE && config_discovery::asks_discovery(value) {
            return self.fail(config_discovery::NOT_SERVED);
        }
        if name == INTERNAL_LISTENER {
            return self.fail("the proxy's bootstrap has no internal listeners");
        }
        self.fields(name, &descriptor, values.iter(), depth, out);
    }

    fn fields<'v>(
        &mut self,
        name: &str,
        descriptor: &MessageDescriptor<'static>,
        values: impl Iterator<Item = (&'v String, &'v Json)>,
        depth: usize,
        out: &mut Vec<u8>,
    ) {
        let mut values: Vec<(&String, &Json)> = values.collect();
        let translated = old_fields::translated(name, &values);
        if let Some(translated) = &translated {
            values = translated.iter().collect();
        }
        let mut written: Vec<(&FieldDescriptor<'static>, &str, &Json)> = Vec::new();
        for (key, value) in values {
            if self.is_full() {
                return;
            }
            let known_field = descriptor.fields.iter().find(|field| field.is_named(key));
            match known_field {
                Some(field) => written.push((field, key, value)),
                None => {
                    let message = self.unknown(name, descriptor, key);
                    self.below(|path| push_key(path, key), |it| it.fail(message));
                }
            }
        }
        written.retain(|(_, _, value)| !value.is_null());
        // As other writers have them.
        written.sort_by_key(|(field, ..)| field.number);
        for (at, (field, key, value)) in written.iter().enumerate() {
            let earlier = written.iter().take(at);
            // A field may also be written twice, in both of its spellings.
            let mut of_group = earlier.filter(|(other, ..)| {
                other.number == field.number
                    || (other.oneof.is_some() && other.oneof == field.oneof)
            });
            let other = of_group
                .next()
                .map(|(_, other, _)| format!("only one of {other}, {key} may be set"));
            self.below(
                |path| push_key(path, key),
                |it| match other {
                    Some(message) => it.fail(message),
                    None if name == VM_CONFIG && value.as_str() == Some(NULL_VM) => it.fail(
                        "Envoy 1.40 has no extension of that runtime; Istio's telemetry is built into its own Envoy alone",
                    ),
                    None => it.field(field, value, depth, out),
                },
            );
        }
    }

    /// The message about a field that a message has not.
    fn unknown(&self, name: &str, descriptor: &MessageDescriptor<'_>, key: &str) -> String {
        if let Some(successor) = old_fields::successor(name, key) {
            return format!("Envoy 1.40 has no such field of {name} any more: write {successor}");
        }
        let manager = self.pool.fields(old_fields::MANAGER).ok().flatten();
        let mut fields = manager.iter().flat_map(|manager| &manager.fields);
        if name == old_fields::FILTER
            && (old_fields::successor(old_fields::MANAGER, key).is_some()
                || fields.any(|field| field.is_named(key)))
        {
            return "a field of HttpConnectionManager: write it in typed_config, with its @type"
                .to_owned();
        }
        let names = descriptor.fields.iter().map(|field| field.name);
        let nearest = nearest(key, names);
        let suggestion = nearest.map(|name| format!(", did you mean {name:?}?"));
        format!("unknown field of {name}{}", suggestion.unwrap_or_default())
    }

    fn field(
        &mut self,
        field: &FieldDescriptor<'static>,
        value: &Json,
        depth: usize,
        out: &mut Vec<u8>,
    ) {
        if !field.is_list {
            return self.part(field, value, depth, out);
        }
        let entry = match field.kind {
            kind::MESSAGE => self.pool.fields(field.of).ok().flatten(),
            _ => None,
        };
        let entry = entry.filter(|fields| fields.is_entry);
        match (entry, value) {
            (Some(entry), Json::Object(entries)) => self.map(field, &entry, entries, depth, out),
            (Some(_), _) => self.fail("want an object"),
            (None, Json::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    self.below(
                        |path| push_index(path, at),
                        |it| it.part(field, item, depth, out),
                    );
                }
            }
            (None, _) => self.fail("want a list"),
        }
    }

    fn map(
        &mut self,
        field: &FieldDescriptor<'static>,
        entry: &MessageDescriptor<'static>,
        entries: &Map<String, Json>,
        depth: usize,
        out: &mut Vec<u8>,
    ) {
        let (Some(by), Some(of)) = (entry.field(1), entry.field(2)) else {
            return self.fail("a map without keys or values");
        };
        let mut entries: Vec<_> = entries.iter().collect();
        // Equal values are equal bytes, in any order of the text.
        entries.sort_by_key(|(key, _)| *key);
        for (key, value) in entries {
            let mut inner = Vec::new();
            self.below(
                |path| push_key(path, key),
                |it| {
                    // Keys of JSON are texts; numbers are read from text like any value.
                    let key = match by.kind {
                        kind::BOOL => Json::Bool(key == "true"),
                        _ => Json::String(key.clone()),
                    };
                    it.part(by, &key, depth, &mut inner);
                    it.part(of, value, depth, &mut inner);
                },
            );
            delimited(field.number, &inner, out);
        }
    }

    /// One value of a field, with its number.
    fn part(
        &mut self,
        field: &FieldDescriptor<'static>,
        value: &Json,
        depth: usize,
        out: &mut Vec<u8>,
    ) {
        if self.is_full() {
            return;
        }
        if field.kind == kind::MESSAGE {
            let mut inner = Vec::new();
            self.message(field.of, value, depth + 1, &mut inner);
            delimited(field.number, &inner, out);
            return;
        }
        match self.scalar(field, value) {
            Ok(scalar) => scalar.write(Some(field.number), out),
            Err(message) => self.fail(message),
        }
    }

    fn scalar<'v>(
        &self,
        field: &FieldDescriptor<'static>,
        value: &'v Json,
    ) -> Result<WireScalar<'v>, String> {
        Ok(match field.kind {
            kind::STRING => WireScalar::Text(value.as_str().ok_or("want a text")?),
            kind::BYTES => {
                let text = value.as_str().ok_or("want a text in base64")?;
                // In either alphabet.
                let text = text.replace('-', "+").replace('_', "/");
                let read = BASE64.decode(text);
                WireScalar::Bytes(read.map_err(|_| "want a text in base64")?)
            }
            kind::BOOL => WireScalar::Varint(value.as_bool().ok_or("want true or false")?.into()),
            kind::DOUBLE => WireScalar::Double(float(value)?),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "that is what the field holds"
            )]
            kind::FLOAT => WireScalar::Float(float(value)? as f32),
            kind::ENUM => WireScalar::Varint(self.choice(field.of, value)?.cast_unsigned()),
            kind::UINT32 | kind::FIXED32 => {
                let number = unsigned(value, u32::MAX.into())?;
                match field.kind {
                    kind::UINT32 => WireScalar::Varint(number),
                    _ => {
                        // Four bytes on the wire either way: the float has the number's bits.
                        WireScalar::Float(f32::from_bits(u32::try_from(number).unwrap_or(u32::MAX)))
                    }
                }
            }
            kind::UINT64 => WireScalar::Varint(unsigned(value, u64::MAX)?),
            kind::FIXED64 => WireScalar::Double(f64::from_bits(unsigned(value, u64::MAX)?)),
            kind::INT32 => {
                WireScalar::Varint(signed(value, i32::MIN.into(), i32::MAX.into())?.cast_unsigned())
            }
            kind::INT64 => WireScalar::Varint(signed(value, i64::MIN, i64::MAX)?.cast_unsigned()),
            kind::SINT32 => {
                WireScalar::Varint(zigzag(signed(value, i32::MIN.into(), i32::MAX.into())?))
            }
            kind::SINT64 => WireScalar::Varint(zigzag(signed(value, i64::MIN, i64::MAX)?)),
            kind::SFIXED64 => {
                let number = signed(value, i64::MIN, i64::MAX)?;
                WireScalar::Double(f64::from_bits(number.cast_unsigned()))
            }
            kind::SFIXED32 => {
                let number = signed(value, i32::MIN.into(), i32::MAX.into())?;
                let number = i32::try_from(number).unwrap_or_default();
                WireScalar::Float(f32::from_bits(number.cast_unsigned()))
            }
            other => return Err(format!("a field of the unknown type {other}")),
        })
    }

    fn choice(&self, kinds: &str, value: &Json) -> Result<i64, String> {
        if let Json::Number(_) = value {
            return signed(value, i32::MIN.into(), i32::MAX.into());
        }
        let text = value.as_str().ok_or("want a text")?;
        let all = self.pool.values(kinds).map_err(|error| error.to_string())?;
        let entry = all.iter().find(|(name, _)| *name == text);
        entry.map(|(_, number)| *number).ok_or_else(|| {
            let nearest = nearest(text, all.iter().map(|(name, _)| *name));
            let suggestion = nearest.map(|name| format!(", did you mean {name:?}?"));
            format!(
                "unknown value {}{}",
                quoted(text),
                suggestion.unwrap_or_default()
            )
        })
    }

    /// Messages that have a form of their own in JSON; false for any other.
    fn well_known(&mut self, short: &str, value: &Json, depth: usize, out: &mut Vec<u8>) -> bool {
        let moment = |seconds: i64, nanos: i32, out: &mut Vec<u8>| {
            WireScalar::Varint(seconds.cast_unsigned()).write(Some(1), out);
            WireScalar::Varint(i64::from(nanos).cast_unsigned()).write(Some(2), out);
        };
        match short {
            "Any" => self.any(value, depth, out),
            "Struct" => match value.as_object() {
                Some(fields) => out.extend(encode_struct(fields)),
                None => self.fail("want an object"),
            },
            "Value" => out.extend(encode_value(value)),
            "ListValue" => match value.as_array() {
                Some(items) => {
                    for item in items {
                        delimited(1, &encode_value(item), out);
                    }
                }
                None => self.fail("want a list"),
            },
            "Duration" => match value.as_str().and_then(duration::parse) {
                Some(read) if read.seconds.unsigned_abs() > duration::MAX_ENVOY_SECONDS => {
                    let max = duration::MAX_ENVOY_SECONDS;
                    self.fail(format!("a duration of Envoy has at most {max}s"));
                }
                Some(read) => moment(read.seconds, read.nanos, out),
                None => self.fail("want a duration such as \"1.5s\""),
            },
            "Timestamp" => match value.as_str().and_then(timestamp::parse) {
                Some(read) => moment(read.seconds, read.nanos, out),
                None => self.fail("want a time such as \"2026-01-02T03:04:05Z\""),
            },
            "BoolValue" | "BytesValue" | "DoubleValue" | "FloatValue" | "Int32Value"
            | "Int64Value" | "StringValue" | "UInt32Value" | "UInt64Value" => {
                let fields = self.pool.fields(&format!("google.protobuf.{short}"));
                let fields = fields.ok().flatten();
                match fields.as_ref().and_then(|fields| fields.field(1)) {
                    Some(field) => self.part(field, value, depth, out),
                    None => self.fail(format!("google.protobuf.{short} is not described")),
                }
            }
            _ => return false,
        }
        true
    }

    /// Returns the name of a type of Envoy, or of its successor.
    fn resolved<'n>(&self, name: &'n str) -> Option<&'n str> {
        match self.pool.has(name) {
            true => Some(name),
            false => self.pool.successor(name),
        }
    }

    /// `key`: the field that names the type.
    fn unknown_type(&mut self, key: &str, name: &str) {
        let message = format!("no type of Envoy 1.40 is known as {}", quoted(name));
        self.below(|path| push_key(path, key), |it| it.fail(message));
    }

    fn any(&mut self, value: &Json, depth: usize, out: &mut Vec<u8>) {
        let Json::Object(values) = value else {
            return self.fail("want an object with \"@type\"");
        };
        let Some(url) = values.get("@type").and_then(Json::as_str) else {
            return self.fail("want \"@type\"");
        };
        let full_name = url.strip_prefix(TYPE_URL_PREFIX).unwrap_or(url);
        let pool = self.pool;
        let Some(name) = self.resolved(full_name) else {
            return self.unknown_type("@type", full_name);
        };
        if TYPED_STRUCTS.contains(&name)
            && let Some((full_name, fields)) = self.typed_struct(values)
        {
            return self.packed_struct(full_name, fields, depth, out);
        }
        let mut inner = Vec::new();
        // Messages that have a form of their own in JSON have it in `value`.
        if name.starts_with("google.protobuf.") && name != "google.protobuf.Empty" {
            let value = values.get("value").unwrap_or(&Json::Null);
            self.below(
                |path| push_key(path, "value"),
                |it| it.message(name, value, depth + 1, &mut inner),
            );
        } else if let Ok(Some(descriptor)) = pool.fields(name) {
            if depth > MAX_DEPTH {
                return self.fail("is nested too deeply");
            }
            let others = values.iter().filter(|(key, _)| *key != "@type");
            self.fields(name, &descriptor, others, depth + 1, &mut inner);
        } else {
            return self.fail(format!("{} is not a message", quoted(name)));
        }
        WireScalar::Text(&format!("{TYPE_URL_PREFIX}{name}")).write(Some(1), out);
        delimited(2, &inner, out);
    }
}

/// The virtual machine of extensions that are compiled into Envoy, of which Envoy itself has none.
const NULL_VM: &str = "envoy.wasm.runtime.null";
const VM_CONFIG: &str = "envoy.extensions.wasm.v3.VmConfig";

fn delimited(number: u32, inner: &[u8], out: &mut Vec<u8>) {
    length_delimited(number, out, |out| {
        out.extend_from_slice(inner);
        true
    });
}
