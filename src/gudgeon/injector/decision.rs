//! Decisions about pods: the last ones, for the page and the log, and their numbers in each minute of the last hour.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::admission::{MESSAGE_BYTES, Recent, TEXT_BYTES, micros};
use crate::log;

/// Decisions that are remembered.
const MAX_DECISIONS: usize = 200;
/// Minutes that are drawn.
pub(crate) const MINUTES: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectionOutcome {
    Injected,
    Skipped,
    Failed,
}

impl InjectionOutcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// A decision.
#[derive(Clone, Debug)]
pub(crate) struct InjectionDecision {
    pub(crate) time: SystemTime,
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) outcome: InjectionOutcome,
    pub(crate) reason: &'static str,
    pub(crate) templates: Vec<String>,
    pub(crate) version: String,
    pub(crate) native: bool,
    pub(crate) dry_run: bool,
    pub(crate) operations: usize,
    pub(crate) bytes: usize,
    pub(crate) took: Duration,
    pub(crate) warnings: Vec<String>,
    pub(crate) message: String,
}

impl InjectionDecision {
    /// Cuts the texts, since a client may send long names.
    fn clip(&mut self) {
        for text in [
            &mut self.uid,
            &mut self.namespace,
            &mut self.name,
            &mut self.owner,
        ] {
            clip(text, TEXT_BYTES);
        }
        clip(&mut self.message, MESSAGE_BYTES);
        for text in self.templates.iter_mut().chain(&mut self.warnings) {
            clip(text, TEXT_BYTES);
        }
        for list in [&mut self.templates, &mut self.warnings] {
            list.truncate(16);
            list.shrink_to_fit();
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "time": log::stamp(self.time),
            "uid": self.uid,
            "namespace": self.namespace,
            "name": self.name,
            "owner": self.owner,
            "decision": self.outcome.as_str(),
            "reason": self.reason,
            "templates": self.templates,
            "version": self.version,
            "native": self.native,
            "dryRun": self.dry_run,
            "operations": self.operations,
            "bytes": self.bytes,
            "micros": micros(self.took),
            "warnings": self.warnings,
            "message": self.message,
        })
    }
}

/// Cuts a text, and gives back the memory of its rest.
pub(crate) fn clip(text: &mut String, bytes: usize) {
    text.truncate(api::text::cut(text, bytes).len());
    text.shrink_to_fit();
}

/// Counts of one minute: injected, skipped, failed.
pub(crate) type MinuteCounts = [u64; 3];

/// The last decisions. A copy shares each of them: pages are made of one, so that no review waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct InjectionDecisions {
    last: Recent<Arc<InjectionDecision>, MAX_DECISIONS>,
    /// Minutes since 1970, with their counts, the newest last.
    minutes: VecDeque<(u64, MinuteCounts)>,
}

impl InjectionDecisions {
    pub(crate) fn add(&mut self, mut decision: InjectionDecision) {
        decision.clip();
        let now = minute(decision.time);
        let [injected, skipped, failed] = match self.minutes.back_mut() {
            // A clock that was set back counts on in the newest.
            Some((last, counts)) if *last >= now => counts,
            _ => {
                if self.minutes.len() == MINUTES {
                    self.minutes.pop_front();
                }
                self.minutes.push_back((now, MinuteCounts::default()));
                match self.minutes.back_mut() {
                    Some((_, counts)) => counts,
                    None => return,
                }
            }
        };
        *match decision.outcome {
            InjectionOutcome::Injected => injected,
            InjectionOutcome::Skipped => skipped,
            InjectionOutcome::Failed => failed,
        } += 1;
        self.last.add(Arc::new(decision));
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &InjectionDecision> {
        self.last.newest().map(|decision| &**decision)
    }

    /// Returns the counts of each minute of the last hour, oldest first.
    pub(crate) fn hour(&self, now: SystemTime) -> [MinuteCounts; MINUTES] {
        let mut hour = [MinuteCounts::default(); MINUTES];
        let now = minute(now);
        for (at, counts) in &self.minutes {
            let age = usize::try_from(now.saturating_sub(*at)).unwrap_or(usize::MAX);
            if let Some(place) = (MINUTES - 1)
                .checked_sub(age)
                .and_then(|place| hour.get_mut(place))
            {
                for (sum, count) in place.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
        }
        hour
    }
}

fn minute(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
        / 60
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(second: u64, outcome: InjectionOutcome) -> InjectionDecision {
        InjectionDecision {
            time: UNIX_EPOCH + Duration::from_secs(second),
            uid: "ü".repeat(300),
            namespace: "ns".into(),
            name: "web".into(),
            owner: String::new(),
            outcome,
            reason: "policy",
            templates: Vec::new(),
            version: String::new(),
            native: false,
            dry_run: false,
            operations: 0,
            bytes: 0,
            took: Duration::from_micros(12),
            warnings: Vec::new(),
            message: String::new(),
        }
    }

    #[test]
    fn the_last_ones_are_kept_and_clipped() {
        let mut all = InjectionDecisions::default();
        for second in 0..250 {
            all.add(decision(second, InjectionOutcome::Injected));
        }
        assert_eq!(all.newest().count(), MAX_DECISIONS);
        let newest = all.newest().next().unwrap().json();
        assert_eq!(newest["time"], "1970-01-01T00:04:09.000000Z");
        assert_eq!(newest["uid"].as_str().unwrap().len(), 256);
        assert_eq!(newest["micros"], 12);
    }

    #[test]
    fn an_hour_by_minutes() {
        let mut all = InjectionDecisions::default();
        for minute in 0..90 {
            all.add(decision(minute * 60, InjectionOutcome::Injected));
            all.add(decision(minute * 60 + 59, InjectionOutcome::Failed));
        }
        // Set back: it counts with the newest.
        all.add(decision(80 * 60, InjectionOutcome::Skipped));
        let hour = all.hour(UNIX_EPOCH + Duration::from_secs(90 * 60));
        assert_eq!(hour[MINUTES - 1], [0, 0, 0]);
        assert_eq!(hour[MINUTES - 2], [1, 1, 1]);
        assert_eq!(hour[0], [1, 0, 1]);
        let later = all.hour(UNIX_EPOCH + Duration::from_secs(900 * 60));
        assert!(later.iter().all(|minute| *minute == [0, 0, 0]));
    }
}
