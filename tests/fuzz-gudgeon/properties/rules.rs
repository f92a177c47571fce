//! What must hold of what is said about an object of any kind, whatever is in it. Asked by the fuzzer, and by a test with its
//! examples.
//!
//! The first byte is a letter that says the kind, the rest is the spec as YAML. Behind a 0 stand changes of that spec, four
//! bytes each: a place, what happens there, and with what. Most of them leave what can still be read, so that the rules are
//! asked; a fuzzer that has bytes alone seldom gets beyond the YAML.

use api::config::document::documents;
use api::config::{self, Check, Finding, KINDS, Kind, Object};
use api::schema::{Field, FieldKind as Holds, Message, Shape};
use api::wire;
use serde_json::{Map, Value, json};

/// Of one object, and a last one for those that are not kept.
const MAX_FINDINGS: usize = 101;
/// Changes of one spec, and what it may grow to: each can double it.
const CHANGES: usize = 64;
const VALUES: usize = 5_000;

/// Texts that rules take for something.
const WORDS: &[&str] = &[
    "",
    "*",
    "a",
    "a.b",
    "*.b",
    "a/b",
    "*/a.b",
    "./*",
    "~",
    ".",
    "mesh",
    "1.2.3.4",
    "10.0.0.0/8",
    "::1",
    "unix:///a",
    "unix://@a",
    "127.0.0.1:80",
    "HTTP",
    "tls",
    "TCP",
    "1s",
    "0s",
    "0.0005s",
    "300ms",
    "80",
    "/a/{*}/{**}",
    "[a-z]+",
    "(a",
    "%A(",
    ":authority",
    "host",
    "GET",
    "5xx,503",
    "default",
    "ServiceRole",
    "http://a:1/b",
    "{\"keys\":[{\"kty\":\"RSA\"}]}",
    "request.headers[a]",
    "source.ip",
    "request.auth.claims[a][b]",
    "topology.kubernetes.io/region",
    "outbound_.80_.a_.b.c",
    "envoy.filters.network.http_connection_manager",
    "type.googleapis.com/a",
    "x/y/z",
    "\u{1F600}\n",
];

const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    50,
    99,
    100,
    101,
    200,
    302,
    399,
    600,
    65_535,
    65_536,
    i64::MAX,
];

pub(crate) fn check(bytes: &[u8]) {
    findings(bytes);
}

/// All that is said, if it is an object.
pub(crate) fn findings(bytes: &[u8]) -> Option<Vec<Finding>> {
    let (kind, object) = object(bytes)?;
    let (read, findings) = config::check(&object);
    let (again, others) = config::check(&object);
    assert_eq!(findings, others);
    assert_eq!(
        read.as_ref().map(|one| &one.body),
        again.map(|one| one.body).as_ref()
    );
    assert!(findings.len() <= MAX_FINDINGS);
    for (at, found) in findings.iter().enumerate() {
        says_where(&object, found, at + 1 == MAX_FINDINGS);
    }
    let has_error = findings.iter().any(Finding::is_error);
    match read {
        None => assert!(has_error, "no object, and nobody says why"),
        Some(read) => {
            assert_eq!(read.kind, kind);
            match has_error {
                true => assert!(read.body.is_empty()),
                false => comes_back(&read),
            }
        }
    }
    Some(findings)
}

pub(crate) fn kind(bytes: &[u8]) -> Option<&'static Kind> {
    let first = bytes.first()?.wrapping_sub(b'A');
    KINDS.get(usize::from(first) % KINDS.len())
}

