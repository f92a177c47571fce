//! `inject`: configuration, pod and request in; decision, new pod, patch and warnings out.
//!
//! It knows `api` and none of its callers: the webhook and the command line call the same functions. It is pure: no socket,
//! no file, no clock, no environment and no tokio; equal input gives equal bytes. A pod stays JSON from end to end, so that
//! fields of a newer Kubernetes and large numbers survive.
//!
//! ```text
//! texts ── yaml ──► config ──► template (data, functions) ── yaml ──► typing (schema) ──► fragment │ overlay
//!                     │                                                                        │
//! pod ──────────── decision ── annotations ── status (an earlier injection goes) ───────► probes ── patch ──► Outcome
//! ```

#![forbid(unsafe_code)]

pub mod annotations;
mod builtin;
mod catalog;
mod concurrency;
mod config;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the kinds of a template's values and of JSON, all others are one case"
)]
mod data;
pub mod decision;
mod describe;
mod dry_run;
mod engine;
mod file;
mod fragment;
mod ids;
mod interface;
mod json_eq;
mod labels;
mod merge;
mod metrics;
mod native;
mod operation;
mod output_error;
mod overlay;
mod overrides;
pub mod patch;
pub mod pod;
mod probes;
pub mod quantity;
mod reinject;
mod release;
mod render_cache;
mod rights;
pub mod schema;
pub mod selector;
mod status;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the kinds of a template's values and of JSON, all others are one case"
)]
pub mod template;
mod template_data;
mod text_slots;
pub mod typing;
mod uninject;
mod value;
mod variables;
mod warnings;
pub mod yaml;
mod yaml_safe;

pub use builtin::configuration as builtin_configuration;
pub use config::Configuration;
pub use describe::Description;
pub use ids::ProxyIds;
pub use interface::{
    ConfigurationError, Injected, NativeSidecars, Origin, Outcome, OuterObject, Parameters,
    Request, Review, ReviewTrace, Source, Sources, reason,
};
