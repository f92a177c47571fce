//! The types that callers use: the webhook and the command line know these only.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::ids::ProxyIds;

/// The three texts that make a configuration. An absent one is the built-in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sources<'a> {
    /// Policy and templates, YAML.
    pub config: Option<&'a str>,
    /// `.Values`, an object in YAML or JSON.
    pub values: Option<&'a str>,
    /// The mesh configuration, YAML or JSON.
    pub mesh: Option<&'a str>,
}

/// Parameters of a configuration from the command line.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    /// `.Revision`; empty means `default`.
    pub revision: String,
    /// Images and address of the built-in template; `None` if no flag sets them. Other templates may ask for the images.
    pub proxy_image: Option<String>,
    pub init_image: Option<String>,
    pub discovery_address: Option<String>,
    /// The built-in template leaves the init container out.
    pub cni: bool,
    /// Further parameters of the built-in template by their flag's name, as `includeIPRanges`. `hub` and `tag` are the images
    /// that the fields above do not name.
    pub settings: BTreeMap<String, String>,
    /// The variables that templates read through `env`.
    pub environment: BTreeMap<String, String>,
}

/// The text that is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    Config,
    Values,
    Mesh,
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationError {
    pub source: SourceKind,
    /// Cause, with the line where there is one.
    pub cause: String,
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.source {
            SourceKind::Config => "injection configuration",
            SourceKind::Values => "values",
            SourceKind::Mesh => "mesh configuration",
        };
        write!(f, "cannot use {what}: {}", self.cause)
    }
}

impl std::error::Error for ConfigurationError {}

/// Selects the pods whose proxy is a native sidecar: an init container with `restartPolicy: Always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NativeSidecars {
    #[default]
    Off,
    On,
    /// Only pods that end: `restartPolicy` is not Always.
    Jobs,
}

/// The origin of the pod.
#[derive(Debug, Clone, Default)]
pub enum Origin {
    /// The API server shows a pod; its owner is read from the pod.
    #[default]
    Webhook,
    /// A manifest holds it: the outer object is the owner, and the policy is not asked.
    Manifest(Box<OuterObject>),
}

/// The object outside of a pod template.
#[derive(Debug, Clone, Default)]
pub struct OuterObject {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub labels: Map<String, Value>,
    pub annotations: Map<String, Value>,
}

/// The context of an injection, besides the pod.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The request's namespace, for a pod that names none.
    pub namespace: String,
    /// Variables of the proxy, from the pairs of the webhook's path, in order.
    pub proxy_envs: Vec<(String, String)>,
    pub native: NativeSidecars,
    pub origin: Origin,
    /// User and group ID of the proxy.
    pub ids: ProxyIds,
}

/// The decision on a pod. Warnings are for the pod's author.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Skipped {
        reason: &'static str,
        warnings: Vec<String>,
    },
    Injected(Box<Injected>),
    Refused {
        code: u16,
        reason: &'static str,
        message: String,
        warnings: Vec<String>,
        pruned: usize,
    },
}

/// A pod with its proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct Injected {
    /// The reason for the injection: `policy`, `label`, ….
    pub reason: &'static str,
    pub pod: Value,
    /// A JSON Patch, as text.
    pub patch: Vec<u8>,
    pub operations: usize,
    pub warnings: Vec<String>,
    /// Names of the templates that were used.
    pub templates: Vec<String>,
    /// The version in the status annotation.
    pub version: String,
    /// The proxy is a native sidecar.
    pub native: bool,
    /// Names of the containers put in, init containers first.
    pub containers: Vec<String>,
    /// Fields that were pruned from the template's output.
    pub pruned: usize,
    /// Kind and name of the owner.
    pub owner: (String, String),
}

/// An outcome with the trace that led to it, for pages that show decisions of every kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    pub outcome: Outcome,
    pub trace: ReviewTrace,
}

/// The facts that a review established before it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReviewTrace {
    /// Kind and name of the owner; empty where there is no pod.
    pub owner: (String, String),
    /// Names of the selected templates, and their version in the status.
    pub templates: Vec<String>,
    pub version: String,
    /// The proxy is, or already was, a native sidecar.
    pub native: bool,
    /// The number of fields that were pruned from the templates' output, in every outcome.
    pub pruned: usize,
}

/// Reasons besides those of the decision table.
pub mod reason {
    pub const BAD_REQUEST: &str = "bad request";
    pub const EMPTY_TEMPLATE: &str = "empty template";
    pub const TEMPLATE: &str = "template";
    pub const UNCHANGED: &str = "unchanged";
}
