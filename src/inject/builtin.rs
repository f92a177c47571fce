//! The built-in template, which is injected unless a configuration is given.
//!
//! It is a configuration as a user would write it, with the parameters at its head, and it is read like one: the printed
//! template, given as a configuration, yields exactly the same pods.

use std::fmt::Write as _;

use serde_json::json;

use crate::annotations;
use crate::file::File;
use crate::interface::Parameters;
use crate::template_set::SIDECAR;
use crate::yaml;

const TEMPLATE: &str = include_str!("builtin.tpl");

/// The default proxy image: pintle's, of the same version.
const PROXY_IMAGE: &str = concat!("pintle-envoy:", env!("CARGO_PKG_VERSION"));
const INIT_IMAGE: &str = "istio/proxyv2:1.24.0";

const HEAD: &str = "\
# What gudgeon injects by itself, to start your own configuration from. The first lines of the template are its parameters.
policy: enabled
";

/// Variables of the template that a setting names: the setting, and its default.
const SETTINGS: [(&str, &str, &str); 10] = [
    ("includeIPRanges", "includeIPRanges", "*"),
    ("excludeIPRanges", "excludeIPRanges", ""),
    ("includeInboundPorts", "includeInboundPorts", "*"),
    ("excludeInboundPorts", "excludeInboundPorts", ""),
    ("imagePullPolicy", "imagePullPolicy", "IfNotPresent"),
    // The mesh configuration's value counts if this is empty.
    ("statusPort", "statusPort", ""),
    ("initialDelaySeconds", "readinessInitialDelaySeconds", "1"),
    ("periodSeconds", "readinessPeriodSeconds", "2"),
    ("failureThreshold", "readinessFailureThreshold", "30"),
    ("proxyUID", "sidecarProxyUID", "1337"),
];

/// Returns the built-in configuration file with these parameters.
///
/// # Errors
///
/// A parameter is invalid; the error names it.
pub fn configuration(parameters: &Parameters) -> Result<String, String> {
    let of = |setting: &str| parameters.settings.get(setting).map(String::as_str);
    for (name, value) in &parameters.settings {
        annotations::parameter(name, value)
            .map_err(|cause| format!("invalid value '{value}': {cause}"))?;
    }
    let truth = |setting: &str| of(setting).and_then(annotations::boolean);
    let text = |given: &Option<String>, usual: &str| given.as_deref().unwrap_or(usual).to_owned();
    let image = |given: &Option<String>, usual: &str| match (of("hub"), of("tag")) {
        (Some(hub), Some(tag)) => text(given, &format!("{hub}/proxyv2:{tag}")),
        // One of the two alone names no image.
        _ => text(given, usual),
    };
    let mut lines = vec![
        (
            "proxyImage",
            json!(image(&parameters.proxy_image, PROXY_IMAGE)),
        ),
        (
            "initImage",
            json!(image(&parameters.init_image, INIT_IMAGE)),
        ),
        // The mesh configuration's value counts if this is empty.
        (
            "discoveryAddress",
            json!(text(&parameters.discovery_address, "")),
        ),
        ("cni", json!(parameters.cni)),
        (
            "coreDump",
            json!(truth("coreDump").unwrap_or(false).to_string()),
        ),
    ];
    for (variable, setting, usual) in SETTINGS {
        lines.push((variable, json!(of(setting).unwrap_or(usual))));
    }
    let mut out = HEAD.to_owned();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "rewriteAppHTTPProbe: {}",
        truth("rewriteAppProbe").unwrap_or(true)
    );
    let _ = writeln!(out, "templates:\n  {SIDECAR}: |");
    for (variable, value) in lines {
        let _ = writeln!(out, "    {{{{- ${variable} := {value} }}}}");
    }
    for line in TEMPLATE.lines() {
        let _ = writeln!(out, "    {line}");
    }
    Ok(out)
}

