//! The second way to inject: templates print partial pods, which are laid over the pod (Istio 1.9 to today).

use std::collections::BTreeSet;
use std::sync::Arc;

use api::mesh::proxy_config::InboundInterceptionMode;
use serde_json::{Map, Value};

use crate::annotations::{self, INTERCEPTION_MODE, REWRITE_PROBES, STATUS_PORT, TEMPLATES};
use crate::data::Owner;
use crate::file::Probers;
use crate::fragment::{self, set_annotations};
use crate::injection::{Injection, StopReason};
use crate::interface::{Outcome, reason};
use crate::labels;
use crate::merge::{self, Layer};
use crate::metrics;
use crate::native_sidecar;
use crate::output_error::OutputError;
use crate::output_types::{self, Findings, TypingOptions};
use crate::overrides::Overrides;
use crate::pod::{self, CONTAINERS, LISTS, PROXY};
use crate::probes::{self, OriginalProbes, ProbeRewrite};
use crate::protected_containers::{ProtectedContainers, Protection};
use crate::reinject::{self, Placement, ReplacedElements};
use crate::release::Release;
use crate::replaced_values;
use crate::schema::{self, Kind};
use crate::status::{OVERRIDES, STATUS, Status};
use crate::template_set::{SelectedTemplates, TemplateSet};
use crate::uninject::uninject;
use crate::warnings;
use crate::yaml::{Node, Value as Tree};
use crate::yaml_safe;

const READING: TypingOptions = TypingOptions {
    drop_restart_policy: false,
    nulls: true,
    directives: true,
};

/// The output of one template, typed: `metadata` with labels and annotations, and `spec`.
pub(crate) fn read(node: &Node, findings: &mut Findings) -> Result<Value, OutputError> {
    let Tree::Map(entries) = &node.value else {
        return Err("the template's output is not an object".to_owned().into());
    };
    let mut made = Map::new();
    for (key, node) in entries {
        let value = findings.below(made.len(), |findings| part(key, node, findings))?;
        // A valid pod has each of these, so null has nothing to delete.
        made.extend(
            value
                .filter(|value| !value.is_null())
                .map(|value| (key.clone(), value)),
        );
    }
    if let Some(spec) = made.get("spec") {
        for list in LISTS {
            let elements = spec.get(list).and_then(Value::as_array);
            names(list, elements.map_or(&[], Vec::as_slice))?;
        }
    }
    Ok(Value::Object(made))
}

fn part(key: &str, node: &Node, findings: &mut Findings) -> Result<Option<Value>, String> {
    match (key, &node.value) {
        ("metadata", Tree::Map(entries)) => metadata(entries, findings).map(Some),
        ("spec", _) => typed(node, schema::object("PodSpec"), key, findings),
        ("metadata", _) => typed(node, schema::object("ObjectMeta"), key, findings),
        _ => {
            findings.pruned.push(key.to_owned());
            Ok(None)
        }
    }
}

fn typed(
    node: &Node,
    kind: Option<schema::ObjectType>,
    path: &str,
    findings: &mut Findings,
) -> Result<Option<Value>, String> {
    let kind = kind.map_or(Kind::Any, Kind::Object);
    output_types::typed(node, kind, path, READING, findings).map_err(|mistake| mistake.to_string())
}

fn metadata(entries: &[(String, Node)], findings: &mut Findings) -> Result<Value, String> {
    let mut made = Map::new();
    for (key, node) in entries {
        let path = format!("metadata.{key}");
        let field = schema::object("ObjectMeta").and_then(|object| object.field(key));
        let Some(field) = field.filter(|_| matches!(key.as_str(), "labels" | "annotations")) else {
            findings.pruned.push(path);
            continue;
        };
        let value = findings.below(made.len(), |findings| {
            output_types::typed(node, field.kind, &path, READING, findings)
        });
        let value = value.map_err(|mistake| mistake.to_string())?;
        made.extend(value.map(|value| (key.clone(), value)));
    }
    Ok(Value::Object(made))
}

/// Checks that every element has a name, and that names of added elements are unique.
fn names(list: &str, elements: &[Value]) -> Result<(), OutputError> {
    let mut seen = BTreeSet::new();
    for (index, element) in elements.iter().enumerate() {
        let name = pod::name(element);
        if element.as_object().is_some_and(|fields| {
            fields.keys().all(|key| key.starts_with('$')) && !fields.is_empty()
        }) {
            continue;
        }
        if name.is_empty() {
            return Err(format!("{list}[{index}]: no name").into());
        }
        if merge::adds(element) && !seen.insert(name) {
            return Err(OutputError::Duplicate {
                list: list.to_owned(),
                index,
                name: name.to_owned(),
            });
        }
    }
    Ok(())
}

