//! What admission webhooks share: a review taken in with bounds, read as far as it can be read, and answered in its own version.

mod details;
mod group;
mod object;
mod post;
pub(crate) mod review;

pub(crate) use object::strict;

pub(crate) use group::Group;
pub(crate) use post::{Judged, Taken, Unjudged, take};
pub(crate) use review::{Cause, Flaw, Manner, Question, Says, cut};
