//! The views of a stream, one for each of the moments that matter.

use std::sync::Arc;

use super::{BuildPanic, Lookup, catch_panic};
use crate::view::{Type, View};

/// The views of the three moments.
#[derive(Debug)]
pub(super) struct Views {
    pub(super) latest: Arc<dyn View>,
    pub(super) rolling: Arc<dyn View>,
    /// The view of listeners and routes.
    pub(super) published: Arc<dyn View>,
}

impl Views {
    /// The resource of a name. One that the newer view has lost stays as it was until its cluster or listener goes.
    pub(super) fn get(&self, kind: Type, name: &str) -> Lookup {
        let views: &[&Arc<dyn View>] = match kind {
            Type::Cluster => &[&self.rolling],
            Type::Endpoint => &[&self.latest, &self.rolling, &self.published],
            Type::Listener => &[&self.published],
            // A listener that was sent may name what only the push under way has.
            Type::Route | Type::Secret => &[&self.published, &self.rolling],
        };
        let mut asked: Option<&Arc<dyn View>> = None;
        for view in views {
            if asked.is_some_and(|asked| Arc::ptr_eq(asked, view)) {
                continue;
            }
            if let Some(resource) = catch_panic(|| view.get(kind, name))? {
                return Ok(Some(resource));
            }
            asked = Some(view);
        }
        Ok(None)
    }

    /// The string that all share who have this name.
    pub(super) fn name(&self, kind: Type, name: &str) -> Result<Option<Arc<str>>, BuildPanic> {
        for view in [&self.latest, &self.rolling, &self.published] {
            if let Some(name) = catch_panic(|| view.name(kind, name))? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the shared string of a name; a string of its own where there is nothing of that name.
    pub(super) fn shared(&self, kind: Type, name: &str) -> Arc<str> {
        let shared = self.name(kind, name).ok().flatten();
        shared.unwrap_or_else(|| name.into())
    }

    /// Returns true if a name has something; nothing where that cannot be made.
    pub(super) fn has(&self, kind: Type, name: &str) -> bool {
        matches!(self.get(kind, name), Ok(Some(_)))
    }
}
