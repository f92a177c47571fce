//! `inject`: configuration, pod and request in; decision, new pod, patch and warnings out.
//!
//! It knows `api` and none of its callers: the webhook and the command line call the same functions. It is pure: no socket,
//! no file, no clock, no environment and no tokio; equal input gives equal bytes. A pod stays JSON from end to end, so that
//! fields of a newer Kubernetes and large numbers survive.
//!
//! ```text
//! texts ── yaml ──► config ──► template (data, functions) ── yaml ──► output_types (schema) ──► fragment │ overlay
//!                     │                                                                              │
//! pod ──────────── decision ── annotations ── status (an earlier injection goes) ─────────────► probes ── json_patch ──► Outcome
//! ```
//!
//! # Map
//!
//! Each room uses only rooms above it.
//!
//! * `ids`: user and group of the proxy. `interface`: the types that callers use. `output_error`: errors of a template's output.
//! * `pod`: a pod as JSON. `schema`: the schema of core/v1 Pod. `quantity`: quantities. `yaml`: the tree of `api` with types for its
//!   scalars. `selector`: label selectors. `yaml_safe`: characters that a pod's author may not use in text that templates paste.
//!   `json_eq`: equality of JSON; `operation` and `json_patch`: a JSON Patch, and the difference of two pods as one.
//! * `warnings`: warnings for a pod's author. `decision`: whether a pod is injected. `status`: the status annotation.
//!   `protected_containers`: settings that users may not change. `template_names`: names that are templates'. `merge`: a strategic merge.
//!   `native_sidecar`: native sidecars. `concurrency`: threads of the proxy. `agent_probes`: probes that the agent refuses.
//!   `admission_plugins`: settings that the API server's plugins give to containers of an injection.
//! * `value`: values of templates, and the budget of a rendering. `data`: the data of a template under Go's names. `labels`: labels of a
//!   workload. `template`: Go's text/template with Istio's functions.
//! * `output_types`: an output to Kubernetes' types. `text_slots` and `render_cache`: outputs that are parsed once for many pods.
//!   `template_set`: overlay templates by name.
//! * `user_volumes`: annotations that hold volumes. `annotations`: the validation of all. `file`: the configuration file as it is
//!   written. `builtin`: the built-in template. `release`: the release of an agent's image.
//! * `layer`: the output of a template that prints a partial pod. `overrides`: the user's version of containers that a template makes.
//!   `probes` and `metrics`: both by way of the proxy's status port. `reinject`: defaults that the API server has filled in.
//!   `replaced_values`: the user's values that an injection replaced.
//! * `fragment`: templates that print things to add. `variables`: variables that keep a proxy from starting. `uninject`: the removal of
//!   an earlier injection.
//! * `config`: policy, templates, values and mesh, checked once. `describe`: a configuration for pages. `template_data`: the data of one
//!   rendering.
//! * `injection`: one injection while it is made. `overlay`: the laying of layers over the pod. `dry_run`: the loading of a
//!   configuration, with one rendering of each template. `engine`: from a pod to an outcome.

#![forbid(unsafe_code)]

mod admission_plugins;
mod agent_probes;
mod annotations;
mod builtin;
mod concurrency;
mod config;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the kinds of a template's values and of JSON, all others are one case"
)]
mod data;
mod decision;
mod describe;
mod dry_run;
mod engine;
mod file;
mod fragment;
#[cfg(test)]
#[path = "../api/tests/support/growth.rs"]
mod growth;
mod ids;
mod injection;
mod interface;
mod json_eq;
mod json_patch;
mod labels;
mod layer;
mod merge;
mod metrics;
mod native_sidecar;
mod operation;
mod output_error;
mod output_types;
mod overlay;
mod overrides;
mod pod;
mod probes;
mod protected_containers;
mod quantity;
mod reinject;
mod release;
mod render_cache;
mod replaced_values;
mod schema;
mod selector;
mod status;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the kinds of a template's values and of JSON, all others are one case"
)]
mod template;
mod template_data;
mod template_names;
mod template_set;
mod text_slots;
mod uninject;
mod user_volumes;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the kinds of a template's values and of JSON, all others are one case"
)]
mod value;
mod variables;
mod warnings;
mod yaml;
mod yaml_safe;

pub use builtin::configuration as builtin_configuration;
pub use config::Configuration;
pub use describe::Description;
pub use ids::ProxyIds;
pub use interface::{
    ConfigurationError, Injected, NativeSidecars, Origin, Outcome, OuterObject, Parameters,
    Request, Review, ReviewTrace, SourceKind, Sources, reason,
};
pub use pod::containers_of_user;
pub use warnings::MAX_WARNINGS;
pub use yaml::{read as read_yaml, to_json as yaml_to_json};
