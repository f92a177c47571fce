//! The second way to inject: templates print partial pods, which are laid over the pod (Istio 1.9 to today).

use std::collections::BTreeSet;
use std::sync::Arc;

use api::mesh::proxy_config::InboundInterceptionMode;
use serde_json::Value;

use crate::annotations::{self, INTERCEPTION_MODE, REWRITE_PROBES, STATUS_PORT, TEMPLATES};
use crate::data::Owner;
use crate::fragment::{self, set_annotations};
use crate::injection::{InjectedPod, Injection, StopReason};
use crate::interface::{Outcome, reason};
use crate::labels;
use crate::layer;
use crate::merge::{self, Layer};
use crate::metrics;
use crate::native_sidecar;
use crate::overrides::Overrides;
use crate::pod::{self, PROXY, PodList};
use crate::probes::{self, OriginalProbes, ProbeRewrite};
use crate::protected_containers::{ProtectedContainers, Protection};
use crate::reinject::{self, Placement, ReplacedElements};
use crate::release::Release;
use crate::replaced_values;
use crate::schema::{self, Kind};
use crate::status::{OVERRIDES, STATUS, Status};
use crate::template_names::TemplateNames;
use crate::template_set::{OF_GATEWAYS, SelectedTemplates, TemplateSet};
use crate::uninject::{Removal, uninject};
use crate::warnings;

/// Returns true for a stock template whose proxy is the application itself, not a sidecar.
fn is_router(template: &str) -> bool {
    matches!(template, "gateway" | "grpc-agent" | "grpc-simple") || OF_GATEWAYS.contains(&template)
}

/// The task of the proxy in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyRole {
    /// It serves the application beside it.
    Beside,
    /// It is the application.
    Router,
}

impl ProxyRole {
    /// The role by the template that makes the proxy, among templates with their outputs: others may add to its container. If none
    /// makes it, the pod has its own.
    fn of(outputs: &[(&str, Value)]) -> Self {
        // The image of the upper layer wins in the merge.
        let mut upper_first = outputs.iter().rev();
        let maker = upper_first.find(|(_, layer)| layer::has_proxy_image(layer));
        let maker = maker.or_else(|| outputs.iter().find(|(_, layer)| layer::makes_proxy(layer)));
        let is_router = match maker {
            Some((template, _)) => is_router(template),
            None => outputs.iter().all(|(template, _)| is_router(template)),
        };
        if is_router {
            Self::Router
        } else {
            Self::Beside
        }
    }
}

/// Moves the pull secrets of the templates before the pod's own, as Istio's merge does.
fn put_first(pod: &mut Value, secrets: &[String]) {
    let secrets: BTreeSet<&str> = secrets.iter().map(String::as_str).collect();
    let present = pod::existing_list_mut(pod, PodList::ImagePullSecrets);
    if let Some(present) = present.filter(|_| !secrets.is_empty()) {
        present.sort_by_key(|secret| !secrets.contains(pod::name(secret)));
    }
}

/// Sets the proxy's threads to its share of the processor.
fn give_threads(pod: &mut Value) {
    for proxy in pod::proxies_mut(pod) {
        if let Value::Object(proxy) = proxy {
            fragment::give_threads(proxy);
        }
    }
}

/// Lays the chosen templates over the pod.
pub(crate) fn inject(mut injection: Injection<'_>, set: &TemplateSet) -> Outcome {
    let annotation = injection
        .configuration
        .annotation(injection.sent, TEMPLATES);
    let chosen = match set.choose(annotation) {
        Ok(chosen) => chosen,
        // The pod's own choice is valid by now: the defaults are at fault.
        Err(cause) => return injection.stop(StopReason::Template(cause)),
    };
    let names = chosen.templates.iter().map(|one| one.name().to_owned());
    injection.trace.templates = names.collect();
    injection.trace.version.clone_from(&chosen.version);
    match injection.overlay_pod(set, &chosen) {
        Ok(injected) => {
            injection.trace.native = native_sidecar::is_native(&injected.pod);
            injection.finish(injected)
        }
        Err(stop) => injection.stop(stop),
    }
}

/// A pod without an earlier injection.
struct OriginalPod {
    pod: Value,
    /// The maps whose replaced values the status records.
    before: Value,
    owner: Owner,
    removal: Removal,
    layers: Vec<Value>,
    role: ProxyRole,
}

/// The facts about the outputs of the chosen templates.
struct TemplateFacts {
    protected: ProtectedContainers,
    release: Release,
    role: ProxyRole,
}

