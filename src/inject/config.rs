//! The configuration: policy, templates, values and mesh, read and checked once for all pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::mesh::MeshConfig;
use gotmpl::Value;

use crate::annotations::{self, Quoting, Validators};
use crate::builtin;
use crate::data::{self, Proxy};
use crate::decision::Policy;
use crate::file::File;
use crate::fragment::Fragment;
use crate::interface::{ConfigurationError, Parameters, SourceKind, Sources};
use crate::release::AgentSettings;
use crate::render_cache::RenderCache;
use crate::template::{Delimiters, Dialect, Template, version};
use crate::template_set::TemplateSet;
use crate::value::of_json;
use crate::{yaml, yaml_safe};

/// The way in which a template's output is applied to the pod.
#[derive(Debug)]
pub(crate) enum Mode {
    /// The template prints things to add.
    Fragment {
        template: Box<Template>,
        /// The sha256 of its text.
        version: String,
        render_cache: RenderCache<Fragment>,
    },
    /// The templates print partial pods.
    Overlay(TemplateSet),
}

impl Mode {
    /// Checks a pod's choice of templates; a fragment ignores it.
    pub(crate) fn choice(&self, names: &str) -> Result<(), String> {
        match self {
            Self::Fragment { .. } => Ok(()),
            Self::Overlay(template_set) => template_set.choose(Some(names)).map(drop),
        }
    }
}

/// Configuration that all pods share.
#[derive(Debug)]
pub struct Configuration {
    pub(crate) policy: Policy,
    pub(crate) mode: Mode,
    built_in: bool,
    pub(crate) injected_annotations: BTreeMap<String, String>,
    pub(crate) agents: AgentSettings,
    /// Rewrites probes, in overlays; a fragment has its own setting.
    pub(crate) rewrite_probes: bool,
    pub(crate) values: Value,
    pub(crate) values_json: serde_json::Value,
    pub(crate) mesh: MeshConfig,
    pub(crate) mesh_value: Value,
    /// The proxy of pods without a `ProxyConfig` of their own.
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) parameters: Parameters,
    pub(crate) environment: Arc<BTreeMap<String, String>>,
    /// The environment of pods whose proxy is a native sidecar.
    pub(crate) native_environment: Arc<BTreeMap<String, String>>,
}

/// The variable by which templates of Istio 1.19 to 1.26 ask whether the proxy is to be a native sidecar.
const NATIVE: &str = "ENABLE_NATIVE_SIDECARS";

fn native(mut environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
    environment.insert(NATIVE.to_owned(), "true".to_owned());
    environment
}

impl Configuration {
    /// Reads and checks the three texts, and renders nothing. Returns warnings for their author.
    ///
    /// # Errors
    ///
    /// A text is invalid; the error names the source and the cause.
    pub(crate) fn read(
        sources: Sources<'_>,
        parameters: Parameters,
    ) -> Result<(Self, Vec<String>), ConfigurationError> {
        let mut warnings = Vec::new();
        let (mesh, mesh_value) = mesh(sources.mesh, &mut warnings)?;
        let proxy = Arc::new(usual_proxy(&mesh, sources.mesh, &mut warnings)?);
        let values_json = values(sources.values)?;
        let broken = |cause: String| ConfigurationError {
            source: SourceKind::Config,
            cause,
        };
        let mut file = file(sources.config, &mut warnings).map_err(broken)?;
        let built_in = file.template.is_none() && file.templates.is_none();
        if built_in {
            builtin::complete(&mut file, &parameters).map_err(broken)?;
        }
        let delimiters = file.delimiters();
        let mode = mode(&file, &delimiters).map_err(broken)?;
        check_injected_annotations(&file.injected_annotations, &proxy, &mode).map_err(broken)?;
        let agents = AgentSettings {
            probers: file.probers,
            add_labels: file.add_labels,
            is_fragment: matches!(mode, Mode::Fragment { .. }),
            brackets: delimiters.left == "[[",
        };
        // Istio's charts have the setting among the values; the file's own counts first.
        let of_values = values_json.pointer("/sidecarInjectorWebhook/rewriteAppHTTPProbe");
        let of_values = of_values.and_then(serde_json::Value::as_bool);
        let rewrite_probes = file.rewrite_probes.or(of_values);
        let configuration = Self {
            policy: file.policy,
            mode,
            built_in,
            injected_annotations: file.injected_annotations,
            agents,
            rewrite_probes: rewrite_probes.unwrap_or_default(),
            values: of_json(&values_json),
            values_json,
            mesh,
            mesh_value,
            proxy,
            environment: Arc::new(parameters.environment.clone()),
            native_environment: Arc::new(native(parameters.environment.clone())),
            parameters,
        };
        Ok((configuration, warnings))
    }

