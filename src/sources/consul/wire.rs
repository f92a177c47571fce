//! Consul's JSON, with the used fields: the names of a catalog, and the instances of one name. It is untrusted, so its
//! entries are limited in number, and its text is cut before it is shown.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use api::text::{excerpt, first_letters, is_control};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error_text::misread;

/// Names in a catalog.
pub(crate) const NAMES: usize = 20_000;
/// Instances of one service.
pub(crate) const INSTANCES: usize = 20_000;
/// Characters of Consul's text that are quoted in messages.
const MAX_SHOWN: usize = 100;

/// The names of a catalog; those that no client could use are apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) names: BTreeSet<Arc<str>>,
    pub(crate) warnings: Vec<String>,
}

/// An instance of a service, from either of the two API paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instance {
    /// The service's ID, unique on its node.
    pub(crate) id: String,
    pub(crate) node: String,
    /// The instance's address, else its node's.
    pub(crate) address: String,
    pub(crate) port: i64,
    pub(crate) datacenter: String,
    pub(crate) tags: Vec<String>,
    /// Meta `protocol`.
    pub(crate) protocol: String,
    /// Meta `external` is not empty.
    pub(crate) external: bool,
    /// No check is critical, and neither the instance nor its node is in maintenance.
    pub(crate) served: bool,
}

/// `/v1/catalog/services`: an object whose keys are names.
pub(crate) fn catalog(bytes: &[u8]) -> Result<Catalog, String> {
    let ServiceNames(names) = decode(bytes)?;
    let mut catalog = Catalog::default();
    let mut bad = Vec::new();
    for name in names {
        if is_usable(&name) {
            catalog.names.insert(name.into());
        } else {
            bad.push(name);
        }
    }
    bad.sort();
    if let Some(first) = bad.first() {
        catalog.warnings.push(format!(
            "cannot serve {} (of {} such): no client could look up this name",
            quoted(first),
            bad.len()
        ));
    }
    Ok(catalog)
}

/// `/v1/health/service/NAME`.
pub(crate) fn health(bytes: &[u8]) -> Result<Vec<Instance>, String> {
    let Some(BoundedList(entries)) = decode::<Option<BoundedList<HealthEntry>>>(bytes)? else {
        return Ok(Vec::new());
    };
    Ok(entries.into_iter().map(HealthEntry::instance).collect())
}

/// `/v1/catalog/service/NAME`: the same without checks.
pub(crate) fn instances(bytes: &[u8]) -> Result<Vec<Instance>, String> {
    let Some(BoundedList(entries)) = decode::<Option<BoundedList<Flat>>>(bytes)? else {
        return Ok(Vec::new());
    };
    Ok(entries.into_iter().map(Flat::instance).collect())
}

/// A name that is a part of a host's, and of a path as it is.
pub(crate) fn is_usable(name: &str) -> bool {
    !name.ends_with('.') && api::names::is_name(&hostname(name))
}

pub(crate) fn hostname(name: &str) -> String {
    format!("{name}.service.consul")
}

/// Quotes Consul's text in one line, cut to `MAX_SHOWN` characters.
pub(crate) fn quoted(text: &str) -> String {
    let (cut, more) = excerpt(text, MAX_SHOWN);
    format!("{cut:?}{more}")
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = misread(&error);
        first_letters(&message, 2 * MAX_SHOWN).replace(is_control, " ")
    })
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HealthEntry {
    node: ConsulNode,
    service: ConsulService,
    #[serde(default)]
    checks: Option<BoundedList<Check>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConsulNode {
    #[serde(default)]
    node: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    datacenter: String,
    #[serde(default)]
    meta: Option<Meta>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConsulService {
    #[serde(default, rename = "ID")]
    id: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: i64,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    meta: Option<Meta>,
}

/// The two used keys of the service's meta.
#[derive(Default, serde::Deserialize)]
struct Meta {
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    external: String,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Check {
    #[serde(default, rename = "CheckID")]
    id: String,
    #[serde(default)]
    status: String,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Flat {
    #[serde(default)]
    node: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    datacenter: String,
    #[serde(default)]
    node_meta: Option<Meta>,
    #[serde(default, rename = "ServiceID")]
    service_id: String,
    #[serde(default)]
    service_address: String,
    #[serde(default)]
    service_port: i64,
    #[serde(default)]
    service_tags: Option<Vec<String>>,
    #[serde(default)]
    service_meta: Option<Meta>,
}

impl Check {
    /// Returns true if the check marks the instance as unhealthy. Maintenance is a check with an ID of its own.
    fn is_against(&self) -> bool {
        self.status.eq_ignore_ascii_case("critical")
            || self.status.eq_ignore_ascii_case("maintenance")
            || self.id == "_node_maintenance"
            || self.id.starts_with("_service_maintenance:")
    }
}

impl HealthEntry {
    fn instance(self) -> Instance {
        let served = !self
            .checks
            .is_some_and(|checks| checks.0.iter().any(Check::is_against));
        Flat {
            node: self.node.node,
            address: self.node.address,
            datacenter: self.node.datacenter,
            node_meta: self.node.meta,
            service_id: self.service.id,
            service_address: self.service.address,
            service_port: self.service.port,
            service_tags: self.service.tags,
            service_meta: self.service.meta,
        }
        .with(served)
    }
}

impl Flat {
    fn instance(self) -> Instance {
        self.with(true)
    }

    fn with(self, served: bool) -> Instance {
        // Meta was the node's before services had any.
        let of_node = self.node_meta.unwrap_or_default();
        let of_service = self.service_meta.unwrap_or_default();
        let first = |one: String, other| if one.is_empty() { other } else { one };
        Instance {
            id: self.service_id,
            node: self.node,
            address: first(self.service_address, self.address),
            port: self.service_port,
            datacenter: self.datacenter,
            tags: self.service_tags.unwrap_or_default(),
            protocol: first(of_service.protocol, of_node.protocol),
            external: !(of_service.external.is_empty() && of_node.external.is_empty()),
            served,
        }
    }
}

/// A list with a bound.
struct BoundedList<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = BoundedList<T>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<BoundedList<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = from.next_element()? {
                    if list.len() == INSTANCES {
                        return Err(A::Error::custom(format!("more than {INSTANCES} entries")));
                    }
                    list.push(entry);
                }
                Ok(BoundedList(list))
            }
        }
        from.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ServiceNames(Vec<String>);

impl<'de> Deserialize<'de> for ServiceNames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NamesVisitor;

        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = ServiceNames;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object of services")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<ServiceNames, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = from.next_entry()? {
                    if names.len() == NAMES {
                        return Err(A::Error::custom(format!("more than {NAMES} services")));
                    }
                    names.push(name);
                }
                Ok(ServiceNames(names))
            }
        }
        from.deserialize_map(NamesVisitor)
    }
}
