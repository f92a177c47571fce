//! One injection under way: the parts that fragments and overlays share.

use std::sync::Arc;

use api::mesh::{Parsed, ProxyConfig};
use serde_json::Value;

use crate::annotations::{
    self, CORE_DUMP, MERGE_METRICS, PROXY_CONFIG, Quoting, STATUS_PORT, Validators,
};
use crate::config::Configuration;
use crate::data::{self, Owner, Proxy};
use crate::fragment;
use crate::interface::{Injected, Outcome, Request, ReviewTrace, reason};
use crate::json_patch;
use crate::metrics;
use crate::native_sidecar;
use crate::output_error::OutputError;
use crate::output_types::TypingReport;
use crate::pod::{self, PodList};
use crate::reinject;
use crate::render_cache::{RenderCache, TextTree};
use crate::replaced_values;
use crate::status::Status;
use crate::template::Template;
use crate::template_data::TemplateData;
use crate::user_volumes;
use crate::variables::{self, Containers};
use crate::warnings::{self, MAX_WARNING, Warnings};
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
    pub(crate) warnings: Warnings,
    /// Unknown fields that were pruned from the template's output.
    pub(crate) pruned: Vec<String>,
    /// The trace for pages, of every outcome.
    pub(crate) trace: &'a mut ReviewTrace,
}

/// The proxy of a pod with a `ProxyConfig` of its own, and the warnings about that.
pub(crate) struct PodProxy {
    pub(crate) proxy: Proxy,
    pub(crate) warnings: Vec<String>,
}

/// Returns the name of the variable that a pair of the webhook's path sets.
fn variable(key: &str) -> String {
    match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => warnings::NETWORK.to_owned(),
        other => other.to_uppercase(),
    }
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
    /// Validates the pod's annotations; again after a removal, since the author writes the status that it restores from, too.
    /// Returns the proxy of the pod's `ProxyConfig`, if it has one.
    pub(crate) fn validate(&self, pod: &Value) -> Result<Option<PodProxy>, String> {
        let text = pod::annotation(pod, PROXY_CONFIG);
        // Longer ones are refused for their length below.
        let text = text.filter(|text| text.len() <= annotations::MAX_BYTES);
        let proxy = text.map(|text| {
            let mut parsed = self.parse_proxy(text)?;
            yaml_safe::proxy_config(&parsed.written)?;
            let newer = yaml_safe::newer_variables(&parsed.written);
            parsed.warnings.extend(newer);
            self.pod_proxy(parsed)
        });
        let (proxy, result) = match proxy.transpose() {
            Ok(proxy) => (proxy, Ok(())),
            Err(cause) => (None, Err(cause)),
        };
        let validators = Validators {
            proxy_config: &|_| result.clone(),
            templates: &|text| self.mode.choice(text),
        };
        annotations::validate(pod, &validators, Quoting::Values)?;
        Ok(proxy)
    }

    /// Returns an annotation of the pod as templates see it, with those that the configuration sets.
    pub(crate) fn annotation<'a>(&'a self, pod: &'a Value, name: &str) -> Option<&'a str> {
        let set = self.injected_annotations.get(name).map(String::as_str);
        set.or_else(|| pod::annotation(pod, name))
    }

    /// Parses a pod's `ProxyConfig`, laid over the mesh's.
    fn parse_proxy(&self, text: &str) -> Result<Parsed<ProxyConfig>, String> {
        api::mesh::parse_proxy(&self.proxy.config, text)
            .map_err(|error| warnings::numbers_quoted(&error.to_string(), text))
    }

    fn pod_proxy(&self, parsed: Parsed<ProxyConfig>) -> Result<PodProxy, String> {
        let fields = api::mesh::written_over(&self.proxy.written, parsed.written);
        let proxy = data::proxy_config(parsed.config, fields).map_err(|error| error.to_string())?;
        Ok(PodProxy {
            proxy,
            warnings: parsed.warnings,
        })
    }

    /// Returns the proxy of an annotation that the configuration sets, in the place of the pod's own; `None` if it sets none.
    pub(crate) fn injected_proxy(&self) -> Option<Result<PodProxy, String>> {
        let text = self.injected_annotations.get(PROXY_CONFIG)?;
        let parsed = self.parse_proxy(text);
        Some(parsed.and_then(|parsed| self.pod_proxy(parsed)))
    }
}