    /// Returns true if the template is the built-in one, which takes the parameters.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.built_in
    }

    /// `.Revision`, which is never empty.
    pub(crate) fn revision(&self) -> &str {
        Some(self.parameters.revision.as_str())
            .filter(|revision| !revision.is_empty())
            .unwrap_or("default")
    }

    /// Returns true if Prometheus scrapes application and proxy through the proxy.
    pub(crate) fn merges_metrics(&self) -> bool {
        let setting = self.mesh.enable_prometheus_merge.as_ref();
        setting.is_none_or(|setting| setting.value)
    }

    /// `.CompliancePolicy`, which istiod has from the same variable.
    pub(crate) fn compliance_policy(&self) -> &str {
        let policy = self.environment.get("COMPLIANCE_POLICY");
        policy.map_or("", String::as_str)
    }

    /// `.InboundTrafficPolicyMode`: how the mesh hands traffic to applications.
    pub(crate) fn inbound_traffic_policy(&self) -> &'static str {
        use api::mesh::mesh_config::inbound_traffic_policy::Mode as Inbound;
        match self
            .mesh
            .inbound_traffic_policy
            .as_ref()
            .map(api::mesh::mesh_config::InboundTrafficPolicy::mode)
        {
            Some(Inbound::Localhost) => "localhost",
            Some(Inbound::Passthrough) | None => "passthrough",
        }
    }

    /// The network of pods whose webhook's path has these pairs: theirs, else that of the values.
    pub(crate) fn network<'a>(&'a self, proxy_envs: &'a [(String, String)]) -> Option<&'a str> {
        // Of two pairs with one key the last wins, as among the proxy's variables.
        let of_path = proxy_envs.iter().rev().find(|(key, _)| key == "net");
        let of_values = self.values_json.pointer("/global/network");
        of_path
            .map(|(_, name)| name.as_str())
            .or_else(|| of_values.and_then(serde_json::Value::as_str))
            .filter(|name| !name.is_empty())
    }

    /// Returns true if the values make applications wait for their proxies.
    pub(crate) fn values_hold(&self) -> bool {
        let setting = self
            .values_json
            .pointer("/global/proxy/holdApplicationUntilProxyStarts");
        setting.and_then(serde_json::Value::as_bool) == Some(true)
    }
}

/// Reads the configuration file; without a text it is the default one.
fn file(text: Option<&str>, warnings: &mut Vec<String>) -> Result<File, String> {
    let node = match text {
        Some(text) => yaml::read(text).map_err(|error| error.to_string())?,
        None => None,
    };
    if text.is_some() && node.is_none() {
        let warning = "the file is empty; using the built-in template and policy enabled";
        warnings.push(warning.to_owned());
    }
    File::read(node.as_ref(), warnings)
}

/// Checks the annotations that are set on each pod. Templates read them as they read a pod's own, so that the same rules hold.
fn check_injected_annotations(
    injected: &BTreeMap<String, String>,
    proxy: &Proxy,
    mode: &Mode,
) -> Result<(), String> {
    let set: serde_json::Map<_, _> = injected
        .iter()
        .map(|(key, value)| (key.clone(), serde_json::Value::from(value.as_str())))
        .collect();
    annotations::validate(
        &serde_json::json!({"metadata": {"annotations": set}}),
        &Validators {
            proxy_config: &|text| {
                let parsed = api::mesh::parse_proxy(&proxy.config, text);
                parsed.map(drop).map_err(|error| error.to_string())
            },
            templates: &|text| mode.choice(text),
        },
        Quoting::Nothing,
    )
    .map_err(|cause| format!("injectedAnnotations: {cause}"))
}

