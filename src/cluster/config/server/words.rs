//! What a server is asked, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::entry::Change;
use crate::config::plain::Usable;
use crate::config::report::Report;
use crate::watcher::Pace;

/// What is read, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    pub usable: Usable,
    /// Services, what is behind them, Pods and Nodes, too.
    pub services: bool,
    /// What is wrong with an object is written into its status. It takes the right to.
    pub analysis: bool,
    pub pace: Pace,
    /// When a server is asked again for a kind of its own that it does not have.
    pub look_again: Duration,
}

impl Settings {
    #[must_use]
    pub fn new(usable: Usable, services: bool) -> Self {
        Self {
            usable,
            services,
            analysis: false,
            pace: Pace {
                first: Duration::from_secs(1),
                most: Duration::from_secs(30),
                ..Pace::default()
            },
            look_again: Duration::from_secs(60),
        }
    }
}

/// What was heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// By name.
    pub changes: Vec<Change>,
    /// The same pointer as before where nothing is new.
    pub report: Arc<Report>,
    /// Every kind was listed once.
    pub synced: bool,
    /// Kinds that were not listed yet, as roles have them.
    pub missing: Vec<String>,
    /// Since when the server is not heard, and why.
    pub stale: Option<(Instant, String)>,
    /// Objects that were judged so far, and those of them that were broken.
    pub judged: u64,
    pub broken: u64,
}
