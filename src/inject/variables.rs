//! Variables and arguments that would keep a container from starting, since Linux starts no program with a longer one, and variables
//! without effect.

use serde_json::Value;

use crate::annotations;
use crate::fragment::Fragment;
use crate::pod::{self, MAX_VARIABLE_LENGTH, PROXY, PodList};
use crate::release::Release;
use crate::status::Status;
use crate::warnings::Warnings;

/// Variables with the pod's labels and annotations for the control plane. A proxy starts without them.
const OPTIONAL: &str = "ISTIO_METAJSON_";

/// The typed output of a template, with containers in it.
pub(crate) trait Containers {
    fn containers_mut(&mut self) -> impl Iterator<Item = &mut Value>;
}

impl Containers for Value {
    fn containers_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        let spec = self.get_mut("spec").and_then(Self::as_object_mut);
        let lists = spec.into_iter().flat_map(|spec| spec.iter_mut());
        lists
            .filter(|(list, _)| matches!(list.as_str(), "initContainers" | "containers"))
            .filter_map(|(_, list)| list.as_array_mut())
            .flatten()
    }
}

impl Containers for Fragment {
    fn containers_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.lists.all_containers_mut()
    }
}

/// Bytes of a flag that a message names. Chosen: pilot-agent's have fewer than 40.
const MAX_FLAG_LENGTH: usize = 64;

/// Returns the reason why a container of the injection could not start: a variable or an argument that is too long, by its name.
pub(crate) fn too_long(pod: &Value, injected: &Status) -> Option<String> {
    PodList::OF_CONTAINERS.into_iter().find_map(|list| {
        pod::list(pod, list)
            .iter()
            .filter(|container| {
                let name = pod::name(container);
                name == PROXY || injected.has(list, name)
            })
            .find_map(container_too_long)
    })
}

fn container_too_long(container: &Value) -> Option<String> {
    let list = |name: &str| {
        container
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let variables = list("env").map(|variable| {
        let value = variable.get("value").and_then(Value::as_str);
        let name = pod::name(variable);
        let bytes = name.len() + value.map_or(0, str::len) + "=\0".len();
        (name, bytes)
    });
    let mut flag = "an argument";
    let arguments = list("args").filter_map(Value::as_str).map(|text| {
        let named = (flag, text.len() + "\0".len());
        // Its value may be a secret.
        flag = match text.split('=').next() {
            Some(name) if name.starts_with('-') && name.len() <= MAX_FLAG_LENGTH => name,
            _ => "an argument",
        };
        named
    });
    let (name, bytes) = variables
        .chain(arguments)
        .find(|(_, bytes)| *bytes > MAX_VARIABLE_LENGTH)?;
    let of = pod::name(container);
    Some(format!(
        "{name} of {of} would have {bytes} bytes, and Linux starts no program with a variable or argument of over {MAX_VARIABLE_LENGTH}"
    ))
}

/// Returns warnings about variables of Istio's agent that pintle neither honours nor names in its log.
pub(crate) fn without_effect(pod: &Value) -> impl Iterator<Item = String> {
    let proxy = pod::proxy(pod).filter(|proxy| Release::of_proxy([*proxy]) == Release::Ours);
    let env = proxy.and_then(|proxy| proxy.get("env")?.as_array());
    env.into_iter().flatten().filter_map(|variable| {
        let name = pod::name(variable);
        let value = variable.get("value").and_then(Value::as_str);
        let cause = idle(name, value.unwrap_or_default())?;
        Some(format!("{name} of {PROXY} has no effect: {cause}"))
    })
}

/// Returns the reason why a variable has no effect on pintle.
fn idle(name: &str, value: &str) -> Option<&'static str> {
    if name.starts_with("XDS_HEADER_") {
        return Some("the proxy adds no headers to its streams of configuration");
    }
    let is_switched_off = annotations::boolean(value) == Some(false);
    (name == "ISTIO_ENABLE_HTTP2_PROBING" && is_switched_off)
        .then_some("HTTPS probes speak HTTP/2 where the server chooses it")
}

/// Removes variables that are too long, and adds warnings.
pub(crate) fn leave_out_long(made: &mut impl Containers, warnings: &mut Warnings) {
    for container in made.containers_mut() {
        let of = pod::name(container).to_owned();
        let env = container.get_mut("env").and_then(Value::as_array_mut);
        let Some(env) = env else {
            continue;
        };
        env.retain(|variable| {
            let name = pod::name(variable);
            let value = variable.get("value").and_then(Value::as_str);
            let bytes = name.len() + value.map_or(0, str::len) + "=\0".len();
            let fits = bytes <= MAX_VARIABLE_LENGTH || !name.starts_with(OPTIONAL);
            if !fits {
                warnings.push(|| format!(
                    "{name} of {of} is left out: it has {bytes} bytes, and Linux starts no program with a variable of over {MAX_VARIABLE_LENGTH}"
                ));
            }
            fits
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_of_which_pintle_says_nothing_are_told() {
        let pod = |image: &str| {
            json!({"spec": {"containers": [{"name": "web"}], "initContainers": [{"name": "istio-proxy", "image": image, "env": [
                {"name": "XDS_HEADER_tenant", "value": "S3CRET"}, {"name": "XDS_ROOT_CA", "value": "/ca.pem"},
                {"name": "ISTIO_ENABLE_HTTP2_PROBING", "value": "F"}, {"name": "XDS_HEADER_node", "valueFrom": {}}]}]}})
        };
        let names: Vec<_> = without_effect(&pod("r.example/pintle-envoy:1")).collect();
        let headers = "has no effect: the proxy adds no headers to its streams of configuration";
        assert_eq!(
            names,
            [
                &format!("XDS_HEADER_tenant of istio-proxy {headers}"),
                "ISTIO_ENABLE_HTTP2_PROBING of istio-proxy has no effect: HTTPS probes speak HTTP/2 where the server chooses it",
                &format!("XDS_HEADER_node of istio-proxy {headers}"),
            ]
        );
        for value in ["true", "1", "", "maybe"] {
            assert_eq!(idle("ISTIO_ENABLE_HTTP2_PROBING", value), None, "{value}");
        }
        // Istio's own agent has these.
        assert_eq!(without_effect(&pod("istio/proxyv2:1.24.0")).next(), None);
        assert_eq!(without_effect(&json!({"spec": {}})).next(), None);
    }
}
