//! The schema of core/v1 Pod: the fields of each object, and the type of each field.
//!
//! The table is a generated text; no type is written by hand. A [`Kind`] is a place in it, cheap to copy, and every walk
//! over a pod (typing, the template's data, comparing) walks kinds beside it.

use std::collections::HashMap;
use std::sync::LazyLock;

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("schema.txt")));

/// The type of a value in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Boolean,
    Integer,
    Number,
    Quantity,
    IntegerOrText,
    /// A value without a schema.
    Any,
    List(Id),
    Map(Id),
    Object(ObjectType),
}

/// The kind of the elements of a list or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(usize);

/// An object with fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectType(usize);

#[derive(Debug)]
pub(crate) struct Field {
    /// The name in JSON.
    pub(crate) name: &'static str,
    /// The name in Go.
    pub(crate) go: String,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
}

#[derive(Debug)]
struct TypeRow {
    name: &'static str,
    /// Sorted by name.
    fields: Vec<Field>,
    /// Places in `fields`, sorted by Go's name.
    by_go: Vec<usize>,
}

impl TypeRow {
    fn go(&self, place: usize) -> &str {
        self.fields.get(place).map_or("", |field| &field.go)
    }
}

#[derive(Debug)]
struct Table {
    records: Vec<TypeRow>,
    elements: Vec<Kind>,
}

/// The object of that name: `Pod`, `PodSpec`, `Container`, `Volume`, …
#[must_use]
pub(crate) fn object(name: &str) -> Option<ObjectType> {
    TABLE
        .records
        .iter()
        .position(|record| record.name == name)
        .map(ObjectType)
}

/// The type of the elements of a list of `PodSpec`; [`Kind::Any`] for a name that is no list of it.
pub(crate) fn element_of(list: &str) -> Kind {
    let field = object("PodSpec").and_then(|spec| spec.field(list));
    match field.map(|field| field.kind) {
        Some(Kind::List(element)) => element.kind(),
        _ => Kind::Any,
    }
}

impl Id {
    #[must_use]
    pub(crate) fn kind(self) -> Kind {
        TABLE.elements.get(self.0).copied().unwrap_or(Kind::Any)
    }
}

impl ObjectType {
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        TABLE.records.get(self.0).map_or("", |record| record.name)
    }

    /// The field of that name in JSON.
    #[must_use]
    pub(crate) fn field(self, name: &str) -> Option<&'static Field> {
        let record = TABLE.records.get(self.0)?;
        let place = record.fields.binary_search_by(|field| field.name.cmp(name));
        record.fields.get(place.ok()?)
    }
}

impl ObjectType {
    /// The field of that name in Go.
    #[must_use]
    pub(crate) fn go_field(self, name: &str) -> Option<&'static Field> {
        let record = TABLE.records.get(self.0)?;
        let found = record
            .by_go
            .binary_search_by(|place| record.go(*place).cmp(name));
        record.fields.get(*record.by_go.get(found.ok()?)?)
    }
}

/// Words that Go writes in capitals.
const INITIALISMS: [&str; 24] = [
    "api", "aws", "csi", "dns", "fc", "fs", "gce", "gmsa", "grpc", "http", "id", "ip", "ipc",
    "iscsi", "nfs", "os", "pid", "rbd", "se", "ssl", "tcp", "tty", "uid", "url",
];

/// Go's name of a field: a capital first, initialisms whole.
fn go_name(json: &str) -> String {
    let end = json
        .find(|letter: char| letter.is_ascii_uppercase())
        .unwrap_or(json.len());
    let (first, rest) = json.split_at(end);
    match first {
        "cephfs" => "CephFS".to_owned(),
        "storageos" => "StorageOS".to_owned(),
        "wwids" => "WWIDs".to_owned(),
        _ if INITIALISMS.contains(&first) => format!("{}{rest}", first.to_ascii_uppercase()),
        _ => {
            let mut letters = first.chars();
            let capital: String = letters
                .next()
                .into_iter()
                .flat_map(char::to_uppercase)
                .collect();
            format!("{capital}{}{rest}", letters.as_str())
        }
    }
}

impl Kind {
    /// Returns the type of a list's elements; `Any` for any other type.
    #[must_use]
    pub(crate) fn of_elements(self) -> Self {
        match self {
            Self::List(element) => element.kind(),
            Self::Text
            | Self::Boolean
            | Self::Integer
            | Self::Number
            | Self::Quantity
            | Self::IntegerOrText
            | Self::Any
            | Self::Map(_)
            | Self::Object(_) => Self::Any,
        }
    }

    /// The type of `name` below a value of this type.
    #[must_use]
    pub(crate) fn below(self, name: &str) -> Option<Self> {
        match self {
            Self::Object(object) => object.field(name).map(|field| field.kind),
            Self::Map(element) => Some(element.kind()),
            Self::Text
            | Self::Boolean
            | Self::Integer
            | Self::Number
            | Self::Quantity
            | Self::IntegerOrText
            | Self::Any
            | Self::List(_) => None,
        }
    }
}

