//! A pod as JSON: how its parts are reached, and which lists have keys.

use serde_json::{Map, Value};

/// A list of a pod that an injection adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PodList {
    InitContainers,
    Containers,
    Volumes,
    ImagePullSecrets,
}

impl PodList {
    /// In the order in which they are patched.
    pub(crate) const ALL: [Self; 4] = [
        Self::InitContainers,
        Self::Containers,
        Self::Volumes,
        Self::ImagePullSecrets,
    ];
    /// The lists that hold containers.
    pub(crate) const OF_CONTAINERS: [Self; 2] = [Self::Containers, Self::InitContainers];

    /// The key of the list in the spec.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InitContainers => "initContainers",
            Self::Containers => "containers",
            Self::Volumes => "volumes",
            Self::ImagePullSecrets => "imagePullSecrets",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.name() == name)
    }

    pub(crate) const fn has_containers(self) -> bool {
        matches!(self, Self::Containers | Self::InitContainers)
    }
}

/// A value for each [`PodList`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ByList<T> {
    pub(crate) init_containers: T,
    pub(crate) containers: T,
    pub(crate) volumes: T,
    pub(crate) image_pull_secrets: T,
}

impl<T> ByList<T> {
    pub(crate) fn from_fn(mut value: impl FnMut(PodList) -> T) -> Self {
        Self {
            init_containers: value(PodList::InitContainers),
            containers: value(PodList::Containers),
            volumes: value(PodList::Volumes),
            image_pull_secrets: value(PodList::ImagePullSecrets),
        }
    }

    pub(crate) const fn get(&self, list: PodList) -> &T {
        match list {
            PodList::InitContainers => &self.init_containers,
            PodList::Containers => &self.containers,
            PodList::Volumes => &self.volumes,
            PodList::ImagePullSecrets => &self.image_pull_secrets,
        }
    }

    pub(crate) const fn get_mut(&mut self, list: PodList) -> &mut T {
        match list {
            PodList::InitContainers => &mut self.init_containers,
            PodList::Containers => &mut self.containers,
            PodList::Volumes => &mut self.volumes,
            PodList::ImagePullSecrets => &mut self.image_pull_secrets,
        }
    }

    /// All values, in the order of [`PodList::ALL`].
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PodList, &T)> {
        PodList::ALL.into_iter().map(|list| (list, self.get(list)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PodList, &mut T)> {
        let all = [
            (PodList::InitContainers, &mut self.init_containers),
            (PodList::Containers, &mut self.containers),
            (PodList::Volumes, &mut self.volumes),
            (PodList::ImagePullSecrets, &mut self.image_pull_secrets),
        ];
        all.into_iter()
    }
}

impl<T> ByList<Vec<T>> {
    /// The elements of both lists that hold containers; those of the init containers come first.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &T> {
        self.init_containers.iter().chain(&self.containers)
    }

    pub(crate) fn all_containers_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.init_containers.iter_mut().chain(&mut self.containers)
    }
}

/// Returns the merge key of a list, if it has one.
#[must_use]
pub(crate) fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "imagePullSecrets"
        | "env" => Some("name"),
        "ports" => Some("containerPort"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "hostAliases" => Some("ip"),
        _ => None,
    }
}

/// The identity of an element in its list: the text of its key's value.
#[must_use]
pub(crate) fn identity(element: &Value, key: &str) -> String {
    match element.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => format!("={other}"),
        None => String::new(),
    }
}

/// Returns the object at `key`; null and other types are no object.
#[must_use]
pub(crate) fn object<'a>(value: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    value.get(key).and_then(Value::as_object)
}

/// Returns the object at `key`; creates it if it is missing.
pub(crate) fn object_mut<'a>(
    value: &'a mut Value,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    let entry = value.as_object_mut()?.entry(key).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}

/// The elements of a list of the spec.
#[must_use]
pub(crate) fn list(pod: &Value, list: PodList) -> &[Value] {
    pod.get("spec")
        .and_then(|spec| spec.get(list.name()))
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Returns a list of the spec; creates it if it is missing.
pub(crate) fn list_mut(pod: &mut Value, list: PodList) -> Option<&mut Vec<Value>> {
    let spec = object_mut(pod, "spec")?;
    let entry = spec.entry(list.name()).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Array(Vec::new());
    }
    entry.as_array_mut()
}

/// A list of the spec where there is one.
pub(crate) fn existing_list_mut(pod: &mut Value, list: PodList) -> Option<&mut Vec<Value>> {
    pod.get_mut("spec")?.get_mut(list.name())?.as_array_mut()
}

/// The name of an element.
#[must_use]
pub(crate) fn name(element: &Value) -> &str {
    element
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the annotations; `None` if the pod has none.
#[must_use]
pub(crate) fn annotations(pod: &Value) -> Option<&Map<String, Value>> {
    object(pod.get("metadata")?, "annotations")
}

#[must_use]
pub(crate) fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    metadata(pod, "annotations", name)
}

#[must_use]
pub(crate) fn label<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    metadata(pod, "labels", name)
}

fn metadata<'a>(pod: &'a Value, map: &str, name: &str) -> Option<&'a str> {
    pod.get("metadata")?.get(map)?.get(name)?.as_str()
}

/// The container that is the proxy, wherever it is: native sidecars are init containers.
#[must_use]
pub(crate) fn proxy(pod: &Value) -> Option<&Value> {
    PodList::OF_CONTAINERS
        .into_iter()
        .flat_map(|of| list(pod, of))
        .find(|container| name(container) == PROXY)
}

/// All containers that are named as the proxy is.
pub(crate) fn proxies_mut(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    let (mut containers, mut init_containers) = (None, None);
    for (key, list) in spec.into_iter().flatten() {
        match PodList::named(key) {
            Some(PodList::Containers) => containers = list.as_array_mut(),
            Some(PodList::InitContainers) => init_containers = list.as_array_mut(),
            Some(PodList::Volumes | PodList::ImagePullSecrets) | None => {}
        }
    }
    let lists = containers.into_iter().chain(init_containers);
    lists.flatten().filter(|one| name(one) == PROXY)
}

/// Linux's limit for one variable or argument (`MAX_ARG_STRLEN`), with a variable's name, `=` and the byte at its end.
pub(crate) const MAX_VARIABLE_LENGTH: usize = 128 << 10;

/// The containers that run as a user, with their list and place in it: a container's own user takes precedence over its pod's.
/// Containers whose names Istio's templates use are left out.
pub fn containers_of_user(
    pod: &Value,
    user: i64,
) -> impl Iterator<Item = (&'static str, usize, &str)> {
    let user_of = |of: &Value| of.get("securityContext")?.get("runAsUser")?.as_i64();
    let of_pod = pod.get("spec").and_then(user_of);
    PodList::OF_CONTAINERS.into_iter().flat_map(move |field| {
        let all = list(pod, field).iter().enumerate();
        all.filter(move |(_, container)| user_of(container).or(of_pod) == Some(user))
            .map(move |(at, container)| (field.name(), at, name(container)))
            .filter(|(_, _, name)| !name.starts_with("istio-"))
    })
}

/// The directory at which API servers mount a pod's service account.
pub(crate) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The proxy's container.
pub(crate) const PROXY: &str = "istio-proxy";
