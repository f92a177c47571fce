//! Keeps webhook configurations: looks at each as it changes, and mends what is another's.
//!
//! Every replica does so, and none leads: what they write is the same, or grows to the same. The one thing that must not
//! happen is that two who want different things write as fast as they can, so a configuration that was mended a few times
//! within a minute waits before it is mended again.

mod configuration;
mod goal;
mod report;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bundle::Bundle;
use crate::connect::Cluster;
use crate::reconcile_status::{ReconcileFailure, ReconcileStatus, ReconcileStatuses};
use crate::store::store;
use crate::validation::{Refusal, Validation};
use crate::watcher::{ObjectSource as _, Pace, Selection, Watcher};
use crate::webhook::WebhookConfiguration;

use configuration::ConfigurationReconciler;
use goal::Goal;

/// The desired CA bundle of configurations that other programs create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredState {
    /// Names of MutatingWebhookConfigurations.
    pub configurations: Vec<String>,
    /// Entries of this name, or of names that end in a dot and this.
    pub entry: String,
}

/// A bundle, and which one it is of all there were.
type NumberedBundle = (u64, Option<Arc<Bundle>>);

#[derive(Debug)]
pub struct Reconciler {
    configurations: Vec<String>,
    goal: Goal,
    pace: Pace,
    bundle: watch::Receiver<NumberedBundle>,
    statuses: ReconcileStatuses,
}

/// The handle of a running reconciler: it takes the desired bundle, and gives the status.
#[derive(Clone, Debug)]
pub struct ReconcilerHandle {
    bundle: watch::Sender<NumberedBundle>,
    statuses: ReconcileStatuses,
}

impl ReconcilerHandle {
    /// From now on this is to be in the configurations.
    pub fn keep(&self, bundle: Bundle) {
        self.bundle.send_modify(|(number, kept)| {
            *number = number.saturating_add(1);
            *kept = Some(Arc::new(bundle));
        });
    }

    /// The bundle could not be read: the last one stays in force.
    pub fn cannot_load(&self) {
        self.statuses
            .each(|status| status.failed(ReconcileFailure::LoadCaBundle));
    }

    /// Whether the bundle that was last given is in every entry of every configuration.
    #[must_use]
    pub fn held(&self) -> bool {
        let number = self.bundle.borrow().0;
        let mut held = true;
        self.statuses.each(|status| held &= status.holds(number));
        held && number > 0
    }

    #[must_use]
    pub fn statuses(&self) -> Vec<ReconcileStatus> {
        self.statuses.all()
    }
}

impl Reconciler {
    /// Reconciles the bundle alone, in configurations that other programs create.
    #[must_use]
    pub fn new(desired: DesiredState, pace: Pace) -> (Self, ReconcilerHandle) {
        let goal = Goal::Bundle {
            entry: desired.entry,
        };
        Self::of(desired.configurations, goal, pace)
    }

    /// A configuration that is made where there is none.
    #[must_use]
    pub fn of_validation(validation: Validation, pace: Pace) -> (Self, ReconcilerHandle) {
        let configurations = vec![validation.name.clone()];
        Self::of(configurations, Goal::Validation(validation), pace)
    }

    fn of(configurations: Vec<String>, goal: Goal, pace: Pace) -> (Self, ReconcilerHandle) {
        let (sender, receiver) = watch::channel((0, None));
        let statuses = ReconcileStatuses::new(&configurations);
        let handle = ReconcilerHandle {
            bundle: sender,
            statuses: statuses.clone(),
        };
        let reconciler = Self {
            configurations,
            goal,
            pace,
            bundle: receiver,
            statuses,
        };
        (reconciler, handle)
    }

    /// Keeps, for as long as it is polled. Ends only when there is nothing to keep.
    pub async fn run(self, cluster: Cluster) {
        let (seen, refused) = watch::channel(false);
        let mut kept = JoinSet::new();
        for name in &self.configurations {
            let selection = Selection {
                name: Some(name.clone()),
                ..Selection::default()
            };
            let source =
                Watcher::new(cluster.clone(), selection, self.pace).of(self.goal.resource());
            let (writer, reader) = store::<WebhookConfiguration>();
            let one = ConfigurationReconciler::new(
                &self,
                cluster.clone(),
                name.clone(),
                reader,
                refused.clone(),
            );
            kept.spawn(async move {
                tokio::select! {
                    never = source.run(writer) => match never {},
                    () = one.run() => {}
                }
            });
        }
        let watching = async {
            if let Some(refusal) = self.refusal(&cluster) {
                refusal.run(seen).await;
            }
        };
        tokio::join!(watching, async {
            while kept.join_next().await.is_some() {}
        });
    }

    /// The probe that sees the webhook refuse, if the policy waits for it.
    fn refusal(&self, cluster: &Cluster) -> Option<Refusal> {
        match &self.goal {
            Goal::Validation(validation) if !validation.unregistered => Some(Refusal {
                cluster: cluster.clone(),
                service: validation.service.clone(),
                within: self.pace.request,
                configuration: validation.name.clone(),
                statuses: self.statuses.clone(),
            }),
            Goal::Validation(_) | Goal::Bundle { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
