//! One rendering of each template when a configuration is loaded, so that a field that does not exist is found then and not
//! with the first pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::config::{Configuration, Mode};
use crate::data::Owner;
use crate::fragment::Fragment;
use crate::injection;
use crate::interface::{ConfigurationError, Parameters, Request, SourceKind, Sources};
use crate::layer;
use crate::output_error::OutputError;
use crate::output_types::TypingReport;
use crate::release::Release;
use crate::template::{Failure, Template};
use crate::template_data::TemplateData;
use crate::template_set::OF_GATEWAYS;
use crate::warnings::proxy_config_ends;
use crate::yaml;

/// Namespace of the pod that is rendered.
const NAMESPACE: &str = "default";

impl Configuration {
    /// Reads and checks the three texts. Returns warnings for their author.
    ///
    /// # Errors
    ///
    /// A text is invalid, or a template asks for a field that does not exist; the error names the source and the cause.
    pub fn load(
        sources: Sources<'_>,
        parameters: Parameters,
    ) -> Result<(Self, Vec<String>), ConfigurationError> {
        let (configuration, mut warnings) = Self::read(sources, parameters)?;
        if configuration.is_built_in() {
            let found = proxy_config_ends(&configuration.proxy.config, false).into_iter();
            let fields = found.map(|field| format!("mesh configuration: defaultConfig.{field}"));
            warnings.extend(fields);
        }
        configuration.dry_run(&mut warnings)?;
        Ok((configuration, warnings))
    }

    /// Renders each template for a pod with one container. Only an unknown field counts as an error: all others may be the pod's,
    /// and so may output that cannot be read, which is a warning.
    ///
    /// A template that no pod gets by default is a warning, unless it is one [of gateways](OF_GATEWAYS).
    fn dry_run(&self, warnings: &mut Vec<String>) -> Result<(), ConfigurationError> {
        match &self.mode {
            Mode::Fragment { template, .. } => {
                let text = self.dry_rendered(template);
                if let Err(failure) = &text
                    && failure.is_unknown_field
                {
                    return Err(broken(failure));
                }
                if let Ok(text) = &text {
                    warnings.extend(unreadable(template, text, Fragment::read));
                }
                let fragment = text.ok().and_then(|text| of_output(&text, Fragment::read));
                if fragment.is_some_and(|fragment| {
                    fragment.proxy().is_some() && self.agents.guesses(fragment.release())
                }) {
                    warnings.push(self.guess());
                }
            }
            Mode::Overlay(template_set) => {
                let defaults = template_set.choose(None).map(|selected| selected.templates);
                let defaults = defaults.unwrap_or_default();
                let defaults: BTreeSet<&str> = defaults.iter().map(|one| one.name()).collect();
                let mut others = Vec::new();
                let mut layers = Vec::new();
                for template in template_set.templates() {
                    let failure = match self.dry_rendered(template) {
                        Ok(text) => {
                            warnings.extend(unreadable(template, &text, layer::read));
                            let layer = of_output(&text, layer::read);
                            layers.extend(layer.filter(|_| defaults.contains(template.name())));
                            continue;
                        }
                        Err(failure) if failure.is_unknown_field => failure,
                        Err(_) => continue,
                    };
                    if defaults.contains(template.name()) {
                        return Err(broken(&failure));
                    }
                    if !OF_GATEWAYS.contains(&template.name()) {
                        others.push(failure.to_string());
                    }
                }
                // The image is one template's, and others add to its container.
                let is_guess = layers.iter().any(layer::makes_proxy)
                    && self.agents.guesses(layer::proxy_release(&layers));
                // An image for the built-in template has an agent of today, and there is no template of the user's to tell more.
                if is_guess && !self.is_built_in() {
                    warnings.push(self.guess());
                }
                if !others.is_empty() {
                    warnings.push(format!(
                        "pods that choose these templates will be refused: {}",
                        others.join("; ")
                    ));
                }
            }
        }
        Ok(())
    }

    fn dry_rendered(&self, template: &Template) -> Result<String, Failure> {
        let request = Request::default();
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app"}]}});
        let owner = Owner::of(&pod, &request, NAMESPACE);
        let view = TemplateData {
            configuration: self,
            request: &request,
            pod: &Arc::new(pod),
            namespace: NAMESPACE,
            owner: &owner,
            proxy: &self.proxy,
            native: false,
        };
        let data = view.data().map_err(|cause| Failure {
            name: template.name().to_owned(),
            line: 0,
            cause,
            is_unknown_field: false,
        })?;
        template.render(&data)
    }

    /// Returns the warning that the agent's release is a guess, because the template's image names none.
    fn guess(&self) -> String {
        format!(
            "the image of istio-proxy names no release of Istio: probes are handed over as probers: {} would have it; say \
             probers: legacy (agents up to 1.4), current-http (1.7.2 to 1.24) or current (1.25 and later)",
            self.agents.probers(Release::Unknown).name()
        )
    }
}

/// The output of a template, if it can be read.
fn of_output<T>(
    text: &str,
    read: impl FnOnce(&yaml::Node, &mut TypingReport) -> Result<T, OutputError>,
) -> Option<T> {
    let node = yaml::read(text).ok().flatten()?;
    read(&node, &mut TypingReport::default()).ok()
}

/// Returns a warning about an output of which no pod could be made.
fn unreadable<T>(
    template: &Template,
    text: &str,
    read: impl FnOnce(&yaml::Node, &mut TypingReport) -> Result<T, OutputError>,
) -> Option<String> {
    let cause = match injection::tree(template.name(), text) {
        Ok(node) => {
            let output_error = read(&node?, &mut TypingReport::default()).err()?;
            format!("template {}: {output_error}", template.name())
        }
        Err(cause) => cause,
    };
    Some(format!(
        "printed for an empty pod, which a pod may change: {cause}"
    ))
}

fn broken(failure: &Failure) -> ConfigurationError {
    ConfigurationError {
        source: SourceKind::Config,
        cause: failure.to_string(),
    }
}
