//! What clients make the log say, all of them together: whoever reaches the port may begin as many streams as he likes.

use crate::seldom::Seldom;

#[derive(Debug)]
pub(crate) struct Lines {
    /// What is odd about a node.
    pub(crate) nodes: Seldom,
    /// Types that nobody serves.
    pub(crate) unknown: Seldom,
    pub(crate) refusals: Seldom,
    /// Such as do not read.
    pub(crate) slow: Seldom,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            nodes: Seldom::new(100),
            unknown: Seldom::new(20),
            refusals: Seldom::new(100),
            slow: Seldom::new(20),
        }
    }
}
