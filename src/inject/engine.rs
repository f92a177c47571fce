//! From a pod to an outcome: what both ways of injecting have in common.

use std::sync::Arc;

use serde_json::Value;

use crate::annotations::{
    self, CORE_DUMP, MERGE_METRICS, NATIVE_SIDECAR, PROXY_CONFIG, STATUS_PORT, Validators,
};
use crate::config::{Configuration, Mode};
use crate::data::{self, Owner, Proxy};
use crate::decision::{self, Policy};
use crate::fragment::{self, Fragment};
use crate::interface::{
    Injected, NativeSidecars, Origin, Outcome, Request, Review, ReviewTrace, reason,
};
use crate::json_patch;
use crate::labels::{self, Labels};
use crate::metrics;
use crate::native_sidecar;
use crate::output_error::OutputError;
use crate::output_types::{self, Findings};
use crate::pod;
use crate::probes::ProbeRewrite;
use crate::reinject::{self, Placement};
use crate::render_cache::{RenderCache, TextTree};
use crate::replaced_values;
use crate::schema::{self, Kind};
use crate::status::{STATUS, Status};
use crate::template::Template;
use crate::template_data::TemplateData;
use crate::uninject::uninject_for_fragment;
use crate::user_volumes;
use crate::variables::{self, Containers};
use crate::warnings::{self, MAX_WARNING, capped};
use crate::yaml;
use crate::yaml_safe;

/// The state of one injection.
pub(crate) struct Injection<'a> {
    pub(crate) configuration: &'a Configuration,
    pub(crate) request: &'a Request,
    pub(crate) sent: &'a Value,
    pub(crate) namespace: String,
    pub(crate) reason: &'static str,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) native: bool,
    pub(crate) warnings: Vec<String>,
    /// Unknown fields that were pruned from the template's output.
    pub(crate) pruned: Vec<String>,
    /// The trace for pages, whatever the outcome.
    pub(crate) tried: &'a mut ReviewTrace,
}

/// Reasons for which no injected pod is returned.
pub(crate) enum StopReason {
    Skip(&'static str),
    /// The configuration is at fault.
    Template(String),
    /// The pod is.
    Pod(String),
}

impl Configuration {
    /// Decides on a pod, and injects it.
    #[must_use]
    pub fn inject(&self, request: &Request, pod: &Value) -> Outcome {
        self.review(request, pod).outcome
    }

    /// Injects as [`Self::inject`] does, and returns a trace of the steps.
    #[must_use]
    pub fn review(&self, request: &Request, pod: &Value) -> Review {
        let mut tried = ReviewTrace::default();
        let outcome = self.outcome(request, pod, &mut tried);
        Review { outcome, tried }
    }

    fn outcome(&self, request: &Request, pod: &Value, tried: &mut ReviewTrace) -> Outcome {
        let root = schema::object("Pod").map_or(Kind::Any, Kind::Object);
        if !pod.is_object() {
            return refused("not a pod: want an object".to_owned(), Vec::new());
        }
        if let Err(mistake) = output_types::shape(pod, root, "") {
            return refused(format!("not a pod: {mistake}"), Vec::new());
        }
        let own = pod
            .get("metadata")
            .and_then(|metadata| metadata.get("namespace"))
            .and_then(Value::as_str);
        let namespace = own
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or(&request.namespace)
            .to_owned();
        let owner = Owner::of(pod, request, &namespace);
        tried.owner = (owner.kind, owner.name);
        let policy: Option<&Policy> = match request.origin {
            Origin::Webhook => Some(&self.policy),
            Origin::Manifest(_) => None,
        };
        let decision = decision::decide(pod, &namespace, policy);
        let mut warnings: Vec<String> = decision.warning.into_iter().collect();
        if !decision.inject {
            return Outcome::Skipped {
                reason: decision.reason,
                warnings: capped(warnings),
            };
        }
        if let Err(message) = self.validate(pod) {
            return refused(message, capped(warnings));
        }
        let proxy = self.proxy_for(pod, &mut warnings);
        warnings.extend(warnings::dns_policy(pod));
        let job = Injection {
            configuration: self,
            request,
            sent: pod,
            namespace,
            reason: decision.reason,
            proxy,
            native: self.native(pod, request.native),
            warnings,
            pruned: Vec::new(),
            tried,
        };
        match &self.mode {
            Mode::Fragment {
                template,
                version,
                known,
            } => job.fragment(template, version, known),
            Mode::Overlay(template_set) => job.overlay(template_set),
        }
    }

