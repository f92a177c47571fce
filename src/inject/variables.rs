//! Variables and arguments that would keep a container from starting: Linux starts no program with a longer one.

use serde_json::Value;

use crate::fragment::Fragment;
use crate::pod::{self, LONGEST_VARIABLE, PROXY, PodList};
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
const LONGEST_FLAG: usize = 64;

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
            Some(name) if name.starts_with('-') && name.len() <= LONGEST_FLAG => name,
            _ => "an argument",
        };
        named
    });
    let (name, bytes) = variables
        .chain(arguments)
        .find(|(_, bytes)| *bytes > LONGEST_VARIABLE)?;
    let of = pod::name(container);
    Some(format!(
        "{name} of {of} would have {bytes} bytes, and Linux starts no program with a variable or argument of over {LONGEST_VARIABLE}"
    ))
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
            let fits = bytes <= LONGEST_VARIABLE || !name.starts_with(OPTIONAL);
            if !fits {
                warnings.push(|| format!(
                    "{name} of {of} is left out: it has {bytes} bytes, and Linux starts no program with a variable of over {LONGEST_VARIABLE}"
                ));
            }
            fits
        });
    }
}