/// The names that the templates make, by [`LISTS`], in their order, each once.
fn made_names(layers: &[Value]) -> [Vec<String>; 4] {
    LISTS.map(|list| {
        let mut names: Vec<String> = Vec::new();
        let mut seen = BTreeSet::new();
        let elements = layers.iter().flat_map(|layer| pod::list(layer, list));
        for element in elements.filter(|element| merge::adds(element)) {
            let name = pod::name(element);
            if !name.is_empty() && seen.insert(name) {
                names.push(name.to_owned());
            }
        }
        names
    })
}

/// Returns true for a stock template whose proxy is the application itself, not a sidecar.
fn is_router(template: &str) -> bool {
    matches!(
        template,
        "gateway" | "kube-gateway" | "waypoint" | "grpc-agent" | "grpc-simple"
    )
}

/// Init containers of stock templates that prepare the pod, and end.
const PREPARING: [&str; 3] = ["istio-init", "istio-validation", native_sidecar::CORE_DUMP];

/// Removes `restartPolicy` from the init containers that prepare the pod: overlays of 1.9 to 1.17 set it, for servers that
/// did not know the field; since Kubernetes 1.28 it makes sidecars of them, which never end.
fn end_what_must_end(layer: &mut Value) {
    let init = pod::existing_list_mut(layer, "initContainers");
    for container in init.into_iter().flatten() {
        if PREPARING.contains(&pod::name(container))
            && let Some(fields) = container.as_object_mut()
        {
            fields.shift_remove("restartPolicy");
        }
    }
}

/// The release of the proxy that the templates make.
fn made_release(layers: &[Value]) -> Release {
    let lists = layers
        .iter()
        .rev()
        .flat_map(|layer| CONTAINERS.map(|list| pod::list(layer, list)));
    Release::of_proxy(lists.flatten())
}

/// The proxy may be a container here and an init container there: it is one, and that is the latter.
fn align(pod: &mut Value, layer: &mut Value) {
    let has = |of: &Value, list| {
        pod::list(of, list)
            .iter()
            .any(|one| pod::name(one) == PROXY)
    };
    if has(pod, "containers") && has(layer, "initContainers") {
        to_init(pod);
    }
    if has(layer, "containers") && has(pod, "initContainers") {
        to_init(layer);
        // An empty list would create the field in a pod without it.
        if pod::list(layer, "containers").is_empty()
            && let Some(spec) = layer.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.shift_remove("containers");
        }
    }
}

fn to_init(of: &mut Value) {
    let Some(containers) = pod::existing_list_mut(of, "containers") else {
        return;
    };
    let Some(place) = containers.iter().position(|one| pod::name(one) == PROXY) else {
        return;
    };
    let proxy = containers.remove(place);
    if let Some(init) = pod::list_mut(of, "initContainers") {
        init.push(proxy);
    }
}

/// The variable that a pair of the webhook's path is.
fn variable(key: &str) -> String {
    match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => warnings::NETWORK.to_owned(),
        other => other.to_uppercase(),
    }
}

/// Moves the pull secrets of the templates before the pod's own, as Istio's merge does.
fn put_first(pod: &mut Value, secrets: &[String]) {
    let secrets: BTreeSet<&str> = secrets.iter().map(String::as_str).collect();
    let known = pod::existing_list_mut(pod, "imagePullSecrets");
    if let Some(known) = known.filter(|_| !secrets.is_empty()) {
        known.sort_by_key(|secret| !secrets.contains(pod::name(secret)));
    }
}

/// Sets the proxy's threads to its share of the processor.
fn give_threads(pod: &mut Value) {
    for list in CONTAINERS {
        let all = pod::existing_list_mut(pod, list).into_iter().flatten();
        for proxy in all.filter(|one| pod::name(one) == PROXY) {
            if let Value::Object(proxy) = proxy {
                fragment::give_threads(proxy);
            }
        }
    }
}

/// Lays the chosen templates over the pod.
pub(crate) fn inject(mut job: Injection<'_>, set: &TemplateSet) -> Outcome {
    let said = job.configuration.annotation(job.sent, TEMPLATES);
    let chosen = match set.choose(said) {
        Ok(chosen) => chosen,
        Err(cause) => return job.stop(StopReason::Template(cause)),
    };
    let names = chosen.templates.iter().map(|one| one.name().to_owned());
    job.tried.templates = names.collect();
    job.tried.version.clone_from(&chosen.version);
    match job.overlay_pod(set, &chosen) {
        Ok((pod, status)) => {
            job.tried.native = native_sidecar::is_native(&pod);
            job.finish(pod, &status, &ReplacedElements::new())
        }
        Err(stop) => job.stop(stop),
    }
}

