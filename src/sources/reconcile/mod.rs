//! Reconciles desired states with an API server: webhook configurations, and messages in the `status` of objects.
//!
//! There is no leader election, and no Lease: each replica writes the same or converges to the same, and writes nothing that is up to
//! date. So a replica needs no other one, and an API server that is away has no leader to lose.
//!
//! * `webhook`: webhook configurations. `ca_bundle`: the CA bundle that they are to have. `ca_bundle_patch`: the patch that one
//!   needs.
//! * `probe_token`: the token that identifies a refusal of this program. `validation`: the configuration of the
//!   webhook that checks rules.
//! * `reconcile_status`: the state of each configuration. `webhook_reconciler`: the [`WebhookReconciler`] that keeps them.
//! * `status_writer`: messages about objects, written into their `status`.

mod ca_bundle;
mod ca_bundle_patch;
mod probe_token;
mod reconcile_status;
mod status_writer;
mod validation;
mod webhook;
mod webhook_reconciler;

pub use crate::kubernetes::Subject;
pub use ca_bundle::{CaBundle, OWN_CA_NAME};
pub use probe_token::ProbeToken;
pub use reconcile_status::{ReconcileFailure, ReconcileState, ReconcileStatus};
pub use status_writer::{DesiredMessages, ObjectMessages, write_statuses};
pub use validation::{ServiceReference, Validation};
pub use webhook::{Webhook, WebhookConfiguration};
pub use webhook_reconciler::{
    BundleReconcilers, DesiredState, ReconcilerHandle, WebhookReconciler,
};
