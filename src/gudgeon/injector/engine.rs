//! The webhook's interface to the core, so that tests can replace it, for example by one that panics.

use inject::{
    ConfigurationError, Description, Outcome, Parameters, Request, Review, ReviewTrace, Sources,
};
use serde_json::{Value, json};

/// A configuration that is in use.
pub(crate) trait ActiveConfiguration: Sized + Send + Sync + 'static {
    /// Loads a configuration, with warnings.
    fn load(
        sources: Sources<'_>,
        parameters: &Parameters,
    ) -> Result<(Self, Vec<String>), ConfigurationError>;

    /// Decides about a pod.
    fn inject(&self, request: &Request, pod: &Value) -> Outcome;

    /// Injects as `inject` does, and traces the steps for the page.
    fn review(&self, request: &Request, pod: &Value) -> Review {
        Review {
            outcome: self.inject(request, pod),
            trace: ReviewTrace::default(),
        }
    }

    /// Returns true if the template is the built-in one, which takes the parameters.
    fn is_built_in(&self) -> bool {
        false
    }

    /// Policy, delimiters and templates, for the page.
    fn describe(&self) -> Value;
}

impl ActiveConfiguration for inject::Configuration {
    fn load(
        sources: Sources<'_>,
        parameters: &Parameters,
    ) -> Result<(Self, Vec<String>), ConfigurationError> {
        Self::load(sources, parameters.clone())
    }

    fn inject(&self, request: &Request, pod: &Value) -> Outcome {
        self.inject(request, pod)
    }

    fn review(&self, request: &Request, pod: &Value) -> Review {
        self.review(request, pod)
    }

    fn is_built_in(&self) -> bool {
        self.is_built_in()
    }

    fn describe(&self) -> Value {
        let Description {
            policy,
            delimiters: (left, right),
            templates,
        } = self.describe();
        let templates: Vec<Value> = templates
            .into_iter()
            .map(|(name, version)| json!({"name": name, "version": version}))
            .collect();
        json!({"policy": policy, "delimiters": [left, right], "templates": templates})
    }
}