fn object(bytes: &[u8]) -> Option<(&'static Kind, Value)> {
    let kind = kind(bytes)?;
    let rest = bytes.get(1..)?;
    let end = rest.iter().position(|byte| *byte == 0);
    let (text, changes) = rest.split_at(end.unwrap_or(rest.len()));
    let text = String::from_utf8_lossy(text);
    let mut spec = match documents(&text).next() {
        Some(document) => document.ok()?.parts().first()?.value(),
        None => json!({}),
    };
    for change in changes
        .get(1..)
        .unwrap_or_default()
        .chunks_exact(4)
        .take(CHANGES)
    {
        let [high, low, what, with] = *change else {
            break;
        };
        let values = count(&spec);
        if values > VALUES {
            break;
        }
        let mut place = usize::from(u16::from_be_bytes([high, low])) % values;
        let of = Slot::Value(Holds::Message(kind.message));
        at(&mut spec, of, &mut place, &mut |value, of| {
            changed(value, of, what, usize::from(with));
        });
    }
    let name = match kind.kind {
        // Nothing else is allowed.
        "MeshPolicy" | "RbacConfig" | "ClusterRbacConfig" => "default",
        _ => "name",
    };
    let version = kind.versions.last()?;
    let object = json!({
        "apiVersion": format!("{}/{version}", kind.group),
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "ns"},
        "spec": spec,
    });
    Some((kind, object))
}

/// What belongs at a place.
#[derive(Clone, Copy)]
enum Slot {
    List(Holds),
    Map(Holds),
    Value(Holds),
    Unknown,
}

impl Slot {
    fn of(field: &Field) -> Self {
        match field.shape {
            Shape::One => Self::Value(field.kind),
            Shape::List => Self::List(field.kind),
            Shape::Map(_) => Self::Map(field.kind),
        }
    }

    fn message(self) -> Option<&'static Message> {
        match self {
            Self::Value(Holds::Message(message)) => Some(message),
            _ => None,
        }
    }

    fn below(self, name: &str) -> Self {
        match (self, self.message()) {
            (Self::Map(holds), _) => Self::Value(holds),
            (_, Some(message)) => message.field(name).map_or(Self::Unknown, Self::of),
            _ => Self::Unknown,
        }
    }

    /// The least that fits.
    fn value(self, with: usize) -> Value {
        match self {
            Self::List(holds) => json!([Self::Value(holds).value(with)]),
            Self::Map(holds) => {
                let mut map = Map::new();
                map.insert(word(with), Self::Value(holds).value(with));
                map.into()
            }
            Self::Value(Holds::Message(_) | Holds::Struct) => json!({}),
            Self::Value(Holds::Enum(values)) => {
                let names = values.values;
                json!(names.get(with % names.len().max(1)).map(|(name, _)| name))
            }
            Self::Value(Holds::Bool) => json!(with % 2 == 1),
            Self::Value(Holds::Duration) => json!("1s"),
            Self::Value(Holds::Wrapper(holds)) => Self::Value(*holds).value(with),
            Self::Value(Holds::String | Holds::Bytes | Holds::Timestamp) => json!(word(with)),
            Self::Value(_) => number(with),
            Self::Unknown => Value::Null,
        }
    }
}

fn word(with: usize) -> String {
    WORDS
        .get(with % WORDS.len())
        .copied()
        .unwrap_or_default()
        .to_owned()
}

fn number(with: usize) -> Value {
    json!(NUMBERS.get(with % NUMBERS.len()))
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(entries) => entries.values().map(count).sum(),
        _ => 0,
    }
}

/// Goes to the value of this number.
fn at(
    value: &mut Value,
    of: Slot,
    place: &mut usize,
    change: &mut dyn FnMut(&mut Value, Slot),
) -> bool {
    if *place == 0 {
        change(value, of);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => {
            let of = match of {
                Slot::List(holds) => Slot::Value(holds),
                _ => Slot::Unknown,
            };
            items.iter_mut().any(|item| at(item, of, place, change))
        }
        Value::Object(entries) => entries
            .iter_mut()
            .any(|(name, value)| at(value, of.below(name), place, change)),
        _ => false,
    }
}

