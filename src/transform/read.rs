//! Decodes objects for the transforms, which refuse an object of which a part cannot be read.

use api::kubernetes::{
    EndpointPort, EndpointSlice, Endpoints, Ingress, Items, Lenient, ObjectMeta,
    PartialObjectMetadata, Pod, ServiceObject,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of objects that a transform reads.
pub trait TransformSource: DeserializeOwned {
    /// The fields that only other readers of the kind need: `[]` stands for each item of a list.
    const UNREAD: &'static [&'static str] = &[];

    fn metadata(&self) -> &ObjectMeta;

    /// Returns the first part that a transform reads and that cannot be read, with the cause.
    fn unreadable_part(&self) -> Option<String> {
        None
    }
}

/// Decodes an object of which all that a transform needs can be read.
///
/// # Errors
///
/// The JSON is no object of the kind, or a part of it cannot be read.
pub fn read<T: TransformSource>(json: &str) -> Result<T, String> {
    readable(serde_json::from_str(json)).or_else(|cause| {
        // The unreadable part may be a field that no transform needs.
        let mut value: Value = serde_json::from_str(json).map_err(|_| cause)?;
        for field in METADATA.iter().chain(T::UNREAD) {
            remove(&mut value, field);
        }
        readable(serde_json::from_value(value))
    })
}

/// As [`TransformSource::UNREAD`], of all kinds.
const METADATA: &[&str] = &[
    "metadata.uid",
    "metadata.generation",
    "metadata.deletionTimestamp",
    "metadata.ownerReferences",
];

fn remove(value: &mut Value, field: &str) {
    let Some((name, rest)) = field.split_once('.') else {
        if let Some(object) = value.as_object_mut() {
            object.remove(field);
        }
        return;
    };
    match name.strip_suffix("[]") {
        Some(list) => {
            let items = value.get_mut(list).and_then(Value::as_array_mut);
            let items = items.into_iter().flatten();
            items.for_each(|item| remove(item, rest));
        }
        None => {
            if let Some(below) = value.get_mut(name) {
                remove(below, rest);
            }
        }
    }
}

fn readable<T: TransformSource>(read: Result<T, serde_json::Error>) -> Result<T, String> {
    let object = read.map_err(|cause| cause.to_string())?;
    let metadata = object.metadata();
    let unreadable = if !metadata.creation_timestamp.is_empty() && metadata.created().is_none() {
        let wanted = "want a time such as 2020-01-02T03:04:05Z";
        Some(format!("metadata.creationTimestamp: {wanted}"))
    } else {
        object.unreadable_part()
    };
    match unreadable {
        Some(cause) => Err(cause),
        None => Ok(object),
    }
}

/// Returns a port's number.
pub(crate) fn number(port: &Lenient<i64>) -> Option<u16> {
    u16::try_from(*port.read()?).ok()
}

/// Returns the number of an endpoint's port; `None` also for a port that stands for all ports.
pub(crate) fn endpoint_number(port: &EndpointPort) -> Option<u16> {
    let number = port.port.read().copied().flatten()?;
    u16::try_from(number).ok()
}

fn text(field: &str, text: &Lenient<String>) -> Option<String> {
    match text {
        Lenient::Read(_) => None,
        Lenient::Unreadable(got) => Some(format!("{field}: want a text, got {got}")),
    }
}

fn no_port(field: &str, got: &dyn std::fmt::Display) -> String {
    format!("{field}: want a port, 1 to 65535, got {got}")
}

fn items<T>(field: &str, all: &Items<T>) -> Option<String> {
    let unreadable = all.unreadable.as_ref();
    unreadable.map(|unreadable| unreadable.message(field))
}

fn endpoint_ports(field: &str, ports: &Items<EndpointPort>) -> Option<String> {
    let number = |port: &EndpointPort| match &port.port {
        Lenient::Read(Some(number)) if u16::try_from(*number).is_err() => {
            Some(no_port(&format!("{field}.port"), number))
        }
        Lenient::Read(_) => None,
        Lenient::Unreadable(got) => Some(no_port(&format!("{field}.port"), got)),
    };
    items(field, ports).or_else(|| ports.items.iter().find_map(number))
}

impl TransformSource for ServiceObject {
    const UNREAD: &'static [&'static str] = &[
        "spec.selector",
        "spec.trafficDistribution",
        "spec.publishNotReadyAddresses",
        "spec.ports[].appProtocol",
        "status",
    ];

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn unreadable_part(&self) -> Option<String> {
        let spec = &self.spec;
        let number = |port: &Lenient<i64>| match port {
            Lenient::Read(number) if u16::try_from(*number).is_ok() => None,
            Lenient::Read(number) => Some(no_port("spec.ports.port", number)),
            Lenient::Unreadable(got) => Some(no_port("spec.ports.port", got)),
        };
        text("spec.clusterIP", &spec.cluster_ip)
            .or_else(|| text("spec.externalName", &spec.external_name))
            .or_else(|| items("spec.ports", &spec.ports))
            .or_else(|| spec.ports.items.iter().find_map(|port| number(&port.port)))
    }
}

impl TransformSource for Endpoints {
    const UNREAD: &'static [&'static str] = &[
        "subsets[].addresses[].nodeName",
        "subsets[].notReadyAddresses[].nodeName",
        "subsets[].ports[].protocol",
    ];

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn unreadable_part(&self) -> Option<String> {
        items("subsets", &self.subsets).or_else(|| {
            self.subsets.items.iter().find_map(|subset| {
                items("subsets.addresses", &subset.addresses)
                    .or_else(|| items("subsets.notReadyAddresses", &subset.not_ready_addresses))
                    .or_else(|| endpoint_ports("subsets.ports", &subset.ports))
            })
        })
    }
}

