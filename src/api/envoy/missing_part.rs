//! Finds the parts without which Envoy refuses a message, and the whole resource with it: those that Envoy's own rules require,
//! and a few that only its code requires.

use std::collections::{BTreeMap, HashSet};

use super::descriptor_pool::{
    DescriptorPool, FieldDescriptor, MessageDescriptor, kind, parts, text,
};
use super::descriptors;
use crate::finding::{push_index, push_key};
use crate::well_known::TYPE_URL_PREFIX;
use crate::wire::{DecodeError, MAX_DEPTH, Raw};

const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ANY: &str = "google.protobuf.Any";

/// Fields with packed messages that Envoy reads when it takes the resource. Others may never be read.
const READ_AT_ONCE: [&str; 3] = [
    "typed_config",
    "typed_per_filter_config",
    "typed_extension_protocol_options",
];

/// Fields of which Envoy's code wants one (seen with Envoy 1.40), the usual one first: no rule of its messages says so. Chains of a
/// listener are not among them, for another patch may add them.
const REQUIRED: [(&str, &[&str]); 9] = [
    (LISTENER, &["address", "api_listener"]),
    (
        "envoy.config.listener.v3.Filter",
        &["typed_config", "config_discovery"],
    ),
    (
        "envoy.config.listener.v3.ListenerFilter",
        &["typed_config", "config_discovery"],
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        &["typed_config", "config_discovery", "is_optional"],
    ),
    ("envoy.config.core.v3.TransportSocket", &["typed_config"]),
    ("envoy.config.accesslog.v3.AccessLog", &["typed_config"]),
    (
        "envoy.config.route.v3.WeightedCluster.ClusterWeight",
        &["name", "cluster_header"],
    ),
    (
        "envoy.config.route.v3.WeightedCluster.ClusterWeight",
        &["weight"],
    ),
    (
        "envoy.config.route.v3.RouteAction.RequestMirrorPolicy",
        &["cluster", "cluster_header"],
    ),
];

/// A part of a message that lacks a required field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPart {
    /// The place of the part within the message; empty: the message itself.
    pub path: String,
    /// The words about it, with `it` for the part.
    pub why: String,
}

/// Returns the first part of a message that lacks something; `None` also for bytes that are no such message. `is_whole`: nothing is
/// laid under the message, so that it needs all by itself; items of lists do in any case, as [`merge`](super::merge()) joins them.
#[must_use]
pub fn missing_part(message: &str, bytes: &[u8], is_whole: bool) -> Option<MissingPart> {
    let mut search = Search {
        pool: descriptors()?,
        path: String::new(),
    };
    let why = search.message(message, bytes, is_whole, 0).ok()??;
    Some(MissingPart {
        path: search.path,
        why,
    })
}

/// Values of a message's fields, by number.
type FieldValues<'b> = BTreeMap<u32, Vec<Raw<'b>>>;

/// The result of one part: the message about the missing field. The path stays at the part then.
type Found = Result<Option<String>, DecodeError>;

const BALANCING_POLICIES: &str = "envoy.config.cluster.v3.LoadBalancingPolicy";

struct Search {
    pool: &'static DescriptorPool<'static>,
    path: String,
}

impl Search {
    fn message(&mut self, name: &str, bytes: &[u8], is_whole: bool, depth: usize) -> Found {
        if depth > MAX_DEPTH {
            return Ok(None);
        }
        let Some(descriptor) = self.pool.fields(name)? else {
            return Ok(None);
        };
        let mut values = FieldValues::new();
        for part in parts(bytes) {
            let (number, raw) = part?;
            values.entry(number).or_default().push(raw);
        }
        if is_whole && let Some(why) = lack(name, &descriptor, &values)? {
            return Ok(Some(why));
        }
        if name == LISTENER && has_equal_chains(&descriptor, &values)? {
            return Ok(Some("two of its filter_chains match the same".to_owned()));
        }
        // Envoy takes the first policy that it knows, and does not read the others.
        let max = match name == BALANCING_POLICIES {
            true => 1,
            false => usize::MAX,
        };
        for field in &descriptor.fields {
            let all = values.get(&field.number).into_iter().flatten();
            for (at, raw) in all.enumerate().take(max) {
                let Raw::Bytes(bytes) = raw else { continue };
                if field.kind == kind::MESSAGE && !field.is_unchecked {
                    let length = self.path.len();
                    push_key(&mut self.path, field.name);
                    let missing = self.value(field, at, bytes, is_whole, depth)?;
                    if missing.is_some() {
                        return Ok(missing);
                    }
                    self.path.truncate(length);
                }
            }
        }
        Ok(None)
    }