    /// Validates the pod's annotations; again after a removal, since the author writes the status that it restores from, too.
    pub(crate) fn validate(&self, pod: &Value) -> Result<(), String> {
        let validators = Validators {
            proxy_config: &|text| self.said_by_a_pod(text),
            templates: &|text| self.mode.choice(text),
        };
        annotations::validate(pod, &validators)
    }

    /// The proxy's configuration of a pod whose annotations are valid.
    fn proxy_for(&self, pod: &Value, warnings: &mut Vec<String>) -> Arc<Proxy> {
        let said = self.annotation(pod, PROXY_CONFIG);
        let proxy = match said.map(|text| self.proxy_of(text)) {
            Some(Ok((config, said))) => {
                let said = said.into_iter();
                warnings
                    .extend(said.map(|warning| format!("annotation {PROXY_CONFIG}: {warning}")));
                Arc::new(config)
            }
            Some(Err(_)) | None => Arc::clone(&self.proxy),
        };
        let admin_port = proxy.config.proxy_admin_port;
        let said = |name: &str| self.annotation(pod, name);
        warnings.extend(warnings::proxy_ends(admin_port, said));
        proxy
    }

    /// An annotation of the pod, as templates see it: what the configuration sets is set already.
    pub(crate) fn annotation<'a>(&'a self, pod: &'a Value, name: &str) -> Option<&'a str> {
        let set = self.injected_annotations.get(name).map(String::as_str);
        set.or_else(|| pod::annotation(pod, name))
    }

    /// Returns true if the proxy of this pod is a native sidecar; the pod's annotation takes precedence.
    fn native(&self, pod: &Value, asked: NativeSidecars) -> bool {
        let said = self.annotation(pod, NATIVE_SIDECAR);
        if let Some(said) = said.and_then(annotations::boolean) {
            return said;
        }
        let policy = pod.get("spec").and_then(|spec| spec.get("restartPolicy"));
        match asked {
            NativeSidecars::Off => false,
            NativeSidecars::On => true,
            NativeSidecars::Jobs => {
                let policy = policy.and_then(Value::as_str).unwrap_or_default();
                !policy.is_empty() && policy != "Always"
            }
        }
    }

    /// Checks the pod's `ProxyConfig`.
    fn said_by_a_pod(&self, text: &str) -> Result<(), String> {
        let written = api::mesh::written_proxy(&self.proxy.config, text)
            .map_err(|error| warnings::numbers_quoted(&error.to_string(), text))?;
        yaml_safe::proxy_config(&written)?;
        self.proxy_of(text).map(drop)
    }

    /// Returns the proxy of a pod with a `ProxyConfig`, and warnings about it.
    fn proxy_of(&self, text: &str) -> Result<(Proxy, Vec<String>), String> {
        let parsed = api::mesh::parse_proxy(&self.proxy.config, text)
            .map_err(|error| warnings::numbers_quoted(&error.to_string(), text))?;
        let written = api::mesh::written_proxy(&self.proxy.config, text)
            .map_err(|error| error.to_string())?;
        let written = api::mesh::written_over(&self.proxy.written, written);
        let proxy =
            data::proxy_config(parsed.config, written).map_err(|error| error.to_string())?;
        Ok((proxy, parsed.warnings))
    }
}

fn refused(message: String, warnings: Vec<String>) -> Outcome {
    Outcome::Refused {
        code: 400,
        reason: reason::BAD_REQUEST,
        message,
        warnings,
        pruned: 0,
    }
}

impl Injection<'_> {
    fn fragment(
        mut self,
        template: &Template,
        version: &str,
        known: &RenderCache<Fragment>,
    ) -> Outcome {
        self.tried.templates = vec![template.name().to_owned()];
        version.clone_into(&mut self.tried.version);
        let now = Status {
            version: version.to_owned(),
            ..Status::default()
        };
        match self.fragment_pod(template, known, now) {
            Ok((pod, status, replaced_elements)) => {
                self.tried.native = self.native && native_sidecar::is_native(&pod);
                self.finish(pod, &status, &replaced_elements)
            }
            Err(stop) => self.stop(stop),
        }
    }