impl Injection<'_> {
    fn overlay_pod(
        &mut self,
        set: &TemplateSet,
        chosen: &SelectedTemplates<'_>,
    ) -> Result<InjectedPod, StopReason> {
        let earlier = Status::of(self.sent).unwrap_or_default();
        let OriginalPod {
            mut pod,
            before,
            owner,
            removal,
            layers,
            role,
        } = self.original(set, chosen, &earlier)?;
        self.warnings.extend(removal.warnings());
        let mut now = Status {
            version: chosen.version.clone(),
            revision: Some(self.configuration.revision().to_owned()),
            lists: layer::element_names(&layers),
            ..Status::default()
        };
        let facts = TemplateFacts {
            protected: ProtectedContainers::of(&layers),
            release: layer::proxy_release(&layers),
            role,
        };
        let agents = self.configuration.agents;
        // Taken before the layers, which may set the label: only the user's own outranks the webhook's path.
        let own_network = pod::label(&pod, labels::NETWORK).map(str::to_owned);
        let own = self.put(&mut pod, layers, &facts, &mut now)?;
        self.set_variables(&mut pod, own_network.as_deref());
        self.connect(&mut pod, &own, &facts, &now, &removal.originals);
        let network = self.configuration.network(&self.request.proxy_envs);
        let network = network.filter(|_| agents.add_labels != Some(false));
        let network = network.map(|name| (labels::NETWORK, name));
        let which = agents.labels(facts.release);
        let left_out = labels::add(&mut pod, which, &owner, network.as_slice());
        self.warnings.extend(left_out);
        replaced_values::note(&mut now, &before, &pod);
        let overrides = own
            .to_text()
            .map(|text| (OVERRIDES.to_owned(), Value::from(text)));
        let status = (STATUS.to_owned(), Value::from(now.to_text()));
        set_annotations(&mut pod, overrides.into_iter().chain([status]));
        reinject::reinject(self.sent, &mut pod, &earlier, &now, Placement::InPlace);
        native_sidecar::order_init(&mut pod, &now);
        put_first(&mut pod, &now.lists.image_pull_secrets);
        // A native sidecar starts before all containers anyway.
        let hold = self.holds() && !native_sidecar::is_native(&pod);
        native_sidecar::order_containers(&mut pod, &now, hold);
        self.warn_of_core_dumps(&now);
        Ok(InjectedPod {
            pod,
            status: now,
            replaced_elements: ReplacedElements::new(),
        })
    }

    /// The pod without an earlier injection, and the outputs of the templates for it.
    ///
    /// Only their outputs tell the names that templates make: if the annotations hold elements of names that stock templates
    /// do not have and these do, it begins anew with them.
    fn original(
        &mut self,
        set: &TemplateSet,
        chosen: &SelectedTemplates<'_>,
        earlier: &Status,
    ) -> Result<OriginalPod, StopReason> {
        let mut names = TemplateNames::stock();
        let marks = (self.pruned.len(), self.warnings.mark());
        let mut original = self.original_by(set, chosen, earlier, &names)?;
        let names_by_list = layer::element_names(&original.layers);
        if !names.learn(&mut original.removal.withheld, &names_by_list) {
            return Ok(original);
        }
        // The second try finds the same again.
        self.pruned.truncate(marks.0);
        self.warnings.roll_back(marks.1);
        self.original_by(set, chosen, earlier, &names)
    }

    fn original_by(
        &mut self,
        set: &TemplateSet,
        chosen: &SelectedTemplates<'_>,
        earlier: &Status,
        names: &TemplateNames,
    ) -> Result<OriginalPod, StopReason> {
        let mut pod = self.sent.clone();
        let removal = uninject(&mut pod, earlier, &chosen.version, names);
        let (before, owner) = self.prepare(&mut pod, earlier)?;
        let pod = Arc::new(pod);
        let ordered = native_sidecar::ordered(&pod, self.holds() && !self.native).map(Arc::new);
        let outputs = self.outputs(set, chosen, ordered.as_ref().unwrap_or(&pod), &owner)?;
        Ok(OriginalPod {
            // The rendering has let go of it.
            pod: Arc::unwrap_or_clone(pod),
            before,
            owner,
            removal,
            role: ProxyRole::of(&outputs),
            layers: outputs.into_iter().map(|(_, layer)| layer).collect(),
        })
    }

    /// The templates with their outputs for the pod, in their order.
    fn outputs<'t>(
        &mut self,
        set: &TemplateSet,
        chosen: &SelectedTemplates<'t>,
        pod: &Arc<Value>,
        owner: &Owner,
    ) -> Result<Vec<(&'t str, Value)>, StopReason> {
        let mut outputs = Vec::new();
        for template in &chosen.templates {
            let text = self.render(template, pod, owner)?;
            let layer = self.read(template, text, &set.render_cache, layer::read)?;
            outputs.extend(layer.map(|layer| (template.name(), layer)));
        }
        for (_, layer) in &mut outputs {
            layer::end_what_must_end(layer);
        }
        if outputs.is_empty() {
            return Err(StopReason::Skip(reason::EMPTY_TEMPLATE));
        }
        Ok(outputs)
    }

    /// Lays the templates over the pod, and the user's own containers over that.
    fn put(
        &mut self,
        pod: &mut Value,
        layers: Vec<Value>,
        facts: &TemplateFacts,
        now: &mut Status,
    ) -> Result<Overrides, StopReason> {
        let of_templates = now.lists.all_containers();
        let of_templates: BTreeSet<&str> = of_templates.map(String::as_str).collect();
        // Recorded as the user wrote them, before the template's fields go: the next pass restores these.
        let own = Overrides::of(pod, |name| of_templates.contains(name));
        layer::check_application_names(pod, &now.lists).map_err(StopReason::Pod)?;
        facts.protected.take_all(pod, &mut self.warnings);
        let secrets = &mut now.lists.image_pull_secrets;
        // Pull secrets consist of a name alone: a pod that had one keeps it.
        let present = pod::list(pod, PodList::ImagePullSecrets).iter();
        let present: BTreeSet<&str> = present.map(pod::name).collect();
        secrets.retain(|name| !present.contains(name.as_str()));
        let root = schema::object("Pod").map_or(Kind::Any, Kind::Object);
        let mut moved = false;
        for mut layer in layers {
            moved |= layer::align(pod, &mut layer);
            merge::lay(pod, layer, root, Layer::Template);
        }
        if facts.release.gives_threads() {
            give_threads(pod);
        }
        own.lay(pod, &facts.protected);
        // A router redirects nothing.
        let is_sidecar = facts.role == ProxyRole::Beside;
        let is_transparent = is_sidecar && self.is_transparent(pod);
        own.give_user(pod, is_transparent, &mut self.warnings);
        let is_native = self.native && is_sidecar;
        if is_native {
            native_sidecar::convert(pod, self.status_port(pod));
        }
        if moved && !native_sidecar::stays(pod, is_native) {
            return Err(StopReason::Pod(format!(
                "spec.initContainers: {PROXY} is the proxy, which would have to end before the application starts: want restartPolicy Always"
            )));
        }
        now.locate(pod);
        Ok(own)
    }

    /// Returns true if connections keep their addresses, for which the proxy has to be root.
    fn is_transparent(&self, pod: &Value) -> bool {
        let tproxy = InboundInterceptionMode::Tproxy;
        match pod::annotation(pod, INTERCEPTION_MODE) {
            Some(mode) => mode == tproxy.as_str_name(),
            None => self.proxy.config.interception_mode() == tproxy,
        }
    }

    /// Sets the proxy's variables of the webhook's path, and its network: the label that the user wrote counts most.
    fn set_variables(&mut self, pod: &mut Value, own_network: Option<&str>) {
        let mut variables = self.path_variables();
        let proxy_envs = &self.request.proxy_envs;
        let own_network = own_network.filter(|name| !name.is_empty());
        let is_set = proxy_envs.iter().any(|(key, _)| key == "net");
        // The values are a default: a variable that is there is the user's, or the template's own.
        let has_variable = pod::proxy(pod)
            .and_then(|proxy| proxy.get("env")?.as_array())
            .is_some_and(|env| env.iter().any(|one| pod::name(one) == warnings::NETWORK));
        let of_others = self.configuration.network(proxy_envs);
        let network = own_network.or_else(|| of_others.filter(|_| is_set || !has_variable));
        variables.extend(network.map(|name| (warnings::NETWORK.to_owned(), name.to_owned())));
        metrics::set_variables(pod, &variables);
    }

    /// Probes and metrics of the application go through the proxy.
    fn connect(
        &mut self,
        pod: &mut Value,
        own: &Overrides,
        facts: &TemplateFacts,
        now: &Status,
        earlier: &OriginalProbes,
    ) {
        let Some(port) = self.status_port(pod) else {
            return;
        };
        let setting = |name| pod::annotation(pod, name).and_then(annotations::boolean);
        let rewrites = setting(REWRITE_PROBES).unwrap_or(self.configuration.rewrite_probes);
        self.merge_metrics(pod, port);
        if rewrites {
            let rewriting = ProbeRewrite {
                probers: self.configuration.agents.probers(facts.release),
                port,
                earlier,
            };
            let own = own.names();
            let put_in = PodList::OF_CONTAINERS.map(|list| (list, now.names(list)));
            let is_made = |list: PodList, name: &str| {
                let mut lists = put_in.iter();
                let is_put_in =
                    lists.any(|(known_list, names)| *known_list == list && names.contains(name));
                // Beside rights, all other fields of the user's container are the template's.
                let is_own =
                    own.contains(name) && facts.protected.get(name) != Some(Protection::Rights);
                name == PROXY || (is_put_in && !is_own)
            };
            let originals = rewriting.rewrite(pod, is_made, &mut self.warnings);
            for proxy in pod::proxies_mut(pod) {
                probes::set_original_probes(proxy, &originals);
            }
        }
    }

    /// The status port that the proxy has; none where there is no proxy, or its port is 0.
    fn status_port(&self, pod: &Value) -> Option<u16> {
        let proxy = pod::proxy(pod)?;
        if pod::annotation(pod, STATUS_PORT).is_none() && probes::has_status_port(proxy) {
            return probes::status_port(proxy);
        }
        self.usual_status_port(pod)
    }

    /// Returns true if the application waits for the proxy. Mesh configuration or values suffice, as in the templates: the
    /// order of containers must agree.
    pub(crate) fn holds(&self) -> bool {
        let setting = &self.proxy.config.hold_application_until_proxy_starts;
        setting.as_ref().is_some_and(|setting| setting.value) || self.configuration.values_hold()
    }
}