fn mesh(
    text: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<(MeshConfig, Value), ConfigurationError> {
    let broken = |error: api::mesh::Invalid| ConfigurationError {
        source: SourceKind::Mesh,
        cause: error.to_string(),
    };
    let mesh = match text {
        Some(text) => {
            let parsed = api::mesh::parse(text).map_err(broken)?;
            warnings.extend(
                parsed
                    .warnings
                    .into_iter()
                    .map(|warning| format!("mesh configuration: {warning}")),
            );
            parsed.config
        }
        None => api::mesh::defaults(),
    };
    let value = data::message(
        &api::schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG,
        api::mesh::json(&mesh).map_err(broken)?,
        None,
    );
    Ok((mesh, value))
}

/// Returns the proxy of pods without a `ProxyConfig` of their own; `text` is the mesh configuration's source.
fn usual_proxy(
    mesh: &MeshConfig,
    text: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<Proxy, ConfigurationError> {
    let broken = |error: api::mesh::Invalid| ConfigurationError {
        source: SourceKind::Mesh,
        cause: error.to_string(),
    };
    let config = mesh.default_config.clone();
    let config = config.unwrap_or_else(api::mesh::proxy_defaults);
    let defaults = text.map(api::mesh::written_defaults).transpose();
    let defaults = defaults.map_err(broken)?.unwrap_or_default();
    let newer = yaml_safe::newer_variables(&defaults);
    warnings.extend(newer.map(|warning| format!("mesh configuration: defaultConfig.{warning}")));
    data::proxy_config(config, defaults).map_err(broken)
}

fn values(text: Option<&str>) -> Result<serde_json::Value, ConfigurationError> {
    let broken = |cause: String| ConfigurationError {
        source: SourceKind::Values,
        cause,
    };
    let node = match text {
        Some(text) => yaml::read(text).map_err(|error| broken(error.to_string()))?,
        None => None,
    };
    match node.as_ref().map(yaml::to_json) {
        None => Ok(serde_json::json!({})),
        Some(object @ serde_json::Value::Object(_)) => Ok(object),
        Some(_) => Err(broken("want an object".to_owned())),
    }
}

/// The templates, parsed.
fn mode(file: &File, delimiters: &Delimiters) -> Result<Mode, String> {
    match &file.template {
        Some(text) => {
            let template = Template::parse("inject", text, Dialect::Fragment, delimiters)
                .map_err(|failure| failure.to_string())?;
            let version = version(&[template.text()]);
            Ok(Mode::Fragment {
                template: Box::new(template),
                version,
                render_cache: RenderCache::default(),
            })
        }
        None => {
            let templates = file.templates.iter().flatten();
            let templates = templates
                .map(|(name, text)| Template::parse(name, text, Dialect::Overlay, delimiters))
                .collect::<Result<_, _>>()
                .map_err(|failure| failure.to_string())?;
            TemplateSet::new(
                templates,
                file.aliases.clone(),
                file.default_templates.clone(),
            )
            .map(Mode::Overlay)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Probers;
    use crate::labels::Labels;
    use crate::release::Release;

    fn load(config: &str) -> Result<(Configuration, Vec<String>), ConfigurationError> {
        Configuration::load(
            Sources {
                config: Some(config),
                ..Sources::default()
            },
            Parameters::default(),
        )
    }

    #[test]
    fn delimiters_and_what_hangs_on_them() {
        let rows = [
            (
                "template: 'x: [[ .Revision ]]'",
                Probers::Legacy,
                Labels::None,
            ),
            ("template: 'x: y'", Probers::Legacy, Labels::None),
            (
                "template: 'x: {{ .Revision }}'",
                Probers::CurrentHttp,
                Labels::All,
            ),
            (
                "template: 'x: y # {{ [[ .Revision ]]'",
                Probers::Legacy,
                Labels::None,
            ),
            (
                "template: 'x: <% .Revision %>'\ndelimiters: ['<%', '%>']",
                Probers::CurrentHttp,
                Labels::All,
            ),
            (
                "template: 'x: {{ .Revision }}'\nprobers: legacy\naddLabels: no",
                Probers::Legacy,
                Labels::None,
            ),
            (
                "template: 'x: [[ .Revision ]]'\nprobers: current-http",
                Probers::CurrentHttp,
                Labels::None,
            ),
        ];
        for (text, probers, labels) in rows {
            let (loaded, warnings) = load(text).unwrap();
            let agents = loaded.agents;
            assert_eq!(
                (
                    agents.probers(Release::Unknown),
                    agents.labels(Release::Unknown),
                    warnings.len()
                ),
                (probers, labels, 0),
                "{text}"
            );
        }
    }

    #[test]
    fn a_guessed_agent_is_said() {
        let template = |image: &str| {
            format!("template: |\n  containers: [{{name: istio-proxy, image: '{image}'}}]")
        };
        for (image, warned) in [("p:latest", 1), ("proxyv2:1.4.2", 0), ("pintle-envoy:9", 0)] {
            let (_, warnings) = load(&template(image)).unwrap();
            assert_eq!(warnings.len(), warned, "{warnings:?}");
            assert!(
                warnings
                    .iter()
                    .all(|warning| warning.contains("probers: legacy"))
            );
        }
        let overlay = |image: &str| {
            format!(
                "templates: {{sidecar: '{{spec: {{containers: [{{name: istio-proxy, image: \"{image}\"}}]}}}}', other: 'spec: {{}}'}}"
            )
        };
        for (image, warned) in [
            ("p:latest", 1),
            ("proxyv2:1.12.2", 0),
            ("pintle-envoy:9", 0),
        ] {
            let (_, warnings) = load(&overlay(image)).unwrap();
            assert_eq!(warnings.len(), warned, "{warnings:?}");
            assert!(
                warnings
                    .iter()
                    .all(|warning| warning.contains("as probers: current would"))
            );
        }
        let text = format!("probers: legacy\n{}", template("p:latest"));
        assert_eq!(load(&text).unwrap().1, Vec::<String>::new());
    }

    #[test]
    fn the_network_is_the_paths_or_the_values() {
        let load = |values| {
            let sources = Sources {
                config: Some("templates: {sidecar: ''}"),
                values: Some(values),
                mesh: None,
            };
            Configuration::load(sources, Parameters::default())
                .unwrap()
                .0
        };
        let proxy_envs = [("net".to_owned(), "n1".to_owned())];
        let of_values = load("global: {network: n2}");
        assert_eq!(of_values.network(&[]), Some("n2"));
        assert_eq!(of_values.network(&proxy_envs), Some("n1"));
        // As charts write it where there is but one.
        assert_eq!(load("global: {network: ''}").network(&[]), None);
        assert_eq!(load("{}").network(&[]), None);
    }

    #[test]
    fn an_object_of_kubernetes_is_no_configuration() {
        let rows = [
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio-sidecar-injector}\ndata: {config: 'template: x'}",
                "this is an object of Kubernetes (ConfigMap), not its file: the file is its data.config",
            ),
            (
                "apiVersion: apps/v1\nkind: Deployment\nspec: {}",
                "this is an object of Kubernetes (Deployment), not its file: the file has the text of data.config of a ConfigMap",
            ),
        ];
        for (text, wanted) in rows {
            assert_eq!(load(text).unwrap_err().cause, wanted);
        }
        assert_eq!(load("kind: x\npolicy: enabled").unwrap().1.len(), 1);
        assert_eq!(
            load("kind: x\napiVersion: y\ntemplate: ''")
                .unwrap()
                .1
                .len(),
            1
        );
    }

    #[test]
    fn a_guard_beside_templates_is_no_template() {
        let text =
            "template: '{{ Check_Your_Version }}'\ntemplates: {sidecar: 'x: {{ .Revision }}'}";
        let (loaded, warnings) = load(text).unwrap();
        assert!(matches!(loaded.mode, Mode::Overlay(_)));
        assert_eq!(warnings, Vec::<String>::new());
    }

    /// As in Istio, which takes the default for it.
    #[test]
    fn an_empty_list_of_default_templates_is_none() {
        for list in ["[]", "null", "[sidecar]"] {
            let text = format!("templates: {{sidecar: 'spec: {{}}'}}\ndefaultTemplates: {list}");
            let (loaded, _) = load(&text).unwrap();
            let Mode::Overlay(template_set) = &loaded.mode else {
                panic!("{list}");
            };
            let chosen = template_set.choose(None).unwrap().templates;
            let names: Vec<_> = chosen.iter().map(|one| one.name()).collect();
            assert_eq!(names, ["sidecar"], "{list}");
        }
    }

    #[test]
    fn fields_that_do_not_exist_are_found_at_load() {
        let error = load("template: |\n  a: b\n  {{ if .Spec.Containers }}{{ .Nosuch }}{{ end }}")
            .unwrap_err();
        assert_eq!(
            error.cause,
            "template inject, line 2: can't evaluate field Nosuch in type SidecarTemplateData"
        );
        // A pod that chooses it gets it.
        let (_, warnings) = load("templates: {sidecar: '', other: '{{ .UID }}'}").unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("other"), "{warnings:?}");
        // Istio's own gateway controller prints these.
        for name in ["waypoint", "kube-gateway", "agentgateway"] {
            let text = format!("templates: {{sidecar: '', {name}: '{{{{ .UID }}}}'}}");
            assert_eq!(load(&text).unwrap().1, [""; 0], "{name}");
        }
        assert!(load("templates: {sidecar: '', w: '{{ .UID }}'}\ndefaultTemplates: [w]").is_err());
        // Errors that may be the pod's are not.
        for text in [
            "template: '{{ fail \"no\" }}'",
            "template: '{{ fail `can''t evaluate field x in type Foo` }}'",
            "template: '{{ (index .Spec.Volumes 0).Name }}'",
            "template: '{{ .Spec.SecurityContext.FSGroup }}'",
        ] {
            assert!(load(text).is_ok(), "{text}");
        }
    }

    /// A template may need more than an empty pod, so that this breaks no configuration.
    #[test]
    fn loading_reports_output_that_is_no_yaml() {
        let prefix = "printed for an empty pod";
        let rows = [
            (
                "templates:\n  sidecar: |\n    spec:\n      a: b\n       c: d",
                "template sidecar: its output is no YAML: line 3",
            ),
            (
                "template: |\n  containers:\n  - name: a\n   image: b",
                "template inject: its output is no YAML: line 3",
            ),
            (
                "templates: {sidecar: '', other: 'spec: {containers: [{image: a}]}'}",
                "template other: containers[0]: no name",
            ),
            (
                "template: 'containers: x'",
                "template inject: containers: want a list",
            ),
        ];
        for (text, wanted) in rows {
            let (_, warnings) = load(text).unwrap();
            let [warning] = warnings.as_slice() else {
                panic!("{text}: {warnings:?}");
            };
            assert!(
                warning.starts_with(prefix) && warning.contains(wanted),
                "{warning}"
            );
        }
        // Charts print other resources by these names, for other data.
        let (_, warnings) = load("templates: {sidecar: '', other: 'a: {{ .Nosuch }}'}").unwrap();
        assert!(!warnings[0].contains(prefix), "{warnings:?}");
    }

    #[test]
    fn invalid_configuration_is_an_error_with_its_line() {
        let rows = [
            (
                "policy: maybe\ntemplate: ''",
                "line 1: policy: want enabled or disabled, got \"maybe\"",
            ),
            (
                "template: ''\ndelimiters: ['', x]",
                "line 2: delimiters: want two strings that are not empty",
            ),
            (
                "template: ''\nprobers: new",
                "line 2: probers: want legacy, current-http or current, got \"new\"",
            ),
            (
                "template: ''\naddLabels: 3",
                "line 2: addLabels: want true or false",
            ),
            (
                "template: ''\nneverInjectSelector:\n- matchExpressions:\n  - {key: a, operator: Is}",
                "line 3: neverInjectSelector: unknown operator \"Is\" in a selector",
            ),
            (
                "template: |\n  a: b\n  [[ nosuch 1 ]]",
                "template inject, line 2: function \"nosuch\" not defined",
            ),
            ("template: |\n  {{ if }}", "template inject, line 1: "),
            (
                "template: |\n  a: b\n  {{ end }}\n  c: d",
                "template inject, line 2: unexpected end: no block is open",
            ),
            (
                "templates:\n  sidecar: |\n    {{ if .Revision }}\n    a: b",
                "template sidecar, line 1: if has no end",
            ),
            (
                "template: '{{ expandenv `x` }}'",
                "template inject, line 1: function \"expandenv\" not defined",
            ),
            (
                "template: ''\ninjectedAnnotations: {sidecar.istio.io/proxyCPU: x}",
                "injectedAnnotations: invalid value '…' for annotation 'sidecar.istio.io/proxyCPU'",
            ),
            (
                "templates: {a: 'spec: {}'}",
                "defaultTemplates: no template \"sidecar\", known: a",
            ),
            ("templates: {}", "defaultTemplates: no template \"sidecar\""),
            ("- a", "line 1: want an object"),
            ("a: 1\na: 2", "line 2: the key \"a\" twice"),
        ];
        for (text, wanted) in rows {
            let error = load(text).unwrap_err();
            assert_eq!(error.source, SourceKind::Config);
            assert!(error.cause.starts_with(wanted), "{}", error.cause);
        }
    }

    #[test]
    fn each_source_is_named_where_it_is_broken() {
        let sources = Sources {
            config: Some("template: ''"),
            values: Some("[1]"),
            mesh: None,
        };
        assert_eq!(
            Configuration::load(sources, Parameters::default())
                .unwrap_err()
                .source,
            SourceKind::Values
        );
        let sources = Sources {
            mesh: Some("proxyListenPort: x"),
            values: None,
            ..sources
        };
        let error = Configuration::load(sources, Parameters::default()).unwrap_err();
        assert_eq!(error.source, SourceKind::Mesh);
        assert!(error.to_string().contains("proxyListenPort"), "{error}");
    }

    /// As one that was cut while it was written.
    #[test]
    fn an_empty_file_is_told() {
        let wanted = ["the file is empty; using the built-in template and policy enabled"];
        for text in ["", "\n", "# nothing\n"] {
            assert_eq!(load(text).unwrap().1, wanted, "{text:?}");
        }
        assert_eq!(load("policy: disabled").unwrap().1, Vec::<String>::new());
        let built_in = Configuration::load(Sources::default(), Parameters::default());
        assert_eq!(built_in.unwrap().1, Vec::<String>::new());
    }

    #[test]
    fn a_variable_for_newer_servers_is_a_warning() {
        for (name, servers) in [("1A", "API servers before 1.32"), ("a=b", "API servers")] {
            let mesh = format!("defaultConfig: {{proxyMetadata: {{A: b, {name}: c}}}}");
            let sources = Sources {
                mesh: Some(&mesh),
                ..Sources::default()
            };
            let (_, warnings) = Configuration::load(sources, Parameters::default()).unwrap();
            let [warning] = warnings.as_slice() else {
                panic!("{warnings:?}");
            };
            let wanted = format!(
                "mesh configuration: defaultConfig.proxyMetadata: {servers} refuse the variable {name:?} "
            );
            assert!(warning.starts_with(&wanted), "{warning}");
        }
    }

    #[test]
    fn unknown_keys_are_one_warning() {
        let (_, warnings) =
            load("template: ''\nfuture: 1\nmore: {}\nneverInjectSelector:").unwrap();
        assert_eq!(warnings, ["unknown keys are ignored: future, more"]);
    }
}
