//! The services of a ServiceEntry.

use api::model::ServiceKey;
use api::networking::{DiscoveryKind as _, ServiceEntry};
use serde_json::Value;
use sources::catalogue::ConfigObject;

/// Returns the keys of the services of a ServiceEntry, each with its host as it is written and in lower case; none for other kinds.
pub(super) fn service_keys(object: &ConfigObject) -> Vec<[ServiceKey; 2]> {
    if *object.kind != *ServiceEntry::NAME {
        return Vec::new();
    }
    let spec = object.spec.value();
    let hosts = spec.get("hosts").and_then(Value::as_array);
    let hosts = hosts.into_iter().flatten().filter_map(Value::as_str);
    let keys = hosts.map(|host| {
        let names = [host.to_owned(), host.to_ascii_lowercase()];
        names.map(|name| ServiceKey::new(&name, &object.namespace))
    });
    keys.collect()
}
