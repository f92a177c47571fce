//! `cluster`: where objects come from, and what they come to. The one crate that talks to the Kubernetes API server and to
//! Consul, and that reads directories of YAML.
//!
//! It knows `api`, and no role: what it yields are changes, what it is given are wishes, and who makes something of them is
//! none of its business.
//!
//! From the wire upwards:
//!
//! * [`Cluster`]: an API server, by the pod's own account or by a kubeconfig. Whatever it answers is read with a bound on
//!   bytes and on time.
//! * [`Source`]: where objects of one [`Kind`] come from. [`Listed`] is the API server: listed in pages, then watched.
//! * `store`: what a source has said so far. One [`Writer`], many [`Reader`]s; a reader gets [`Changes`], and a list that
//!   was read anew is one of them.
//! * `catalogue`: each object of a source once, in its last good version, and what became of each that is written.
//! * [`config`]: sources of configuration (files, API servers), checked, in last good versions, with what is wrong.
//! * [`registry`]: sources of services (API servers, files, Consul, what a request put into memory) as one
//!   [`World`](api::model::World), with what each change means to proxies.
//! * [`Keeper`]: keeps webhook configurations, or the CA bundle in them. Nothing else is ever written.

#![forbid(unsafe_code)]

mod answer;
mod backoff;
mod bundle;
mod catalogue;
pub mod config;
mod connect;
mod decide;
mod disk;
#[cfg(test)]
#[path = "../../tests/support/examples.rs"]
mod examples;
mod failure;
#[cfg(test)]
mod fake;
mod keeper;
mod kind;
mod ledger;
mod lines;
mod listed;
pub mod registry;
mod repeats;
mod served;
mod store;
mod tree;
mod validation;
mod webhook;

/// Of a server where nobody has installed the kinds of rules: a first mistake, after which every rule is refused by kubectl.
const NO_KINDS: &str = "no Istio kinds are installed in this cluster: it can hold no rules before it has their CustomResourceDefinitions";

pub use bundle::{Bundle, OWN_CA_NAME};
pub use connect::{Access, CannotConnect, Cluster, Version};
pub use disk::Disk;
pub use failure::{Action, Cause, Failure};
pub use keeper::{Handle, Keeper, Order};
pub use kind::{Key, Kind, Metadata, Resource};
pub use ledger::{Failed, Standing, State};
pub use listed::{Listed, Pace, Selection, Source};
pub use store::{Change, Changes, Freshness, Reader, Writer, store};
pub use validation::{Service, Validation};
pub use webhook::{Webhook, WebhookConfiguration};