impl Injection<'_> {
    /// The status port by annotation, else by the mesh, where no argument of the proxy names it.
    pub(crate) fn usual_status_port(&self, pod: &Value) -> Option<u16> {
        let status_port = match pod::annotation(pod, STATUS_PORT) {
            Some(text) => text.parse().ok(),
            None => u16::try_from(self.proxy.config.status_port).ok(),
        };
        status_port.filter(|port| *port != 0)
    }

    /// Returns the proxy's variables of the webhook's path. Warns of a name for which API servers refuse the pod, as its author does
    /// not see the path.
    pub(crate) fn path_variables(&mut self) -> Vec<(String, String)> {
        let pairs = self.request.proxy_envs.iter();
        let pairs = pairs.map(|(key, value)| (variable(key), value.clone()));
        let variables: Vec<_> = pairs.collect();
        let mut names = variables.iter().map(|(name, _)| name);
        let refused = names.find_map(|name| yaml_safe::refused_variable(name));
        self.warnings
            .extend(refused.map(|cause| format!("path of the webhook: {cause}")));
        variables
    }

    /// Sends Prometheus to the proxy unless mesh or pod do not want it.
    pub(crate) fn merge_metrics(&mut self, pod: &mut Value, port: u16) {
        let wanted = pod::annotation(pod, MERGE_METRICS).and_then(annotations::boolean);
        if wanted != Some(false) && self.configuration.merges_metrics() {
            self.warnings.extend(metrics::merge(pod, port));
        }
    }

    /// Warns if the pod asks for core dumps without effect: the administrator must allow them.
    pub(crate) fn warn_of_core_dumps(&mut self, now: &Status) {
        let annotation = self.configuration.annotation(self.sent, CORE_DUMP);
        let asks = annotation.and_then(annotations::boolean) == Some(true);
        if !asks || now.has(PodList::InitContainers, native_sidecar::CORE_DUMP) {
            return;
        }
        let why = if self.configuration.is_built_in() {
            "the injector does not allow core dumps (--coreDump, or global.proxy.enableCoreDump of the values)"
        } else {
            "the template makes no container enable-core-dump"
        };
        self.warnings
            .push(|| format!("annotation {CORE_DUMP} has no effect: {why}"));
    }

    /// Prepares a pod, out of which an earlier injection was taken, for the templates. Returns its outline before that, and its owner.
    ///
    /// # Errors
    /// The pod cannot be injected: the values that the earlier injection had replaced make it invalid, or its names are no text of YAML.
    pub(crate) fn prepare(
        &self,
        pod: &mut Value,
        earlier: &Status,
    ) -> Result<(Value, Owner), StopReason> {
        if !earlier.replaced.is_empty() {
            let validated = self.configuration.validate(pod);
            validated.map(drop).map_err(StopReason::Pod)?;
        }
        // Before the configuration's annotations are set, so that they count as added.
        let before = replaced_values::outline(pod);
        self.set_injected_annotations(pod);
        let owner = Owner::of(pod, self.request, &self.namespace);
        yaml_safe::names(pod, &self.request.origin).map_err(StopReason::Pod)?;
        Ok((before, owner))
    }

    /// Sets the annotations before templates are rendered, so that templates see them.
    fn set_injected_annotations(&self, pod: &mut Value) {
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
        render_cache: &RenderCache<T>,
        read: impl FnOnce(&yaml::Node, &mut TypingReport) -> Result<T, OutputError>,
    ) -> Result<Option<T>, StopReason> {
        // An escape of YAML has at least two bytes, and yields at most three.
        let may_be_long = text.len() > pod::MAX_VARIABLE_LENGTH / 2;
        let found = render_cache.get(text, |text| {
            let node = tree(template.name(), text).map_err(StopReason::Template)?;
            let Some(node) = node else {
                return Ok(None);
            };
            let mut report = TypingReport::default();
            let read =
                read(&node, &mut report).map_err(
                    |output_error| match user_volumes::volume_twice(self.sent, &output_error) {
                        Some(message) => StopReason::Pod(message),
                        None => StopReason::Template(format!(
                            "template {}: {output_error}",
                            template.name()
                        )),
                    },
                )?;
            Ok(Some((read, report)))
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
        let warnings = self.warnings.into_vec();
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
            pruned: self.trace.pruned,
        }
    }

    fn note_pruned(&mut self) {
        let pruned = self.pruned.iter();
        self.warnings
            .extend(pruned.filter_map(|path| warnings::pruned(path)));
        self.trace.pruned = self.pruned.len();
    }

    pub(crate) fn finish(mut self, injected: InjectedPod) -> Outcome {
        let InjectedPod {
            pod,
            status,
            replaced_elements,
        } = injected;
        // The API server would take such a pod, and its proxy never start.
        let too_long = variables::too_long(&pod, &status);
        // It would refuse these for what their author does not see: annotations of the injection, and elements of the proxy.
        let refused = || annotations::too_many(&pod).or_else(|| user_volumes::mounted_twice(&pod));
        if let Some(cause) = too_long.or_else(refused) {
            return self.stop(StopReason::Pod(cause));
        }
        self.note_pruned();
        self.warnings.extend(variables::without_effect(&pod));
        let warnings = self.warnings.into_vec();
        let operations = json_patch::diff_replacing(self.sent, &pod, &replaced_elements);
        let (count, text) = (operations.len(), json_patch::to_text(&operations));
        // An earlier injection of the same version is there, and complete.
        if count == 0 {
            return Outcome::Skipped {
                reason: reason::UNCHANGED,
                warnings,
            };
        }
        let trace = self.trace;
        Outcome::Injected(Box::new(Injected {
            reason: self.reason,
            patch: text,
            operations: count,
            warnings,
            templates: trace.templates.clone(),
            version: trace.version.clone(),
            native: trace.native,
            containers: status.lists.all_containers().cloned().collect(),
            pruned: trace.pruned,
            owner: trace.owner.clone(),
            pod,
        }))
    }
}

