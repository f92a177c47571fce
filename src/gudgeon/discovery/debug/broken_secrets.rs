//! Messages for the objects that name a Secret which cannot be used: the certificate that it had before may expire.

use api::config::Finding;
use api::model::ObjectRef;
use xds::snapshot::{Snapshot, objects_naming};

use crate::discovery::hub::Hub;

/// The messages, each with the object that it is about. `is_of_replica`: they may say what this replica alone knows, which is whether
/// it has seen the Secret with a good certificate.
pub(super) fn findings(
    hub: &Hub,
    snapshot: &Snapshot,
    is_of_replica: bool,
) -> Vec<(ObjectRef, Finding)> {
    let world = snapshot.world();
    let mut findings = Vec::new();
    for (key, cause) in &hub.facts.broken_secrets() {
        let served = match world.credentials.contains_key(key) {
            _ if !is_of_replica => "replicas that have seen a good certificate of it serve that",
            true => "its last good certificate is served",
            false => "no certificate of it is served",
        };
        let (namespace, name) = key;
        let words = format!("cannot use Secret {namespace}/{name}: {cause}; {served}");
        let objects = objects_naming(world, &hub.options.settings, key).into_iter();
        findings.extend(objects.map(|object| (object, Finding::warning("", &words))));
    }
    findings
}
