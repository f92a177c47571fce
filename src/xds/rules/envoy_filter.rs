//! EnvoyFilter: patches of Envoy's messages, in order, each on what the earlier ones left.
//!
//! ```text
//! Draft ──► matching (which places) ──► list (what is done to one of several) ──► lay (merge) ──► finish
//! ```
//!
//! A patch that cannot be applied changes nothing, and is told. The patches of one proxy are bounded in the bytes that they add,
//! and in the work of adding them.

mod clusters;
mod limits;
mod list;
mod listeners;
mod matching;
mod routes;
mod side;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use api::envoy::{self, Lists};
use api::model::ObjectRef;
use api::networking::envoy_filter::patch::Operation;
use api::networking::envoy_filter::{ApplyTo, PatchContext};
use prost::{Message, Name};

use crate::common::conflict::{
    Conflict, Conflicts, PATCH_NOT_APPLIED, PATCH_WITHOUT_MATCH, TOO_LARGE,
};
use crate::finish::{Draft, Encode};
use crate::node::Kind;
use crate::scope::envoy_filters::{Patch, Patches};
use crate::view::Resource;

pub(crate) use self::clusters::keeps_eds;
pub(crate) use self::limits::PatchLimits;
#[cfg(test)]
pub(crate) use self::limits::round_up;
pub(crate) use self::side::{Direction, PatchSide};

/// Ids of patches, in order.
pub(crate) type PatchIds = Arc<[u64]>;

/// A resource that is patched.
pub(crate) trait Patched: Encode + Sized {
    /// The resource as Envoy's message.
    type EnvoyMessage: Message + Default + Name;
    /// The `applyTo` by which a patch adds such a resource.
    const ADDED_BY: ApplyTo;

    fn of(whole: Self::EnvoyMessage) -> (Arc<str>, Self);

    /// Applies one patch; false: it is removed.
    fn apply(draft: &mut Draft<Self>, patch: &Patch, one: &mut PatchBudget<'_>) -> bool;
}

/// The patches of a proxy, over resources of one type.
pub(crate) struct Patcher<'a> {
    patches: &'a Patches,
    kind: Kind,
    limits: PatchLimits,
    conflicts: RefCell<Conflicts>,
    effective: RefCell<BTreeSet<u64>>,
}

/// The work that is left for one resource, and whether it was changed.
pub(crate) struct PatchBudget<'a> {
    added: Cell<usize>,
    work: Cell<usize>,
    touched: Cell<bool>,
    /// No later patch takes a chain of the listener away, or changes what it matches.
    has_last_chains: Cell<bool>,
    conflicts: &'a RefCell<Conflicts>,
    effective: &'a RefCell<BTreeSet<u64>>,
    resource: Arc<str>,
}

impl<'a> Patcher<'a> {
    /// `resources`: how many of a type the proxy has, all together.
    pub(crate) fn new(patches: &'a Patches, kind: Kind, resources: usize) -> Self {
        Self {
            patches,
            kind,
            limits: PatchLimits::of(patches, resources),
            conflicts: RefCell::default(),
            effective: RefCell::default(),
        }
    }

    /// The limits on each resource; `None`: there are no patches.
    pub(crate) fn limits(&self) -> Option<PatchLimits> {
        (!self.patches.is_empty()).then_some(self.limits)
    }

    /// Ids of the patches that changed something, or of which something else is told.
    pub(crate) fn effective(&self) -> PatchIds {
        self.effective.borrow().iter().copied().collect()
    }

    /// Counts patches as effective that were when another one was asked for the same.
    pub(crate) fn add_effective(&self, patches: &[u64]) {
        self.effective.borrow_mut().extend(patches);
    }

    /// As [`Self::finish`], with the patches that are effective in this resource.
    pub(crate) fn finish_apart<M: Patched>(
        &self,
        draft: Draft<M>,
        direction: Direction,
    ) -> (Option<Resource>, PatchIds) {
        let others = self.effective.take();
        let resources = self.finish(draft, direction);
        let effective = self.effective();
        self.effective.replace(others);
        (resources, effective)
    }

    /// Patches that were not applied as they are written.
    pub(crate) fn lost(self) -> Vec<Conflict> {
        self.conflicts.into_inner().finish()
    }

    /// Applies all patches and encodes the result; `None`: a patch removes the resource.
    pub(crate) fn finish<M: Patched>(
        &self,
        draft: Draft<M>,
        direction: Direction,
    ) -> Option<Resource> {
        if self.patches.is_empty() {
            return Some(draft.finish());
        }
        self.finish_from(draft, direction, 0)
    }

