//! The sources of configuration. Each sends the engine its objects, changes, findings and staleness; no other module knows
//! their types.

mod cluster;
mod files;

use sources::catalogue::{EntryChange, EntryId};

use super::processing::TransformInput;

pub(super) use self::cluster::ClusterSource;
pub(super) use files::FileSource;

type ObjectUpdate = (EntryId, Option<TransformInput>);

/// Converts changes to the engine's form.
fn updates(changes: Vec<EntryChange>) -> Vec<ObjectUpdate> {
    let changes = changes.into_iter().filter_map(|change| match change {
        EntryChange::Set(id, entry, _) => Some((id, Some(TransformInput::of(&entry)))),
        // Sinks do not see where an object is written.
        EntryChange::Moved(..) => None,
        EntryChange::Gone(id) => Some((id, None)),
    });
    changes.collect()
}