fn changed(value: &mut Value, of: Slot, what: u8, with: usize) {
    match (what % 8, &mut *value) {
        (0, Value::Object(entries)) => match (of.message(), of) {
            (Some(message), _) if !message.fields.is_empty() => {
                if let Some(field) = message.fields.get(with % message.fields.len()) {
                    entries.insert(field.json.to_owned(), Slot::of(field).value(with / 16));
                }
            }
            (_, Slot::Map(holds)) => {
                entries.insert(word(with), Slot::Value(holds).value(with / 16));
            }
            _ => {
                entries.insert(word(with), json!({}));
            }
        },
        (0, Value::Array(items)) => {
            if let Slot::List(holds) = of {
                items.push(Slot::Value(holds).value(with));
            }
        }
        (1, Value::Array(items)) if !items.is_empty() => {
            let copy = items.get(with % items.len()).cloned();
            items.extend(copy);
        }
        (2, Value::Array(items)) if !items.is_empty() => {
            items.remove(with % items.len());
        }
        (2, Value::Object(entries)) if !entries.is_empty() => {
            let name = entries.keys().nth(with % entries.len()).cloned();
            name.and_then(|name| entries.shift_remove(&name));
        }
        (0..=3, _) => *value = of.value(with),
        (4, _) => *value = json!(word(with)),
        (5, _) => *value = number(with),
        (6, Value::String(text)) => text.push_str(&word(with)),
        _ => {
            *value = [json!({}), json!([]), Value::Null, json!(true), json!(0.5)][with % 5].clone();
        }
    }
}

/// A path leads to a value, or to what a value is missing in.
fn says_where(object: &Value, found: &Finding, is_last: bool) {
    let text = format!("{}{}", found.path, found.message);
    assert!(
        !found.message.is_empty() && !text.contains(['\n', '\r']),
        "{found:?}"
    );
    assert!(text.len() < 100_000, "{found:?}");
    if is_last {
        assert!(
            found.path.is_empty() && found.message.contains(" more"),
            "{found:?}"
        );
        return;
    }
    let mut value = Some(object);
    let mut missing = 0;
    let mut rest = found.path.as_str();
    while !rest.is_empty() {
        let (step, after) = step(rest);
        rest = after;
        value = value.and_then(|value| match (value, &step) {
            (Value::Object(entries), Step::Key(key)) => of_key(entries, key),
            (Value::Array(items), Step::Index(index)) => items.get(*index),
            _ => None,
        });
        missing += usize::from(value.is_none());
    }
    // A message that should be there, and a field of it.
    assert!(missing <= 2, "{found:?} of {object}");
}

enum Step {
    Key(String),
    Index(usize),
}

fn step(path: &str) -> (Step, &str) {
    if path.starts_with("[\"") {
        let mut read = serde_json::Deserializer::from_str(&path[1..]).into_iter::<String>();
        let key = read.next().expect("a key").expect("JSON");
        let after = path[1 + read.byte_offset()..].strip_prefix(']');
        return (Step::Key(key), after.expect("a bracket"));
    }
    if let Some(path) = path.strip_prefix('[') {
        let (index, after) = path.split_once(']').expect("a bracket");
        return (Step::Index(index.parse().expect("an index")), after);
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let end = path.find(['.', '[']).unwrap_or(path.len());
    assert!(end > 0, "a field without a name in {path}");
    (Step::Key(path[..end].to_owned()), &path[end..])
}

/// Fields are written in two ways, and long keys are shown short.
fn of_key<'a>(entries: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let short = key.strip_suffix('…');
    let is_it = |name: &str| {
        plain(name) == plain(key) || short.is_some_and(|short| name.starts_with(short))
    };
    entries.get(key).or_else(|| {
        entries
            .iter()
            .find(|(name, _)| is_it(name))
            .map(|(_, value)| value)
    })
}

/// What is served is read as it was sent, and nothing is wrong with it there either.
fn comes_back(object: &Object) {
    let kind = object.kind;
    let name = object.full_name();
    let taken =
        Object::of_resource(kind, &name, object.body.clone()).expect("our own bytes are read");
    assert_eq!(taken.full_name(), name);
    if !kind.verbatim {
        assert_eq!(
            wire::encode(kind.message, &taken.spec),
            object.body,
            "{}",
            object.spec
        );
    }
    if kind.check == Check::Full {
        let said = config::check_rules(&taken);
        let wrong: Vec<_> = said.iter().filter(|found| found.is_error()).collect();
        assert!(wrong.is_empty(), "{wrong:?} of {}", object.spec);
    }
}
