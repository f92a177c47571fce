//! What admission webhooks share: a review taken in with bounds, read as far as it can be read, and answered in its own version.

mod post;
pub(crate) mod review;

pub(crate) use post::{Taken, answered, take};
pub(crate) use review::{Question, Says};