    /// Applies the patches from `first` on, as [`Self::finish`] does.
    fn finish_from<M: Patched>(
        &self,
        mut draft: Draft<M>,
        direction: Direction,
        first: usize,
    ) -> Option<Resource> {
        let side = PatchSide::of(self.kind, direction);
        let mut work = PatchBudget {
            added: Cell::new(self.limits.added),
            work: Cell::new(self.limits.work),
            touched: Cell::new(false),
            has_last_chains: Cell::new(true),
            conflicts: &self.conflicts,
            effective: &self.effective,
            resource: draft.name.clone(),
        };
        let mut from: Vec<ObjectRef> = Vec::new();
        let patches = || {
            let all = self.patches.iter().enumerate().skip(first);
            all.filter(|(_, patch)| side.is_of(patch))
        };
        let last_on_chains = patches().filter(|(_, patch)| patch.changes_chains()).last();
        let last_on_chains = last_on_chains.map(|(at, _)| at);
        for (at, patch) in patches() {
            work.has_last_chains.set(last_on_chains <= Some(at));
            // For each patch anew: the resource names only objects that changed it.
            work.touched.set(false);
            let stays = M::apply(&mut draft, patch, &mut work);
            let is_touched = work.touched.get();
            if is_touched || !stays {
                self.effective.borrow_mut().insert(patch.id());
            }
            if !stays {
                return None;
            }
            if is_touched && !from.contains(&patch.from) {
                from.push(patch.from.clone());
            }
        }
        if from.is_empty() {
            return Some(draft.finish());
        }
        draft.from.extend(from);
        // A patch may bring maps of several entries, which `envoy-types` writes in any order.
        Some(draft.finish_canonical(&M::EnvoyMessage::full_name()))
    }

    /// Makes the resources of a type that patches add. `is_taken`: returns true if a name has a resource. A resource for both
    /// sides is added on the outbound one.
    pub(crate) fn added<M: Patched>(
        &self,
        direction: Direction,
        is_taken: impl Fn(&str) -> bool,
    ) -> Vec<Resource> {
        let side = PatchSide::of(self.kind, direction);
        let mut resources: Vec<Resource> = Vec::new();
        for (at, patch) in self.patches.iter().enumerate() {
            let is_added = patch.apply_to == M::ADDED_BY && patch.operation == Operation::Add;
            let is_here = match side {
                PatchSide::Inbound => patch.context == PatchContext::SidecarInbound,
                PatchSide::Outbound | PatchSide::Router => side.is_of(patch),
            };
            if !is_added || !is_here {
                continue;
            }
            // A patch that cannot be read is a note of its object already.
            let Ok(message) = M::EnvoyMessage::decode(&*patch.value) else {
                continue;
            };
            let (name, parts) = M::of(message);
            self.effective.borrow_mut().insert(patch.id());
            let is_known = resources.iter().any(|one| one.name == name) || is_taken(&name);
            // One without a name is not among the patches: see `missing_field`.
            if is_known {
                let why = format!("there is one of the name {name}");
                self.conflicts
                    .borrow_mut()
                    .add(patch.at, not_applied(patch, &why));
                continue;
            }
            let mut draft = Draft::new(name, parts);
            draft.from.push(patch.from.clone());
            // Earlier patches did not find the resource: only those behind the one that adds it change it.
            resources.extend(self.finish_from(draft, direction, at + 1));
        }
        resources
    }
}