impl Injection<'_> {
    fn overlay_pod(
        &mut self,
        set: &TemplateSet,
        chosen: &SelectedTemplates<'_>,
    ) -> Result<(Value, Status), StopReason> {
        let mut made = self.sent.clone();
        let earlier = Status::of(self.sent).unwrap_or_default();
        let originals = uninject(&mut made, &earlier, &chosen.version);
        if !earlier.replaced.is_empty() {
            let validated = self.configuration.validate(&made);
            validated.map_err(StopReason::Pod)?;
        }
        let before = replaced_values::outline(&made);
        self.set_injected_annotations(&mut made);
        let owner = Owner::of(&made, self.request, &self.namespace);
        yaml_safe::names(&made, &self.request.origin).map_err(StopReason::Pod)?;
        let shown = Arc::new(made);
        let ordered = native_sidecar::ordered(&shown, self.holds() && !self.native).map(Arc::new);
        let layers = self.layers(set, chosen, ordered.as_ref().unwrap_or(&shown), &owner)?;
        // The rendering has let go of it.
        let mut made = Arc::unwrap_or_clone(shown);
        let mut now = Status {
            version: chosen.version.clone(),
            revision: Some(self.configuration.revision().to_owned()),
            lists: made_names(&layers),
            ..Status::default()
        };
        let protected = ProtectedContainers::of(&layers);
        let release = made_release(&layers);
        let agents = self.configuration.agents;
        let own_network = pod::label(&made, labels::NETWORK).map(str::to_owned);
        let own = self.put(&mut made, layers, (&protected, release), &mut now);
        self.set_variables(&mut made, own_network.as_deref());
        let probers = agents.probers(release);
        self.connect(&mut made, (&own, &protected), &now, (probers, &originals));
        let network = self.configuration.network(&self.request.path);
        let network = network.filter(|_| agents.add_labels != Some(false));
        let network = network.map(|name| (labels::NETWORK, name));
        let which = agents.labels(release);
        let left_out = labels::add(&mut made, which, &owner, network.as_slice());
        self.warnings.extend(left_out);
        replaced_values::note(&mut now, &before, &made);
        let kept = own
            .to_text()
            .map(|text| (OVERRIDES.to_owned(), Value::from(text)));
        let status = (STATUS.to_owned(), Value::from(now.to_text()));
        set_annotations(&mut made, kept.into_iter().chain([status]));
        reinject::reinject(self.sent, &mut made, &earlier, &now, Placement::InPlace);
        native_sidecar::order_init(&mut made, &now);
        put_first(&mut made, &now.lists[3]);
        let hold = self.holds() && !native_sidecar::is_native(&made);
        native_sidecar::order_containers(&mut made, &now, hold);
        self.warn_of_core_dumps(&now);
        Ok((made, now))
    }

    /// The outputs of the templates for the pod, in their order.
    fn layers(
        &mut self,
        set: &TemplateSet,
        chosen: &SelectedTemplates<'_>,
        shown: &Arc<Value>,
        owner: &Owner,
    ) -> Result<Vec<Value>, StopReason> {
        let mut layers = Vec::new();
        for template in &chosen.templates {
            let text = self.render(template, shown, owner)?;
            layers.extend(self.read(template, text, &set.render_cache, read)?);
        }
        for layer in &mut layers {
            end_what_must_end(layer);
        }
        if layers.is_empty() {
            return Err(StopReason::Skip(reason::EMPTY_TEMPLATE));
        }
        Ok(layers)
    }

    /// Lays the templates over the pod, and the user's own containers over that.
    fn put(
        &mut self,
        made: &mut Value,
        layers: Vec<Value>,
        (protected, release): (&ProtectedContainers, Release),
        now: &mut Status,
    ) -> Overrides {
        let of_templates = now.lists.iter().take(2).flatten();
        let of_templates: BTreeSet<&str> = of_templates.map(String::as_str).collect();
        let own = Overrides::of(made, |name| of_templates.contains(name));
        protected.take_all(made, &mut self.warnings);
        let secrets = &mut now.lists[3];
        // Pull secrets consist of a name alone: a pod that had one keeps it.
        let known = pod::list(made, "imagePullSecrets").iter();
        let known: BTreeSet<&str> = known.map(pod::name).collect();
        secrets.retain(|name| !known.contains(name.as_str()));
        let root = schema::object("Pod").map_or(Kind::Any, Kind::Object);
        for mut layer in layers {
            align(made, &mut layer);
            merge::lay(made, layer, root, Layer::Template);
        }
        if release.gives_threads() {
            give_threads(made);
        }
        own.lay(made, protected);
        // A router redirects nothing.
        let is_sidecar = self.tried.templates.iter().any(|name| !is_router(name));
        let is_transparent = is_sidecar && self.is_transparent(made);
        own.give_user(made, is_transparent, &mut self.warnings);
        if self.native && is_sidecar {
            native_sidecar::convert(made, self.status_port(made));
        }
        now.locate(made);
        own
    }

    /// Returns true if connections keep their addresses, for which the proxy has to be root.
    fn is_transparent(&self, made: &Value) -> bool {
        let tproxy = InboundInterceptionMode::Tproxy;
        match pod::annotation(made, INTERCEPTION_MODE) {
            Some(said) => said == tproxy.as_str_name(),
            None => self.proxy.config.interception_mode() == tproxy,
        }
    }

    /// Sets the proxy's variables of the webhook's path, and its network: the label that the user wrote counts most.
    fn set_variables(&self, made: &mut Value, own_network: Option<&str>) {
        let path = &self.request.path;
        let pairs = path.iter();
        let pairs = pairs.map(|(key, value)| (variable(key), value.clone()));
        let mut variables: Vec<_> = pairs.collect();
        let own_network = own_network.filter(|name| !name.is_empty());
        let is_said = path.iter().any(|(key, _)| key == "net");
        // The values are a default: a variable that is there is the user's, or the template's own.
        let has_variable = pod::proxy(made)
            .and_then(|proxy| proxy.get("env")?.as_array())
            .is_some_and(|env| env.iter().any(|one| pod::name(one) == warnings::NETWORK));
        let of_others = self.configuration.network(path);
        let network = own_network.or_else(|| of_others.filter(|_| is_said || !has_variable));
        variables.extend(network.map(|name| (warnings::NETWORK.to_owned(), name.to_owned())));
        metrics::set_variables(made, &variables);
    }

    /// Probes and metrics of the application go through the proxy.
    fn connect(
        &mut self,
        made: &mut Value,
        (own, protected): (&Overrides, &ProtectedContainers),
        now: &Status,
        (probers, earlier): (Probers, &OriginalProbes),
    ) {
        let Some(port) = self.status_port(made) else {
            return;
        };
        let says = |name| pod::annotation(made, name).and_then(annotations::boolean);
        let rewrites = says(REWRITE_PROBES).unwrap_or(self.configuration.rewrite_probes);
        self.merge_metrics(made, port);
        if rewrites {
            let rewriting = ProbeRewrite {
                probers,
                port,
                earlier,
            };
            let own = own.names();
            let put_in = CONTAINERS.map(|list| (list, now.names(list)));
            let is_made = |list: &str, name: &str| {
                let mut lists = put_in.iter();
                let is_put_in = lists.any(|(known, names)| *known == list && names.contains(name));
                // Beside rights, all other fields of the user's container are the template's.
                let is_own = own.contains(name) && protected.get(name) != Some(Protection::Rights);
                name == PROXY || (is_put_in && !is_own)
            };
            let told = rewriting.rewrite(made, is_made, &mut self.warnings);
            for list in CONTAINERS {
                let all = pod::existing_list_mut(made, list).into_iter().flatten();
                for proxy in all.filter(|one| pod::name(one) == PROXY) {
                    probes::set_original_probes(proxy, &told);
                }
            }
        }
    }

    /// The status port that the proxy has; none where there is no proxy, or its port is 0.
    fn status_port(&self, made: &Value) -> Option<u16> {
        let proxy = pod::proxy(made)?;
        if pod::annotation(made, STATUS_PORT).is_none() && probes::has_status_port(proxy) {
            return probes::status_port(proxy);
        }
        self.usual_status_port(made)
    }

    /// Returns true if the application waits for the proxy. Mesh configuration or values suffice, as in the templates: the
    /// order of containers must agree.
    pub(crate) fn holds(&self) -> bool {
        let said = &self.proxy.config.hold_application_until_proxy_starts;
        said.as_ref().is_some_and(|said| said.value) || self.configuration.values_hold()
    }
}