    /// One value of a field.
    fn value(
        &mut self,
        field: &FieldDescriptor<'_>,
        at: usize,
        bytes: &[u8],
        is_whole: bool,
        depth: usize,
    ) -> Found {
        let descriptor = match field.is_list {
            true => self.pool.fields(field.of)?,
            false => None,
        };
        let Some(entry) = descriptor.filter(|one| one.is_entry) else {
            if field.is_list {
                push_index(&mut self.path, at);
            }
            let is_whole = is_whole || field.is_list;
            return self.part(field.name, field.of, bytes, is_whole, depth);
        };
        let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
        for part in parts(bytes) {
            match part? {
                (1, Raw::Bytes(bytes)) => key = bytes,
                (2, Raw::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        let Some(of) = entry.field(2).filter(|of| of.kind == kind::MESSAGE) else {
            return Ok(None);
        };
        push_key(&mut self.path, text(key)?);
        // A packed message is merged with the value of its key, and any other value replaces it.
        let is_whole = is_whole || of.of != ANY;
        self.part(field.name, of.of, value, is_whole, depth)
    }

    /// A message in a field of this name, packed or not.
    fn part(&mut self, field: &str, of: &str, bytes: &[u8], is_whole: bool, depth: usize) -> Found {
        if of == ANY && READ_AT_ONCE.contains(&field) {
            let (mut url, mut value): (&[u8], &[u8]) = (&[], &[]);
            for part in parts(bytes) {
                match part? {
                    (1, Raw::Bytes(bytes)) => url = bytes,
                    (2, Raw::Bytes(bytes)) => value = bytes,
                    _ => {}
                }
            }
            let name = text(url)?.strip_prefix(TYPE_URL_PREFIX);
            let name = name.filter(|name| !name.starts_with("google.protobuf."));
            return match name {
                Some(name) => self.message(name, value, is_whole, depth + 1),
                None => Ok(None),
            };
        }
        match of.starts_with("google.protobuf.") {
            true => Ok(None),
            false => self.message(of, bytes, is_whole, depth + 1),
        }
    }
}

/// Returns the message about the field that a message itself lacks.
fn lack(name: &str, descriptor: &MessageDescriptor<'_>, values: &FieldValues<'_>) -> Found {
    for field in &descriptor.fields {
        if is_missing(field, values.get(&field.number).map(Vec::as_slice))? {
            return Ok(Some(format!("it has no {}", field.name)));
        }
    }
    for group in &descriptor.wanted_choices {
        let of_group = descriptor
            .fields
            .iter()
            .filter(|one| one.oneof == Some(*group));
        let of_group: Vec<_> = of_group.collect();
        if !of_group.iter().any(|one| values.contains_key(&one.number)) {
            let names: Vec<_> = of_group.iter().map(|one| one.name).collect();
            return Ok(Some(none_of(&names)));
        }
    }
    let wanted = REQUIRED.iter().filter(|(message, _)| *message == name);
    for (_, names) in wanted {
        let mut fields = descriptor
            .fields
            .iter()
            .filter(|one| names.contains(&one.name));
        if let [first, ..] = names
            && !fields.any(|field| is_set(values.get(&field.number)))
        {
            return Ok(Some(format!("it has no {first}")));
        }
    }
    Ok(None)
}

/// Returns true if two chains of a listener match the same, one without conditions among them.
fn has_equal_chains(
    listener: &MessageDescriptor<'_>,
    values: &FieldValues<'_>,
) -> Result<bool, DecodeError> {
    const FILTER_CHAIN_MATCH: u32 = 1;
    let of = |name: &str| {
        let field = listener.fields.iter().find(|field| field.name == name);
        field.and_then(|field| values.get(&field.number))
    };
    // Its chains are distinguished by that.
    if of("filter_chain_matcher").is_some() {
        return Ok(false);
    }
    let mut known: HashSet<&[u8]> = HashSet::new();
    for chain in of("filter_chains").into_iter().flatten() {
        let Raw::Bytes(chain) = chain else { continue };
        let mut matched: &[u8] = &[];
        for part in parts(chain) {
            if let (FILTER_CHAIN_MATCH, Raw::Bytes(bytes)) = part? {
                matched = bytes;
            }
        }
        if !known.insert(matched) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn none_of(names: &[&str]) -> String {
    format!("it has none of {}", names.join(", "))
}

fn is_set(values: Option<&Vec<Raw<'_>>>) -> bool {
    values.is_some_and(|values| !matches!(values.last(), None | Some(Raw::Varint(0))))
}

/// Returns true if a field violates Envoy's rule about its presence. Of a choice only the chosen field counts.
fn is_missing(
    field: &FieldDescriptor<'_>,
    values: Option<&[Raw<'_>]>,
) -> Result<bool, DecodeError> {
    if field.is_list {
        let count = values.map_or(0, <[_]>::len);
        return Ok(u64::try_from(count).is_ok_and(|count| count < field.min));
    }
    if field.oneof.is_some() && values.is_none() {
        return Ok(false);
    }
    let last = match values.and_then(<[_]>::last) {
        Some(Raw::Bytes(bytes)) => *bytes,
        _ => &[],
    };
    let length = match field.kind {
        kind::STRING => text(last)?.chars().count(),
        kind::BYTES => last.len(),
        _ => return Ok(field.is_required && values.is_none()),
    };
    Ok(u64::try_from(length).is_ok_and(|length| length < field.min))
}