    fn fragment_pod(
        &mut self,
        template: &Template,
        known: &RenderCache<Fragment>,
        mut now: Status,
    ) -> Result<(Value, Status, reinject::ReplacedElements), StopReason> {
        let mut made = self.sent.clone();
        let earlier = Status::of(self.sent).unwrap_or_else(Status::legacy);
        let originals = uninject_for_fragment(&mut made, &earlier, &now.version);
        if !earlier.replaced.is_empty() {
            let validated = self.configuration.validate(&made);
            validated.map_err(StopReason::Pod)?;
        }
        let before = replaced_values::outline(&made);
        self.set_injected_annotations(&mut made);
        let owner = Owner::of(&made, self.request, &self.namespace);
        yaml_safe::names(&made, &self.request.origin).map_err(StopReason::Pod)?;
        let shown = Arc::new(made);
        let text = self.render(template, &shown, &owner)?;
        // The rendering has let go of it.
        let mut made = Arc::unwrap_or_clone(shown);
        let fragment = self.read(template, text, known, Fragment::read)?;
        let Some(mut fragment) = fragment else {
            return Err(StopReason::Skip(reason::EMPTY_TEMPLATE));
        };
        fragment.complete(&made);
        now.lists = fragment.names();
        let release = fragment.release();
        let port = fragment.status_port().or_else(|| {
            let of_mesh = release.is_of_istiods_fragments();
            of_mesh.then(|| self.usual_status_port(&made)).flatten()
        });
        if fragment::rewrites(&made, &fragment)
            && let Some(port) = port
        {
            let rewriting = ProbeRewrite {
                probers: self.configuration.agents.probers(release),
                port,
                earlier: &originals,
            };
            let told = rewriting.rewrite(&mut made, |_, _| false, &mut self.warnings);
            fragment.set_original_probes(&told);
        }
        fragment.put(&mut made, &self.configuration.mesh);
        if let (true, Some(port)) = (release.is_of_istiods_fragments(), port) {
            self.merge_metrics(&mut made, port);
        }
        if self.native {
            native_sidecar::convert(&mut made, port);
            now.locate(&made);
        }
        let labels = self.configuration.agents.labels(release);
        let network = self.configuration.network(&self.request.path);
        let mut others = Vec::new();
        if labels == Labels::All {
            others.extend(network.map(|name| (labels::NETWORK, name)));
        }
        if release.is_of_istiods_fragments() {
            others.push((
                labels::REVISION,
                self.configuration.parameters.revision.as_str(),
            ));
        }
        let left_out = labels::add(&mut made, labels, &owner, &others);
        self.warnings.extend(left_out);
        replaced_values::note(&mut now, &before, &made);
        fragment::set_annotations(&mut made, [(STATUS.to_owned(), Value::from(now.to_text()))]);
        let replaced_elements =
            reinject::reinject(self.sent, &mut made, &earlier, &now, Placement::AtEnd);
        if self.native {
            native_sidecar::order_init(&mut made, &now);
        } else if release.is_of_istiods_fragments() {
            native_sidecar::order_fragment(&mut made, &now, self.holds());
        }
        self.warn_of_core_dumps(&now);
        Ok((made, now, replaced_elements))
    }

    /// The status port by annotation, else by the mesh, where no argument of the proxy names it.
    pub(crate) fn usual_status_port(&self, made: &Value) -> Option<u16> {
        let found = match pod::annotation(made, STATUS_PORT) {
            Some(said) => said.parse().ok(),
            None => u16::try_from(self.proxy.config.status_port).ok(),
        };
        found.filter(|port| *port != 0)
    }

    /// Sends Prometheus to the proxy unless mesh or pod do not want it.
    pub(crate) fn merge_metrics(&mut self, made: &mut Value, port: u16) {
        let said = pod::annotation(made, MERGE_METRICS).and_then(annotations::boolean);
        if said != Some(false) && self.configuration.merges_metrics() {
            self.warnings.extend(metrics::merge(made, port));
        }
    }

    /// Warns if the pod asks for core dumps without effect: the administrator must allow them.
    pub(crate) fn warn_of_core_dumps(&mut self, now: &Status) {
        let said = self.configuration.annotation(self.sent, CORE_DUMP);
        let asks = said.and_then(annotations::boolean) == Some(true);
        if !asks || now.has("initContainers", native_sidecar::CORE_DUMP) {
            return;
        }
        let why = if self.configuration.is_built_in() {
            "the injector does not allow core dumps (--coreDump, or global.proxy.enableCoreDump of the values)"
        } else {
            "the template makes no container enable-core-dump"
        };
        self.warnings
            .push(format!("annotation {CORE_DUMP} has no effect: {why}"));
    }

