//! The first way to inject: the template prints things to add (Istio 1.1 to 1.8).

use api::mesh::MeshConfig;
use serde_json::{Map, Value, json};

use crate::annotations::{self, REWRITE_PROBES};
use crate::merge;
use crate::output_error::OutputError;
use crate::output_types::{self, TypingOptions, TypingReport};
use crate::pod::{self, ByList, PROXY, PodList, SERVICE_ACCOUNT};
use crate::probes;
use crate::quantity;
use crate::release::Release;
use crate::render_cache::TextTree;
use crate::schema::{self, Kind};
use crate::yaml::{Node, Value as Tree};

/// The group that may read the token of the secret discovery service.
const TOKEN_GROUP: i64 = 1337;

/// Indexes of the parts that are no lists, behind those of the lists.
const DNS_CONFIG: usize = PodList::ALL.len();
const SECURITY_CONTEXT: usize = DNS_CONFIG + 1;
const ANNOTATIONS: usize = SECURITY_CONTEXT + 1;

/// The output of a template, typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fragment {
    pub(crate) rewrite_probes: bool,
    pub(crate) lists: ByList<Vec<Value>>,
    dns_config: Option<Map<String, Value>>,
    security_context: Option<Map<String, Value>>,
    annotations: Map<String, Value>,
}

impl Fragment {
    /// Types the template's output.
    pub(crate) fn read(node: &Node, report: &mut TypingReport) -> Result<Self, OutputError> {
        let Tree::Map(entries) = &node.value else {
            return Err("the template's output is not an object".to_owned().into());
        };
        let mut fragment = Self::default();
        for (key, node) in entries {
            let Some(kind) = kind(key) else {
                report.pruned.push(key.clone());
                continue;
            };
            let reading = TypingOptions {
                drop_restart_policy: true,
                ..TypingOptions::default()
            };
            let typed = report.below(value_index(key), |report| {
                output_types::typed(node, kind, key, reading, report)
            });
            if let Some(value) = typed.map_err(|mistake| mistake.to_string())? {
                fragment.set(key, value);
            }
        }
        for (list, elements) in fragment.lists.iter() {
            merge::check_names(list, elements)?;
        }
        Ok(fragment)
    }

    fn set(&mut self, key: &str, value: Value) {
        match value {
            Value::Bool(value) => self.rewrite_probes = value,
            Value::Array(elements) => {
                if let Some(list) = PodList::named(key) {
                    *self.lists.get_mut(list) = elements;
                }
            }
            Value::Object(entries) => match key {
                "dnsConfig" => self.dns_config = Some(entries),
                "securityContext" => self.security_context = Some(entries),
                _ => self.annotations = entries,
            },
            Value::Null | Value::Number(_) | Value::String(_) => {}
        }
    }

    pub(crate) fn proxy(&self) -> Option<&Value> {
        self.lists
            .all_containers()
            .find(|container| pod::name(container) == PROXY)
    }

    fn proxy_mut(&mut self) -> Option<&mut Value> {
        self.lists
            .containers
            .iter_mut()
            .find(|container| pod::name(container) == PROXY)
    }

    /// Returns the names of the added elements.
    pub(crate) fn names(&self) -> ByList<Vec<String>> {
        ByList::from_fn(|list| {
            let elements = self.lists.get(list).iter();
            elements
                .map(|element| pod::name(element).to_owned())
                .collect()
        })
    }

    /// Adds the fields that the template leaves to us: threads of the proxy by its share of the processor, and the pod's
    /// service account.
    pub(crate) fn complete(&mut self, pod: &Value) {
        // The API server mounts the account before webhooks run, so that it does not reach a container added
        // later.
        let mount = service_account(pod);
        let Some(Value::Object(proxy)) = self.proxy_mut() else {
            return;
        };
        give_threads(proxy);
        if let Some(mount) = mount {
            let mounts = proxy
                .get("volumeMounts")
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            // API servers refuse two mounts at one path.
            if !mounts
                .iter()
                .any(|other| other.get("mountPath") == mount.get("mountPath"))
            {
                append(proxy, "volumeMounts", [mount]);
            }
        }
    }

    /// The release of the proxy that the template makes.
    pub(crate) fn release(&self) -> Release {
        Release::of_proxy(self.lists.all_containers())
    }

    /// The status port that the proxy is started with.
    pub(crate) fn status_port(&self) -> Option<u16> {
        self.proxy().and_then(probes::status_port)
    }

    pub(crate) fn set_original_probes(&mut self, originals: &probes::OriginalProbes) {
        let containers = self.lists.all_containers_mut();
        for proxy in containers.filter(|one| pod::name(one) == PROXY) {
            probes::set_original_probes(proxy, originals);
        }
    }