impl TransformSource for EndpointSlice {
    const UNREAD: &'static [&'static str] = &[
        "endpoints[].nodeName",
        "endpoints[].zone",
        "endpoints[].conditions.serving",
        "endpoints[].conditions.terminating",
        "ports[].protocol",
    ];

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn unreadable_part(&self) -> Option<String> {
        items("endpoints", &self.endpoints).or_else(|| endpoint_ports("ports", &self.ports))
    }
}

impl TransformSource for Pod {
    const UNREAD: &'static [&'static str] = &[
        "spec.hostNetwork",
        "spec.containers",
        "spec.initContainers",
        "status.phase",
        "status.conditions",
    ];

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn unreadable_part(&self) -> Option<String> {
        text("status.podIP", &self.status.pod_ip)
    }
}

impl TransformSource for PartialObjectMetadata {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl TransformSource for Ingress {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cause<T: TransformSource>(object: &Value) -> String {
        read::<T>(&object.to_string()).err().unwrap_or_default()
    }

    #[test]
    fn an_object_with_a_part_that_cannot_be_read_is_not_transformed() {
        let port = |port: Value| json!({"spec": {"ports": [{"port": 80}, {"port": port}]}});
        for (service, expected) in [
            (port(json!(81)), ""),
            (
                port(json!(70000)),
                "spec.ports.port: want a port, 1 to 65535, got 70000",
            ),
            (
                port(json!("http")),
                "spec.ports.port: want a port, 1 to 65535, got \"http\"",
            ),
            (
                json!({"spec": {"ports": [80]}}),
                "spec.ports[0]: a value is not a port",
            ),
            (
                json!({"spec": {"clusterIP": 7}}),
                "spec.clusterIP: want a text, got 7",
            ),
            (
                json!({"spec": {"externalName": [1]}}),
                "spec.externalName: want a text, got [1]",
            ),
            (
                json!({"metadata": {"creationTimestamp": "today"}}),
                "metadata.creationTimestamp: want a time such as 2020-01-02T03:04:05Z",
            ),
            // No transform reads these.
            (json!({"spec": {"externalIPs": [7]}}), ""),
            (
                json!({"status": 7, "spec": {"ports": [{"port": "http"}]}}),
                "spec.ports.port: want a port, 1 to 65535, got \"http\"",
            ),
        ] {
            assert_eq!(cause::<ServiceObject>(&service), expected);
        }
        for (slice, expected) in [
            (
                json!({"endpoints": [{"addresses": ["a"]}], "ports": [{}]}),
                "",
            ),
            (
                json!({"endpoints": ["10.0.0.1"]}),
                "endpoints[0]: a value is not an endpoint",
            ),
            (
                json!({"ports": [{"port": "http"}]}),
                "ports.port: want a port, 1 to 65535, got \"http\"",
            ),
        ] {
            assert_eq!(cause::<EndpointSlice>(&slice), expected);
        }
        for (subset, expected) in [
            (json!({"addresses": [{"ip": "10.0.0.1"}]}), ""),
            (
                json!({"notReadyAddresses": [{"ip": 7}]}),
                "subsets.notReadyAddresses[0]: a value is not a string",
            ),
            (
                json!({"ports": [{"port": 70000}]}),
                "subsets.ports.port: want a port, 1 to 65535, got 70000",
            ),
        ] {
            assert_eq!(cause::<Endpoints>(&json!({"subsets": [subset]})), expected);
        }
        let pod = json!({"status": {"podIP": 7}});
        assert_eq!(cause::<Pod>(&pod), "status.podIP: want a text, got 7");
    }

    #[test]
    fn a_part_that_no_transform_reads_costs_no_object() {
        for service in [
            json!({"metadata": {"generation": "x", "uid": 7}}),
            json!({"metadata": {"deletionTimestamp": 7, "ownerReferences": "x"}}),
            json!({"spec": {"selector": ["a"]}, "status": 7}),
            json!({"spec": {"trafficDistribution": 7, "publishNotReadyAddresses": "x"}}),
            json!({"spec": {"ports": [{"port": 80, "appProtocol": 7}]}}),
        ] {
            assert_eq!(cause::<ServiceObject>(&service), "", "{service}");
        }
        let conditions = json!({"serving": "x", "terminating": 7});
        let endpoint = json!({"zone": 7, "nodeName": {}, "conditions": conditions});
        let slice = json!({"endpoints": [endpoint], "ports": [{"protocol": 7}]});
        assert_eq!(cause::<EndpointSlice>(&slice), "");
        let address = json!({"ip": "10.0.0.1", "nodeName": 7});
        let subset = json!({"addresses": [address], "notReadyAddresses": [address], "ports": [{"protocol": 7}]});
        assert_eq!(cause::<Endpoints>(&json!({"subsets": [subset]})), "");
        let pod = json!({
            "spec": {"hostNetwork": "x", "containers": 7, "initContainers": [7]},
            "status": {"phase": 7, "conditions": "x", "podIP": "10.0.0.1"},
        });
        assert_eq!(cause::<Pod>(&pod), "");
        let read = read::<Pod>(&pod.to_string()).unwrap();
        assert_eq!(read.status.pod_ip.read().unwrap(), "10.0.0.1");
    }
}
