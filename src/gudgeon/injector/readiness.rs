//! Readiness of the injector, with its reasons.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::log;

#[derive(Debug, Default)]
pub(crate) struct InjectorReadiness(Mutex<InjectorReadinessState>);

#[derive(Debug, Default)]
struct InjectorReadinessState {
    draining: bool,
    serving: bool,
    not_after: Option<SystemTime>,
}

impl InjectorReadiness {
    fn with<T>(&self, change: impl FnOnce(&mut InjectorReadinessState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn serves(&self) {
        self.with(|state| state.serving = true);
    }

    pub(crate) fn drains(&self) {
        self.with(|state| state.draining = true);
    }

    /// Sets the expiry of the served certificate.
    pub(crate) fn ends(&self, not_after: SystemTime) {
        self.with(|state| state.not_after = Some(not_after));
    }

    /// `None`: ready.
    pub(crate) fn why_not_ready(&self) -> Option<String> {
        self.with(|state| {
            if state.draining {
                Some("draining".to_owned())
            } else if !state.serving {
                Some("starting".to_owned())
            } else {
                let end = state.not_after.filter(|end| *end <= SystemTime::now())?;
                Some(format!(
                    "the certificate has expired at {}",
                    log::stamp(end)
                ))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_or_why_not() {
        let readiness = InjectorReadiness::default();
        assert_eq!(readiness.why_not_ready().as_deref(), Some("starting"));
        readiness.serves();
        assert_eq!(readiness.why_not_ready(), None);
        readiness.ends(SystemTime::UNIX_EPOCH);
        let why = readiness.why_not_ready().unwrap();
        assert!(why.contains("expired at 1970-01-01"), "{why}");
        readiness.drains();
        assert_eq!(readiness.why_not_ready().as_deref(), Some("draining"));
    }
}
