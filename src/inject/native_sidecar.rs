//! Native sidecars: the proxy as an init container that stays (Kubernetes 1.28), and the order in which containers start.

use serde_json::{Value, json};

use crate::pod::{self, ByList, PROXY, PodList};
use crate::status::Status;

const INIT: &str = "istio-init";
const VALIDATION: &str = "istio-validation";
pub(crate) const CORE_DUMP: &str = "enable-core-dump";

/// Moves the proxy from the containers to the init containers; a proxy that is an init container already stays as it is.
pub(crate) fn convert(pod: &mut Value, port: Option<u16>) {
    let Some(containers) = pod::existing_list_mut(pod, PodList::Containers) else {
        return;
    };
    // A gateway's only container is its proxy, and a pod needs a container.
    if containers.len() < 2 {
        return;
    }
    let Some(place) = containers.iter().position(|one| pod::name(one) == PROXY) else {
        return;
    };
    let mut proxy = containers.remove(place);
    if let Some(fields) = proxy.as_object_mut() {
        fields.insert("restartPolicy".to_owned(), json!("Always"));
        let has_probe = fields
            .get("startupProbe")
            .is_some_and(|probe| !probe.is_null());
        // kubelet starts the next init container once the startup probe succeeds: it finds a proxy that is
        // ready.
        if let Some(port) = port.filter(|_| !has_probe) {
            fields.insert(
                "startupProbe".to_owned(),
                json!({"httpGet": {"path": "/healthz/ready", "port": port}, "periodSeconds": 1, "timeoutSeconds": 3, "failureThreshold": 600}),
            );
        }
    }
    if let Some(list) = pod::list_mut(pod, PodList::InitContainers) {
        list.push(proxy);
    }
}

/// Returns true if a proxy among the init containers restarts always; sets that if `is_native`. A user's own proxy may be a container
/// that ends, and the pod would never start: Istio leaves two containers of that name, which API servers refuse.
pub(crate) fn stays(pod: &mut Value, is_native: bool) -> bool {
    let init = pod::existing_list_mut(pod, PodList::InitContainers);
    let mut proxies = init.into_iter().flatten();
    let Some(proxy) = proxies.find(|one| pod::name(one) == PROXY) else {
        return true;
    };
    if is_native && let Some(fields) = proxy.as_object_mut() {
        fields.insert("restartPolicy".to_owned(), json!("Always"));
    }
    proxy.get("restartPolicy").and_then(Value::as_str) == Some("Always")
}

/// Returns true if the proxy is among the init containers.
pub(crate) fn is_native(pod: &Value) -> bool {
    let init = pod::list(pod, PodList::InitContainers);
    init.iter().any(|one| pod::name(one) == PROXY)
}

/// Sorts the injection's init containers. With the proxy among them they come before the user's, which then are in the mesh;
/// without it redirection comes last, because no proxy would accept the redirected connections.
pub(crate) fn order_init(pod: &mut Value, status: &Status) {
    let native = is_native(pod);
    let Some(list) = pod::existing_list_mut(pod, PodList::InitContainers) else {
        return;
    };
    if native {
        arrange(
            list,
            status,
            PodList::InitContainers,
            &[CORE_DUMP, INIT, VALIDATION, PROXY],
            &[],
        );
    } else {
        arrange(
            list,
            status,
            PodList::InitContainers,
            &[VALIDATION],
            &[INIT, CORE_DUMP],
        );
    }
}

/// The proxy ends last, or starts first where the application is held until it has started.
pub(crate) fn order_containers(pod: &mut Value, status: &Status, hold: bool) {
    let Some(list) = pod::existing_list_mut(pod, PodList::Containers) else {
        return;
    };
    let (first, last): (&[&str], &[&str]) = if hold {
        (&[PROXY], &[])
    } else {
        (&[], &[PROXY])
    };
    arrange(list, status, PodList::Containers, first, last);
}

/// Returns the pod with the user's own containers of an injection where it will put them: a second pass finds them there, and
/// templates must see the same order then. `None` if it has none of them.
pub(crate) fn ordered(pod: &Value, hold: bool) -> Option<Value> {
    let of_injections = Status {
        lists: ByList {
            init_containers: [INIT, VALIDATION, CORE_DUMP, PROXY]
                .map(str::to_owned)
                .to_vec(),
            containers: vec![PROXY.to_owned()],
            ..ByList::default()
        },
        ..Status::default()
    };
    let mut lists = PodList::OF_CONTAINERS.into_iter();
    let has_one = lists.any(|list| {
        let names = of_injections.names(list);
        pod::list(pod, list)
            .iter()
            .any(|one| names.contains(pod::name(one)))
    });
    if !has_one {
        return None;
    }
    let mut ordered = pod.clone();
    order_init(&mut ordered, &of_injections);
    order_containers(&mut ordered, &of_injections, hold);
    Some(ordered)
}

/// Moves to the front the containers that fragments of Istio 1.6 to 1.8 have there: the container that validates redirection, and
/// the proxy if the application is held until it has started. All others keep the fragment's order.
pub(crate) fn order_fragment(pod: &mut Value, status: &Status, hold: bool) {
    if let Some(list) = pod::existing_list_mut(pod, PodList::InitContainers) {
        arrange(list, status, PodList::InitContainers, &[VALIDATION], &[]);
    }
    if hold && let Some(list) = pod::existing_list_mut(pod, PodList::Containers) {
        arrange(list, status, PodList::Containers, &[PROXY], &[]);
    }
}

/// Sorts the injected elements; all others keep their order.
fn arrange(elements: &mut [Value], status: &Status, list: PodList, first: &[&str], last: &[&str]) {
    let put_in = status.names(list);
    elements.sort_by_key(|element| {
        let name = pod::name(element);
        let among = |names: &[&str]| names.iter().position(|known| *known == name);
        match (put_in.contains(name), among(first), among(last)) {
            (true, Some(place), _) => (0, place),
            (true, None, Some(place)) => (2, place),
            _ => (1, 0),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pod: &Value, list: PodList) -> Vec<String> {
        let list = pod::list(pod, list).iter();
        list.map(|one| pod::name(one).to_owned()).collect()
    }

    #[test]
    fn the_order_of_init_containers() {
        let pod = |names: &[&str]| {
            let list: Value = names.iter().map(|name| json!({"name": name})).collect();
            json!({"spec": {"initContainers": list}})
        };
        let status = Status {
            lists: ByList {
                init_containers: [INIT, VALIDATION, CORE_DUMP, PROXY]
                    .map(str::to_owned)
                    .to_vec(),
                ..ByList::default()
            },
            ..Status::default()
        };
        let rows: [(&[&str], &[&str]); 4] = [
            (&["a", "b", INIT], &["a", "b", INIT]),
            (
                &[CORE_DUMP, "a", INIT, VALIDATION, "b"],
                &[VALIDATION, "a", "b", INIT, CORE_DUMP],
            ),
            (
                &["a", "b", INIT, CORE_DUMP, PROXY],
                &[CORE_DUMP, INIT, PROXY, "a", "b"],
            ),
            (
                &["a", VALIDATION, "b", PROXY],
                &[VALIDATION, PROXY, "a", "b"],
            ),
        ];
        for (before, wanted) in rows {
            let mut pod = pod(before);
            order_init(&mut pod, &status);
            assert_eq!(names(&pod, PodList::InitContainers), wanted);
        }
        // A user's own.
        let mut pod = pod(&[INIT, "a"]);
        order_init(&mut pod, &Status::default());
        assert_eq!(names(&pod, PodList::InitContainers), [INIT, "a"]);
    }
}