impl PatchBudget<'_> {
    fn touch(&self) {
        self.touched.set(true);
    }

    /// Returns true if an action does something.
    fn is_touched_by(&self, act: impl FnOnce()) -> bool {
        let before = self.touched.replace(false);
        act();
        let is_touched = self.touched.get();
        self.touched.set(before || is_touched);
        is_touched
    }

    /// Returns true if there is room for a patch of a message so long; else it is told.
    fn has_room(&self, patch: &Patch, length: usize) -> bool {
        self.spend(patch, length + patch.value.len(), patch.value.len())
    }

    /// Returns true if there is room to read a patch of this length.
    fn has_room_to_read(&self, patch: &Patch, length: usize) -> bool {
        self.spend(patch, length, 0)
    }

    fn spend(&self, patch: &Patch, work: usize, added: usize) -> bool {
        let left = self.work.get().checked_sub(work);
        let room = self.added.get().checked_sub(added);
        if let (Some(left), Some(room)) = (left, room) {
            self.work.set(left);
            self.added.set(room);
            return true;
        }
        let message = format!(
            "patch {} of {} is not applied to {}: patches would make it too large",
            patch.at, patch.from, self.resource
        );
        let conflict = Conflict::new(TOO_LARGE, key(patch), message);
        self.report(patch, conflict.because_of(&patch.from));
        false
    }

    /// Decodes a patch's value; `None` if that failed, which is reported.
    fn value<T: Message + Default>(&self, patch: &Patch) -> Option<T> {
        let read = self.has_room(patch, 0).then(|| T::decode(&*patch.value));
        self.or_not_applied(patch, read?)
    }

    /// A message with a patch's value, or a part of it, laid over it.
    fn laid_over<T: Message + Default + Name>(
        &self,
        patch: &Patch,
        value: &[u8],
        below: &T,
    ) -> Option<T> {
        let below = below.encode_to_vec();
        if !self.has_room(patch, below.len()) {
            return None;
        }
        let lists = if patch.operation == Operation::MergeAndReplaceList {
            Lists::Replaced
        } else {
            Lists::Joined
        };
        let mut replaced = Vec::new();
        let merged = envoy::merge(&T::full_name(), &below, value, lists, &mut replaced);
        let merged = self.or_not_applied(patch, merged)?;
        let merged = self.or_not_applied(patch, T::decode(&*merged))?;
        for replacement in replaced {
            self.report_unmerged(patch, &replacement);
        }
        Some(merged)
    }

    /// Tells that a part of a patch is not merged with what there is.
    fn report_unmerged(&self, patch: &Patch, why: &dyn std::fmt::Display) {
        let message = format!(
            "patch {} of {} does not merge in {}: {why}",
            patch.at, patch.from, self.resource
        );
        let conflict = Conflict::new(PATCH_NOT_APPLIED, key(patch), message);
        self.report(patch, conflict.because_of(&patch.from));
    }

    /// A patch of which this is told is not one that matches nothing.
    fn report(&self, patch: &Patch, conflict: Conflict) {
        self.conflicts.borrow_mut().add(patch.at, conflict);
        self.effective.borrow_mut().insert(patch.id());
    }

    /// Tells that a patch does not mean a resource as its author may have thought.
    fn report_mismatch(&self, patch: &Patch, resource: &str, why: &str) {
        let message = format!(
            "patch {} of {} does not match {resource}: {why}",
            patch.at, patch.from
        );
        let conflict = Conflict::new(PATCH_NOT_APPLIED, key(patch), message);
        self.report(patch, conflict.because_of(&patch.from));
    }

    /// Tells that a patch is not applied to the resource.
    fn report_unapplied(&self, patch: &Patch, why: &str) {
        let why = format!("{}: {why}", self.resource);
        self.report(patch, not_applied(patch, &why));
    }

    fn or_not_applied<T, E: std::fmt::Display>(
        &self,
        patch: &Patch,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(result) => Some(result),
            Err(error) => {
                self.report(patch, not_applied(patch, &error.to_string()));
                None
            }
        }
    }

    /// MERGE and REPLACE of one message.
    fn change<T: Message + Default + Name>(&self, patch: &Patch, one: &mut T) {
        let is_merge = matches!(
            patch.operation,
            Operation::Merge | Operation::MergeAndReplaceList
        );
        let made = if is_merge {
            self.laid_over(patch, &patch.value, one)
        } else if patch.operation == Operation::Replace {
            self.value(patch)
        } else {
            None
        };
        if let Some(made) = made {
            *one = made;
            self.touch();
        }
    }
}

/// Adds that a patch changes nothing of any proxy that it is for.
pub(crate) fn report_without_match(patch: &Patch, conflicts: &mut Conflicts) {
    conflicts.push(PATCH_WITHOUT_MATCH, Some(&patch.from), || {
        let message = format!(
            "patch {} of {} has no effect: it matches nothing of the connected proxies that it is for",
            patch.at, patch.from
        );
        (key(patch), message)
    });
}

fn key(patch: &Patch) -> String {
    format!("{}/{} {}", patch.from.namespace, patch.from.name, patch.at)
}

fn not_applied(patch: &Patch, why: &str) -> Conflict {
    let message = format!("patch {} of {} is not applied: {why}", patch.at, patch.from);
    Conflict::new(PATCH_NOT_APPLIED, key(patch), message).because_of(&patch.from)
}
