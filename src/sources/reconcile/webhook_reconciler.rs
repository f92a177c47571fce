//! Reconciles webhook configurations: watches each, and reverts changes of other clients.
//!
//! Every replica does so: all write the same, or converge to the same. Two writers with different goals must not write as fast as
//! they can, so a configuration that was repaired a few times within a minute waits before the next repair.

mod configuration;
mod goal;
mod report;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::ca_bundle::CaBundle;
use super::reconcile_status::{
    ReconcileFailure, ReconcileState, ReconcileStatus, ReconcileStatuses,
};
use super::validation::{Validation, WebhookProbe};
use super::webhook::WebhookConfiguration;
use crate::kubernetes::Cluster;
use crate::kubernetes::store;
use crate::kubernetes::{ObjectSource as _, Selection, WatchTiming, Watcher};
use crate::panics::RestartingTasks;

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
type NumberedBundle = (u64, Option<Arc<CaBundle>>);

/// Reconciles webhook configurations towards one goal.
#[derive(Debug)]
pub struct WebhookReconciler {
    configurations: Vec<String>,
    goal: Goal,
    pace: WatchTiming,
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
    /// Sets the desired bundle.
    pub fn set_bundle(&self, bundle: CaBundle) {
        self.bundle.send_modify(|(number, current)| {
            *number = number.saturating_add(1);
            *current = Some(Arc::new(bundle));
        });
    }

    /// The bundle could not be read: the last one stays in force.
    pub fn cannot_load(&self) {
        self.statuses
            .each(|status| status.failed(ReconcileFailure::LoadCaBundle));
    }

    /// Returns true if every entry of every configuration has the bundle that was given last.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        let number = self.bundle.borrow().0;
        let mut in_sync = true;
        self.statuses.each(|status| in_sync &= status.holds(number));
        in_sync && number > 0
    }

    /// Returns true if every entry of every configuration has this bundle; a configuration that is gone, as desired, has none. A bundle
    /// that was set and has not arrived here yet is not there.
    #[must_use]
    pub fn has_published(&self, bundle: &CaBundle) -> bool {
        let (number, last) = self.bundle.borrow().clone();
        let mut is_published = last.as_deref() == Some(bundle);
        self.statuses.each(|status| {
            is_published &= status.holds(number) || status.state == ReconcileState::Gone;
        });
        is_published
    }

    #[must_use]
    pub fn statuses(&self) -> Vec<ReconcileStatus> {
        self.statuses.all()
    }
}

/// The reconcilers of all configurations that have the bundle of one CA.
#[derive(Clone, Debug, Default)]
pub struct BundleReconcilers(Arc<Mutex<Vec<ReconcilerHandle>>>);

impl BundleReconcilers {
    /// Adds a reconciler, the configurations of which are waited for.
    pub fn add(&self, handle: ReconcilerHandle) {
        let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handles.push(handle);
    }

    /// Returns true if all configurations have this bundle; `None`: no reconciler writes it.
    #[must_use]
    pub fn have_published(&self, bundle: &CaBundle) -> Option<bool> {
        let handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut published = handles.iter().map(|handle| handle.has_published(bundle));
        (!handles.is_empty()).then(|| published.all(|is_published| is_published))
    }
}

impl WebhookReconciler {
    /// Reconciles the bundle alone, in configurations that other programs create.
    #[must_use]
    pub fn new(desired: DesiredState, pace: WatchTiming) -> (Self, ReconcilerHandle) {
        let goal = Goal::Bundle {
            entry: desired.entry,
        };
        Self::of(desired.configurations, goal, pace)
    }

    /// Reconciles a validating webhook's configuration, and creates it if it is missing.
    #[must_use]
    pub fn of_validation(validation: Validation, pace: WatchTiming) -> (Self, ReconcilerHandle) {
        let configurations = vec![validation.name.clone()];
        Self::of(configurations, Goal::Validation(validation), pace)
    }

    fn of(configurations: Vec<String>, goal: Goal, pace: WatchTiming) -> (Self, ReconcilerHandle) {
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

    /// Reconciles for as long as it is polled. Ends only if there is no configuration to reconcile.
    pub async fn run(self, cluster: Cluster) {
        let (to, refused) = watch::channel(false);
        let this = Arc::new(self);
        let mut tasks = RestartingTasks::new(this.pace.bounds());
        for name in &this.configurations {
            let (this, cluster) = (Arc::clone(&this), cluster.clone());
            let (name, refused) = (name.clone(), refused.clone());
            tasks.spawn(format!("the reconciler of {name}"), move || {
                let (this, cluster) = (Arc::clone(&this), cluster.clone());
                let (name, refused) = (name.clone(), refused.clone());
                async move { this.reconcile(cluster, name, refused).await }
            });
        }
        if let Some(probe) = this.probe(&cluster) {
            tasks.spawn("the probe of the webhook".to_owned(), move || {
                probe.clone().run(to.clone())
            });
        }
        tasks.ended().await;
    }

    /// Reconciles one configuration.
    async fn reconcile(&self, cluster: Cluster, name: String, refused: watch::Receiver<bool>) {
        let selection = Selection {
            name: Some(name.clone()),
            ..Selection::default()
        };
        let source = Watcher::new(cluster.clone(), selection, self.pace).of(self.goal.resource());
        let (writer, reader) = store::<WebhookConfiguration>();
        let one = ConfigurationReconciler::new(self, cluster, name, reader, refused);
        tokio::select! {
            never = source.run(writer) => match never {},
            () = one.run() => {}
        }
    }

    /// The probe that sees the webhook refuse, if the policy waits for it.
    fn probe(&self, cluster: &Cluster) -> Option<WebhookProbe> {
        match &self.goal {
            Goal::Validation(validation) if !validation.unregistered => Some(WebhookProbe {
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