/// Adds the built-in template to a file without templates.
pub(crate) fn complete(file: &mut File, parameters: &Parameters) -> Result<(), String> {
    let text = configuration(parameters)?;
    let node = yaml::read(&text).map_err(|error| error.to_string())?;
    let own = File::read(node.as_ref(), &mut Vec::new())?;
    file.templates = own.templates;
    file.delimiters = own.delimiters;
    // A file without templates may have this setting, and then means it.
    file.rewrite_probes = file.rewrite_probes.or(own.rewrite_probes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::*;
    use crate::{Configuration, ConfigurationError, Outcome, Request, SourceKind, Sources};

    fn parameters(settings: &[(&str, &str)]) -> Parameters {
        let settings = settings.iter();
        Parameters {
            proxy_image: Some("hub/x: \"y\"".to_owned()),
            cni: true,
            revision: "canary".to_owned(),
            settings: settings
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Parameters::default()
        }
    }

    fn load(
        config: Option<&str>,
        parameters: Parameters,
    ) -> Result<(Configuration, Vec<String>), ConfigurationError> {
        let sources = Sources {
            config,
            ..Sources::default()
        };
        Configuration::load(sources, parameters)
    }

    #[test]
    fn the_printed_configuration_injects_the_same_pods() {
        let parameters = parameters(&[
            ("statusPort", "15021"),
            ("rewriteAppProbe", "false"),
            ("coreDump", "true"),
        ]);
        let text = configuration(&parameters).unwrap();
        let revision = Parameters {
            revision: parameters.revision.clone(),
            ..Parameters::default()
        };
        let (own, own_warnings) = load(None, parameters).unwrap();
        let (printed, warnings) = load(Some(&text), revision).unwrap();
        // The image's tag names no release: whoever has a template can say what its agent is.
        assert_eq!(
            (own_warnings.len(), warnings.len()),
            (0, 1),
            "{own_warnings:?} {warnings:?}"
        );
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "livenessProbe": {"tcpSocket": {"port": 1}}}]}});
        let outcome = own.inject(&Request::default(), &pod);
        assert!(matches!(outcome, Outcome::Injected(_)), "{outcome:?}");
        assert_eq!(printed.inject(&Request::default(), &pod), outcome);
        assert_eq!(printed.describe(), own.describe());
    }

    /// At the load, and to whoever creates a pod; a template of one's own may have another proxy.
    #[test]
    fn mesh_configurations_by_which_every_proxy_ends_are_told() {
        let mesh = Some("defaultConfig: {statsdUdpAddress: 'statsd:9125'}");
        let cause = "statsdUdpAddress: want IP:PORT, or the proxy may not start";
        let pod = json!({"spec": {"containers": [{"name": "a"}]}});
        for (config, is_told) in [
            (None, true),
            (Some("templates: {sidecar: '{spec: {nodeName: x}}'}"), false),
        ] {
            let sources = Sources {
                config,
                mesh,
                ..Sources::default()
            };
            let (loaded, warnings) = Configuration::load(sources, Parameters::default()).unwrap();
            let of_mesh = format!("mesh configuration: defaultConfig.{cause}");
            assert_eq!(warnings.contains(&of_mesh), is_told, "{warnings:?}");
            let Outcome::Injected(injected) = loaded.inject(&Request::default(), &pod) else {
                panic!("{config:?}");
            };
            let of_pod = format!("ProxyConfig: {cause}");
            let warnings = injected.warnings;
            assert_eq!(warnings.contains(&of_pod), is_told, "{warnings:?}");
        }
    }

    /// Server-side apply takes no list with a name twice.
    #[test]
    fn a_variable_of_proxy_metadata_stands_once() {
        const OF_THE_POD: [&str; 2] = ["ISTIO_KUBE_APP_PROBERS", "ISTIO_PROMETHEUS_ANNOTATIONS"];
        let annotations =
            json!({"sidecar.istio.io/bootstrapOverride": "b", "prometheus.io/port": "80"});
        let pod = json!({"metadata": {"name": "p", "annotations": annotations},
            "spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": 1}}}]}});
        let variables = |metadata: &BTreeMap<String, &str>| {
            let mesh = json!({"defaultConfig": {"terminationDrainDuration": "7s", "proxyMetadata": metadata}});
            let mesh = mesh.to_string();
            let sources = Sources {
                mesh: Some(&mesh),
                ..Sources::default()
            };
            let (loaded, _) = Configuration::load(sources, Parameters::default()).unwrap();
            let Outcome::Injected(injected) = loaded.inject(&Request::default(), &pod) else {
                panic!("{mesh}");
            };
            let containers = injected.pod["spec"]["containers"].as_array().unwrap();
            let proxy = containers.iter().find(|one| one["name"] == "istio-proxy");
            proxy.unwrap()["env"].as_array().unwrap().clone()
        };
        let name = |variable: &Value| variable["name"].as_str().unwrap().to_owned();
        let own = variables(&BTreeMap::new());
        assert_eq!(own.len(), 20, "{own:?}");
        let own_variables = own.iter().map(|variable| (name(variable), "mine"));
        let variables = variables(&own_variables.collect());
        let names: BTreeSet<String> = variables.iter().map(name).collect();
        assert_eq!(names, own.iter().map(name).collect());
        assert_eq!(names.len(), variables.len(), "{variables:?}");
        for variable in &variables {
            let is_mine = variable["value"] == "mine";
            assert_eq!(
                is_mine,
                !OF_THE_POD.contains(&&*name(variable)),
                "{variable}"
            );
        }
    }

    #[test]
    fn parameters_are_validated() {
        for (name, value, wanted) in [
            (
                "statusPort",
                "x",
                "invalid value 'x': statusPort invalid: want a number from 0 to 65535, got \"x\"",
            ),
            (
                "includeIPRanges",
                "1",
                "invalid value '1': includeIPRanges invalid: want an address range, such as 10.0.0.0/8, got \"1\"",
            ),
            (
                "coreDump",
                "maybe",
                "invalid value 'maybe': coreDump invalid: want true or false",
            ),
        ] {
            let broken = load(None, parameters(&[(name, value)]))
                .map(drop)
                .unwrap_err();
            assert_eq!(
                (broken.source, broken.cause.as_str()),
                (SourceKind::Config, wanted)
            );
            // With a configuration file the parameters are ignored.
            load(Some("template: ''"), parameters(&[(name, value)])).unwrap();
        }
    }
}