    /// Adds all parts to the pod.
    pub(crate) fn put(mut self, pod: &mut Value, mesh: &MeshConfig) {
        let release = self.release();
        for (list, elements) in self.lists.iter_mut() {
            if !elements.is_empty()
                && let Some(in_pod) = pod::list_mut(pod, list)
            {
                in_pod.append(elements);
            }
        }
        let mut security_context = self.security_context.unwrap_or_default();
        if release.sets_group() || (mesh.enable_sds_token_mount && !mesh.sds_uds_path.is_empty()) {
            security_context.insert("fsGroup".to_owned(), json!(TOKEN_GROUP));
        }
        let objects = [
            ("dnsConfig", self.dns_config.unwrap_or_default()),
            ("securityContext", security_context),
        ];
        for (key, entries) in objects {
            if !entries.is_empty()
                && let Some(spec) = pod.get_mut("spec")
                && let Some(fields) = pod::object_mut(spec, key)
            {
                fields.extend(entries);
            }
        }
        // An empty annotation has no effect, and would be on every pod.
        let asked = self.annotations.into_iter();
        let asked = asked.filter(|(_, value)| value.as_str() != Some(""));
        set_annotations(pod, asked.filter(|_| !release.drops_redirect()));
    }
}

/// Sets annotations; creates the map if it is missing.
pub(crate) fn set_annotations(pod: &mut Value, entries: impl IntoIterator<Item = (String, Value)>) {
    let mut entries = entries.into_iter().peekable();
    // Nothing to set leaves no empty map behind.
    if entries.peek().is_none() || pod::object_mut(pod, "metadata").is_none() {
        return;
    }
    if let Some(metadata) = pod.get_mut("metadata")
        && let Some(annotations) = pod::object_mut(metadata, "annotations")
    {
        annotations.extend(entries);
    }
}

impl TextTree for Fragment {
    fn text_mut(&mut self, trail: &[usize]) -> Option<&mut String> {
        let [place, index, trail @ ..] = trail else {
            return None;
        };
        let entries = match *place {
            DNS_CONFIG => self.dns_config.as_mut()?,
            SECURITY_CONTEXT => self.security_context.as_mut()?,
            ANNOTATIONS => &mut self.annotations,
            place => {
                let list = PodList::ALL.get(place).copied()?;
                let element = self.lists.get_mut(list).get_mut(*index)?;
                return element.text_mut(trail);
            }
        };
        entries.values_mut().nth(*index)?.text_mut(trail)
    }
}

/// The index of a key's value.
fn value_index(key: &str) -> usize {
    let list = PodList::ALL.iter().position(|list| list.name() == key);
    list.unwrap_or(match key {
        "dnsConfig" => DNS_CONFIG,
        "securityContext" => SECURITY_CONTEXT,
        _ => ANNOTATIONS,
    })
}

/// Returns true if the application's probes are to be rewritten, by the pod's annotation, or else by the template.
pub(crate) fn rewrites(pod: &Value, fragment: &Fragment) -> bool {
    pod::annotation(pod, REWRITE_PROBES)
        .and_then(annotations::boolean)
        .unwrap_or(fragment.rewrite_probes)
}

/// The type of a key of the fragment.
fn kind(key: &str) -> Option<Kind> {
    let (object, field) = match key {
        "rewriteAppHTTPProbe" => return Some(Kind::Boolean),
        "podRedirectAnnot" => ("ObjectMeta", "annotations"),
        "initContainers" | "containers" | "volumes" | "dnsConfig" | "imagePullSecrets"
        | "securityContext" => ("PodSpec", key),
        _ => return None,
    };
    schema::object(object)?.field(field).map(|field| field.kind)
}

/// Sets the proxy's threads to its share of the processor, unless its arguments set a number.
pub(crate) fn give_threads(proxy: &mut Map<String, Value>) {
    if let Some(threads) = threads(proxy) {
        let arguments = [
            Value::from("--concurrency"),
            Value::from(threads.to_string()),
        ];
        append(proxy, "args", arguments);
    }
}

fn append<const N: usize>(container: &mut Map<String, Value>, key: &str, values: [Value; N]) {
    let list = container.entry(key).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.extend(values);
    }
}

/// The number of threads by the proxy's share of the processor; `None` if its arguments set one.
fn threads(proxy: &Map<String, Value>) -> Option<i128> {
    let args = proxy
        .get("args")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let args: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    let configured = probes::flag(&args, &["--concurrency", "-concurrency"])
        .and_then(|number| number.parse::<u32>().ok());
    // An explicit 0 asks for the share, too.
    if configured.is_some_and(|number| number > 0) {
        return None;
    }
    let share = |kind: &str| {
        proxy
            .get("resources")?
            .get(kind)?
            .get("cpu")?
            .as_str()
            .and_then(quantity::ceil)
    };
    share("limits")
        .or_else(|| share("requests"))
        .filter(|threads| *threads > 0)
}

/// The last mount of the service account among the pod's containers.
fn service_account(pod: &Value) -> Option<Value> {
    let mut mounts = pod::list(pod, PodList::Containers)
        .iter()
        .filter_map(|container| container.get("volumeMounts")?.as_array())
        .flatten();
    mounts
        .rfind(|mount| mount.get("mountPath").and_then(Value::as_str) == Some(SERVICE_ACCOUNT))
        .cloned()
}
