//! Objects of the mesh as resources, and resources as objects: the one place where the protocol meets the table of kinds.

use std::sync::Arc;

use api::config::collections::{SYNTHETIC, kind_of};
use api::config::{self, Finding, Kind, Object};
use api::google::protobuf::Timestamp;

use crate::message;
use crate::sink::{ReadResult, ResourceReader};
use crate::snapshot::{Origin, Resource};

/// An object that was checked and is good, as all sinks get it.
pub fn resource(object: &Object, create_time: Option<Timestamp>) -> Resource {
    Resource::new(Origin {
        name: object.full_name(),
        create_time,
        labels: object.labels.clone(),
        annotations: object.annotations.clone(),
        type_url: object.kind.type_url(),
        body: object.body.clone(),
    })
}

/// A time in seconds since 1970.
pub fn created(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

/// Reads objects that a source has sent, and checks them by the rules that hold for a user's own.
#[derive(Clone, Copy, Debug)]
pub struct ObjectReader {
    /// Returns true if a source generates objects of this full name in a collection: their names are not validated, because
    /// users may not choose them. A user's own object of such a name is indistinguishable, and was refused at the source.
    pub is_generated_name: fn(collection: &str, name: &str) -> bool,
}

impl ResourceReader for ObjectReader {
    type Object = Object;

    fn read(&self, collection: &str, resource: &message::Resource) -> ReadResult<Arc<Object>> {
        let is_made = collection == SYNTHETIC;
        let kind = if is_made {
            entries()
        } else {
            kind_of(collection)
        };
        let (Some(kind), Some(body)) = (kind, &resource.body) else {
            return ReadResult::Unreadable("there are no objects of this collection".to_owned());
        };
        let metadata = resource.metadata.clone().unwrap_or_default();
        let mut object = match Object::of_resource(kind, &metadata.name, body.value.clone()) {
            Ok(object) => object,
            Err(malformed) => return ReadResult::Unreadable(malformed.to_string()),
        };
        object.labels = metadata.labels;
        object.annotations = metadata.annotations;
        let is_generated = (self.is_generated_name)(collection, &metadata.name);
        let is_excused = |finding: &Finding| is_generated && finding.path == "metadata.name";
        // Generated ServiceEntries are not entry to the rules for users.
        let mut found = match is_made {
            true => config::refuse_unknown_numbers(&mut object),
            false => {
                let mut found = Object::misnamed(kind, &metadata.name);
                found.extend(config::check_received(&mut object));
                found
            }
        };
        found.retain(|finding| finding.is_error() && !is_excused(finding));
        // After the warnings are gone: within the bound they would displace errors.
        config::limit(&mut found);
        let findings: Vec<_> = found.iter().map(Finding::to_string).collect();
        if findings.is_empty() {
            ReadResult::Accepted(Arc::new(object))
        } else {
            ReadResult::Refused(findings)
        }
    }
}

/// The kind of entries that are generated from Services.
fn entries() -> Option<&'static Kind> {
    kind_of("istio/networking/v1alpha3/serviceentries")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use api::config::collections::{MESH, served, type_url_of};
    use api::config::{ObjectStatus, ServedInstead};
    use prost::Message as _;
    use serde_json::json;

    use super::*;
    use crate::message::Resources;
    use crate::sink::{Settings, Sink};

    const REFUSED: ObjectStatus = ObjectStatus::Refused {
        serving: ServedInstead::Nothing,
    };

    const COLLECTION: &str = "istio/networking/v1alpha3/virtualservices";
    const READER: ObjectReader = ObjectReader {
        is_generated_name: |_, name| name.ends_with("-generated"),
    };

    fn object(weights: [u32; 2]) -> Object {
        let route = |weight: u32| json!({"destination": {"host": "web"}, "weight": weight});
        let routes = weights.map(route);
        let document = json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"l": "1"}},
            "spec": {"hosts": ["web"], "http": [{"route": routes}]},
        });
        let (object, _) = config::read(&document);
        object.unwrap()
    }

    fn response(nonce: &str, collection: &str, resource: &Resource) -> Resources {
        let mut response = Resources::decode(resource.framed().clone()).unwrap();
        response.collection = collection.to_owned();
        response.nonce = nonce.to_owned();
        response
    }

    fn sink(collection: &str) -> Sink<Object> {
        let settings = Settings {
            id: "sink".to_owned(),
            annotations: BTreeMap::new(),
            incremental: true,
        };
        let type_url = type_url_of(collection).unwrap();
        Sink::new(settings, [(collection, type_url.as_str())])
    }

    #[test]
    fn an_object_arrives_as_it_was() {
        let sent = object([75, 25]);
        let resource = resource(&sent, None);
        let mut sink = sink(COLLECTION);
        let response = response("1", COLLECTION, &resource);
        let handled = sink
            .handle_response(Duration::ZERO, response, &READER)
            .unwrap();
        let changes = handled.changes.unwrap();
        let (name, got) = &changes.set[0];
        assert_eq!(&**name, "shop/web");
        assert_eq!((&got.spec, &got.labels), (&sent.spec, &sent.labels));
        assert_eq!((&*got.namespace, &*got.name), ("shop", "web"));
    }

    #[test]
    fn a_rule_that_is_broken_is_asked_here_too() {
        let mut sink = sink(COLLECTION);
        let response = response("1", COLLECTION, &resource(&object([75, 20]), None));
        let handled = sink
            .handle_response(Duration::ZERO, response, &READER)
            .unwrap();
        assert!(handled.request.error_detail.is_none());
        let (_, entry) = sink.entries(COLLECTION).next().unwrap();
        assert_eq!(entry.status(), REFUSED);
        assert_eq!(
            entry.findings,
            ["spec.http[0].route: weights add up to 95, not 100"]
        );
    }

    /// Any number fits on the wire, and whoever knows only names would take it for the default, which may be plain text.
    #[test]
    fn numbers_that_are_none_of_an_enumeration_are_refused() {
        let ports = json!([{"number": 443, "name": "https", "protocol": "HTTPS"}]);
        for (kind, spec, finding) in [
            (
                "DestinationRule",
                json!({"host": "web", "trafficPolicy": {"tls": {"mode": 9}}}),
                "spec.trafficPolicy.tls.mode: \"9\" is not one of DISABLE, SIMPLE, MUTUAL, ISTIO_MUTUAL",
            ),
            (
                "Gateway",
                json!({"servers": [{"port": ports[0], "hosts": ["*"], "tls": {"mode": 9}}]}),
                "spec.servers[0].tls.mode: \"9\" is not one of PASSTHROUGH, SIMPLE, MUTUAL, AUTO_PASSTHROUGH, ISTIO_MUTUAL, \
                 OPTIONAL_MUTUAL",
            ),
            (
                "ServiceEntry",
                json!({"hosts": ["web.example"], "ports": ports, "resolution": 9}),
                "spec.resolution: \"9\" is not one of NONE, STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS",
            ),
            (
                "PeerAuthentication",
                json!({"mtls": {"mode": -1}}),
                "spec.mtls.mode: \"-1\" is not one of UNSET, DISABLE, PERMISSIVE, STRICT",
            ),
            (
                "PeerAuthentication",
                json!({"selector": {"matchLabels": {"a": "b"}}, "portLevelMtls": {"80": {"mode": 9}}}),
                "spec.portLevelMtls.80.mode: \"9\" is not one of UNSET, DISABLE, PERMISSIVE, STRICT",
            ),
        ] {
            assert_eq!(findings_of(kind, &spec), [finding]);
        }
    }

    /// The findings of a sink about a body, which may hold values that no text can.
    fn findings_of(kind: &str, spec: &serde_json::Value) -> Vec<String> {
        let mut groups = ["networking.istio.io", "security.istio.io"].into_iter();
        let kind = groups.find_map(|group| config::named(group, kind)).unwrap();
        let resource = Resource::new(Origin {
            name: "shop/web".to_owned(),
            type_url: kind.type_url(),
            body: api::wire::encode(kind.message, spec).into(),
            ..Origin::default()
        });
        let mut sink = sink(kind.collection);
        let response = response("1", kind.collection, &resource);
        sink.handle_response(Duration::ZERO, response, &READER)
            .unwrap();
        let (_, entry) = sink.entries(kind.collection).next().unwrap();
        entry.findings.clone()
    }

    /// Errors are reported with any number of warnings beside them.
    #[test]
    fn a_rule_that_is_broken_is_not_lost_among_warnings() {
        let mut broken = object([75, 20]);
        let gateways: Vec<_> = (0..1500).map(|at| format!("g{at}.a")).collect();
        broken.spec["gateways"] = json!(gateways);
        let (read, _) = config::read(&json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": broken.spec,
        }));
        assert_eq!(status(&read.unwrap(), "shop/web"), REFUSED);
    }

    /// Only the name of a generated Gateway is exempt from validation.
    #[test]
    fn only_a_generated_gateway_has_a_name_that_is_no_label() {
        let document = json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}]},
        });
        let (object, findings) = config::check(&document);
        assert_eq!(findings, []);
        let object = object.unwrap();
        for (name, wanted) in [
            ("shop/web", ObjectStatus::Accepted),
            ("shop/a.b", REFUSED),
            ("shop/a.b-generated", ObjectStatus::Accepted),
            ("shop/*-generated", ObjectStatus::Accepted),
            ("s_/a.b-generated", REFUSED),
        ] {
            assert_eq!(status(&object, name), wanted, "{name}");
        }
        // At the door it is one as any other.
        let mut document = document;
        for name in ["a.b", "a.b-generated"] {
            document["metadata"]["name"] = json!(name);
            let (_, findings) = config::check(&document);
            assert_eq!(findings[0].path, "metadata.name", "{name}");
        }
    }

    /// Any other name would have no namespace, or one that Kubernetes refuses.
    #[test]
    fn invalid_object_names_are_refused() {
        let object = object([75, 25]);
        let of = |name: &str| {
            let named = Resource::new(Origin {
                name: name.to_owned(),
                type_url: object.kind.type_url(),
                body: object.body.clone(),
                ..Origin::default()
            });
            let mut sink = sink(COLLECTION);
            let response = response("1", COLLECTION, &named);
            sink.handle_response(Duration::ZERO, response, &READER)
                .unwrap();
            let (_, entry) = sink.entries(COLLECTION).next().unwrap();
            entry.findings.join("; ")
        };
        for (name, message) in [
            ("shop/web.v2", ""),
            ("shop/*-web-generated", ""),
            ("web", "metadata.namespace: \"\" is not a DNS label"),
            ("/web", "metadata.namespace: \"\" is not a DNS label"),
            ("shop/", "metadata.name: \"\" is not a DNS name"),
            ("a/b/c", "metadata.name: \"b/c\" is not a DNS name"),
            (
                "Sh_op/x",
                "metadata.namespace: \"Sh_op\" is not a DNS label",
            ),
            (
                "shop/Bad_Name!",
                "metadata.name: \"Bad_Name!\" is not a DNS name",
            ),
        ] {
            assert_eq!(of(name), message, "{name}");
        }
    }

    /// The status of an object of this name at a sink.
    fn status(object: &Object, name: &str) -> ObjectStatus {
        let mut object = object.clone();
        let (namespace, short) = name.split_once('/').unwrap();
        (object.namespace, object.name) = (namespace.to_owned(), short.to_owned());
        let collection = object.kind.collection;
        let mut sink = sink(collection);
        let response = response("1", collection, &resource(&object, None));
        sink.handle_response(Duration::ZERO, response, &READER)
            .unwrap();
        let (_, entry) = sink.entries(collection).next().unwrap();
        entry.status()
    }

    #[test]
    fn bytes_that_are_no_message_refuse_the_response() {
        let mut sink = sink(COLLECTION);
        let mut response = response("1", COLLECTION, &resource(&object([75, 25]), None));
        response.resources[0].body.as_mut().unwrap().value = vec![0xff].into();
        let handled = sink
            .handle_response(Duration::ZERO, response, &READER)
            .unwrap();
        let error = handled.request.error_detail.unwrap();
        assert_eq!(error.code, 3);
        assert!(error.message.starts_with("shop/web: "), "{}", error.message);
    }

    /// Every collection that has objects can be read, empty as a body may be.
    #[test]
    fn served_objects_are_read() {
        for collection in served().filter(|collection| *collection != MESH) {
            let resource = Resource::new(Origin {
                name: "n/a".to_owned(),
                type_url: type_url_of(collection).unwrap(),
                ..Origin::default()
            });
            let mut sink = sink(collection);
            let response = response("1", collection, &resource);
            let handled = sink
                .handle_response(Duration::ZERO, response, &READER)
                .unwrap();
            assert!(handled.changes.is_some(), "{collection}");
            let (_, entry) = sink.entries(collection).next().unwrap();
            let is_made = collection == SYNTHETIC;
            assert!(!is_made || entry.status() == ObjectStatus::Accepted);
        }
    }
}