impl Table {
    fn read(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let names: HashMap<_, _> = lines()
            .filter_map(|line| line.split(' ').next())
            .zip(0..)
            .collect();
        let mut table = Self {
            records: Vec::new(),
            elements: Vec::new(),
        };
        for line in lines() {
            let mut parts = line.split(' ');
            let name = parts.next().unwrap_or_default();
            let mut fields = Vec::new();
            for part in parts {
                let Some((name, kind)) = part.split_once('=') else {
                    continue;
                };
                let (name, required) = name
                    .strip_suffix('!')
                    .map_or((name, false), |name| (name, true));
                let kind = table.kind(kind, &names);
                fields.push(Field {
                    name,
                    go: go_name(name),
                    kind,
                    required,
                });
            }
            // `field` searches by name.
            fields.sort_unstable_by_key(|field: &Field| field.name);
            let mut record = TypeRow {
                name,
                by_go: (0..fields.len()).collect(),
                fields,
            };
            let mut by_go = std::mem::take(&mut record.by_go);
            by_go.sort_unstable_by(|a, b| record.go(*a).cmp(record.go(*b)));
            record.by_go = by_go;
            table.records.push(record);
        }
        table
    }

    fn kind(&mut self, text: &str, names: &HashMap<&str, usize>) -> Kind {
        if let Some(element) = text.strip_prefix('[') {
            return Kind::List(self.element(element.trim_end_matches(']'), names));
        }
        if let Some(element) = text.strip_prefix('{') {
            return Kind::Map(self.element(element.trim_end_matches('}'), names));
        }
        match text {
            "string" => Kind::Text,
            "boolean" => Kind::Boolean,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "quantity" => Kind::Quantity,
            "int-or-string" => Kind::IntegerOrText,
            _ => names
                .get(text)
                .map_or(Kind::Any, |index| Kind::Object(ObjectType(*index))),
        }
    }

    fn element(&mut self, text: &str, names: &HashMap<&str, usize>) -> Id {
        let kind = self.kind(text, names);
        let id = self
            .elements
            .iter()
            .position(|known| *known == kind)
            .unwrap_or_else(|| {
                self.elements.push(kind);
                self.elements.len() - 1
            });
        Id(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_a_container() {
        let container = object("Container").unwrap();
        assert_eq!(
            container.field("args").map(|field| field.kind),
            Some(Kind::List(texts()))
        );
        let name = container.field("name").unwrap();
        assert!(name.required && name.kind == Kind::Text);
        let Kind::Object(resources) = container.field("resources").unwrap().kind else {
            panic!()
        };
        let Kind::Map(limits) = resources.field("limits").unwrap().kind else {
            panic!()
        };
        assert_eq!(
            (resources.name(), limits.kind()),
            ("ResourceRequirements", Kind::Quantity)
        );
        assert!(container.field("future").is_none());
    }

    #[test]
    fn go_writes_names_its_way() {
        let rows = [
            ("hostIP", "HostIP"),
            ("podIP", "PodIP"),
            ("uid", "UID"),
            ("dnsPolicy", "DNSPolicy"),
            ("dnsConfig", "DNSConfig"),
            ("hostPID", "HostPID"),
            ("hostIPC", "HostIPC"),
            ("fsGroup", "FSGroup"),
            ("httpGet", "HTTPGet"),
            ("httpHeaders", "HTTPHeaders"),
            ("tcpSocket", "TCPSocket"),
            ("grpc", "GRPC"),
            ("apiVersion", "APIVersion"),
            ("nfs", "NFS"),
            ("iscsi", "ISCSI"),
            ("csi", "CSI"),
            ("tty", "TTY"),
            ("fc", "FC"),
            ("rbd", "RBD"),
            ("downwardAPI", "DownwardAPI"),
            ("name", "Name"),
            ("setHostnameAsFQDN", "SetHostnameAsFQDN"),
            ("image", "Image"),
            ("ip", "IP"),
            ("seLinuxOptions", "SELinuxOptions"),
        ];
        for (json, go) in rows {
            assert_eq!(go_name(json), go);
        }
    }

    #[test]
    fn every_word_of_the_table_is_understood() {
        for record in &TABLE.records {
            assert!(!record.fields.is_empty(), "{}", record.name);
            for field in &record.fields {
                let is_any = field.kind == Kind::Any
                    || matches!(field.kind, Kind::List(id) | Kind::Map(id) if id.kind() == Kind::Any);
                assert!(
                    !is_any || field.name == "fieldsV1",
                    "{}.{}",
                    record.name,
                    field.name
                );
            }
        }
    }

    /// The table's entry for a list of texts.
    fn texts() -> Id {
        Id(TABLE
            .elements
            .iter()
            .position(|kind| *kind == Kind::Text)
            .unwrap())
    }
}