/// A pod after its injection.
pub(crate) struct InjectedPod {
    pub(crate) pod: Value,
    pub(crate) status: Status,
    /// The elements of lists that the patch replaces whole.
    pub(crate) replaced_elements: reinject::ReplacedElements,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::interface::{Parameters, Sources};

    /// The proxy's variables that a path with these pairs sets, and the warnings.
    fn set_by(config: &str, pairs: &[(&str, &str)]) -> (Vec<Value>, Vec<String>) {
        let sources = Sources {
            config: Some(config),
            ..Sources::default()
        };
        let (configuration, _) = Configuration::load(sources, Parameters::default()).unwrap();
        let pairs = pairs.iter();
        let request = Request {
            proxy_envs: pairs
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Request::default()
        };
        let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
        let Outcome::Injected(injected) = configuration.inject(&request, &pod) else {
            panic!("{config}");
        };
        let env = pod::proxy(&injected.pod).unwrap()["env"].as_array();
        (env.cloned().unwrap_or_default(), injected.warnings)
    }

    #[test]
    fn the_path_sets_variables_whatever_the_form_of_the_template() {
        let container = "{name: istio-proxy, image: 'proxyv2:1.8.6', env: [{name: ISTIO_META_CLUSTER_ID, value: a}]}";
        let fragment = format!("policy: enabled\ntemplate: |\n  containers: [{container}]\n");
        let overlay = format!(
            "policy: enabled\ntemplates:\n  sidecar: |\n    spec: {{containers: [{container}]}}\n"
        );
        for config in [fragment, overlay] {
            let (env, warnings) = set_by(&config, &[("cluster", "c"), ("net", "n"), ("a_b", "x")]);
            assert_eq!(
                env,
                [
                    json!({"name": "ISTIO_META_CLUSTER_ID", "value": "c"}),
                    json!({"name": "ISTIO_META_NETWORK", "value": "n"}),
                    json!({"name": "A_B", "value": "x"}),
                ],
                "{config}"
            );
            assert_eq!(warnings, [""; 0]);
            for (key, servers) in [
                ("1a", "API servers before 1.32 refuse the variable \"1A\""),
                ("a b", "API servers before 1.32 refuse the variable \"A B\""),
                ("a=b", "API servers refuse the variable \"A=B\""),
                ("é", "API servers refuse the variable \"É\""),
            ] {
                let (env, warnings) = set_by(&config, &[("b", "c"), (key, "x")]);
                assert_eq!(env.len(), 3);
                let [warning] = warnings.as_slice() else {
                    panic!("{warnings:?}");
                };
                let begin = format!("path of the webhook: {servers} (want");
                assert!(warning.starts_with(&begin), "{warning}");
            }
        }
    }
}