    /// Sets the annotations before templates are rendered, so that templates see them.
    pub(crate) fn set_injected_annotations(&self, pod: &mut Value) {
        let wanted = self.configuration.injected_annotations.iter();
        fragment::set_annotations(
            pod,
            wanted.map(|(key, value)| (key.clone(), Value::from(value.as_str()))),
        );
    }

    /// The output of a template for the pod.
    pub(crate) fn render(
        &self,
        template: &Template,
        pod: &Arc<Value>,
        owner: &Owner,
    ) -> Result<String, StopReason> {
        let view = TemplateData {
            configuration: self.configuration,
            request: self.request,
            pod,
            namespace: &self.namespace,
            owner,
            proxy: &self.proxy,
            native: self.native,
        };
        let data = view.data().map_err(StopReason::Template)?;
        template
            .render(&data)
            .map_err(|failure| StopReason::Template(failure.to_string()))
    }

    /// Reads the output of a template; `None` if it is empty.
    pub(crate) fn read<T: Clone + TextTree + Containers>(
        &mut self,
        template: &Template,
        text: String,
        known: &RenderCache<T>,
        read: impl FnOnce(&yaml::Node, &mut Findings) -> Result<T, OutputError>,
    ) -> Result<Option<T>, StopReason> {
        // An escape of YAML has at least two bytes, and yields at most three.
        let may_be_long = text.len() > variables::LONGEST / 2;
        let found = known.get(text, |text| {
            let node = tree(template.name(), text).map_err(StopReason::Template)?;
            let Some(node) = node else {
                return Ok(None);
            };
            let mut findings = Findings::default();
            let read =
                read(&node, &mut findings).map_err(|unfit| {
                    match user_volumes::volume_twice(self.sent, &unfit) {
                        Some(message) => StopReason::Pod(message),
                        None => {
                            StopReason::Template(format!("template {}: {unfit}", template.name()))
                        }
                    }
                })?;
            Ok(Some((read, findings)))
        })?;
        Ok(found.map(|(mut read, pruned)| {
            self.pruned.extend(pruned);
            if may_be_long {
                variables::leave_out_long(&mut read, &mut self.warnings);
            }
            read
        }))
    }

    pub(crate) fn stop(mut self, stop: StopReason) -> Outcome {
        self.note_pruned();
        let warnings = capped(self.warnings);
        let (code, reason, message) = match stop {
            StopReason::Skip(reason) => return Outcome::Skipped { reason, warnings },
            StopReason::Template(message) => (500, reason::TEMPLATE, message),
            StopReason::Pod(message) => (400, reason::BAD_REQUEST, message),
        };
        Outcome::Refused {
            code,
            reason,
            message,
            warnings,
            pruned: self.tried.pruned,
        }
    }

    fn note_pruned(&mut self) {
        let pruned = self.pruned.iter();
        self.warnings
            .extend(pruned.map(|path| warnings::pruned(path)));
        self.tried.pruned = self.pruned.len();
    }

    pub(crate) fn finish(
        mut self,
        pod: Value,
        status: &Status,
        replaced_elements: &reinject::ReplacedElements,
    ) -> Outcome {
        self.note_pruned();
        let warnings = capped(self.warnings);
        let operations = json_patch::diff_replacing(self.sent, &pod, replaced_elements);
        let (count, text) = (operations.len(), json_patch::to_text(&operations));
        if count == 0 {
            return Outcome::Skipped {
                reason: reason::UNCHANGED,
                warnings,
            };
        }
        let tried = self.tried;
        Outcome::Injected(Box::new(Injected {
            reason: self.reason,
            patch: text,
            operations: count,
            warnings,
            templates: tried.templates.clone(),
            version: tried.version.clone(),
            native: tried.native,
            containers: status.lists.iter().take(2).flatten().cloned().collect(),
            pruned: tried.pruned,
            owner: tried.owner.clone(),
            pod,
        }))
    }
}

/// Parses a template's output; errors have their line, and that line's text.
pub(crate) fn tree(name: &str, text: &str) -> Result<Option<yaml::Node>, String> {
    yaml::read(text).map_err(|error| {
        let line: String = text
            .lines()
            .nth(error.line.saturating_sub(1))
            .unwrap_or_default()
            .chars()
            .take(MAX_WARNING)
            .collect();
        format!("template {name}: its output is no YAML: {error}: {line:?}")
    })
}
