//! The fake's responses to writes.

use serde_json::{Value, json};

use super::Fake;
use super::wire::{FakeRequest, refused, status};
use crate::reconcile::ProbeToken;

/// The webhook that refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    Ours,
    Anothers,
}

impl Fake {
    /// Returns an object, if it exists.
    pub(crate) fn find_in(&self, kind: &str, name: &str) -> Option<Value> {
        let place = (kind.to_owned(), name.to_owned());
        self.state.lock().unwrap().objects.get(&place).cloned()
    }

    /// Makes this program's webhook refuse objects that are created by a dry run.
    pub(crate) fn denies(&self) {
        self.change(|state| state.denies = Some(Denial::Ours));
    }

    /// Makes another program's webhook refuse them.
    pub(crate) fn another_denies(&self) {
        self.change(|state| state.denies = Some(Denial::Anothers));
    }

    pub(super) fn create(&self, asked: &FakeRequest) -> (u16, Value) {
        let object: Value = serde_json::from_slice(&asked.body).unwrap();
        if asked.query.contains("dryRun=All") {
            let denies = self.state.lock().unwrap().denies;
            if let Some(denial) = denies {
                let service = match denial {
                    Denial::Ours => "istio-galley",
                    Denial::Anothers => "another-galley",
                };
                let repeated =
                    ProbeToken::of(&object).map(|token| token.repeated_by("istio-system", service));
                let message = format!(
                    "admission webhook \"validation.istio.io\" denied the request: no; {}",
                    repeated.unwrap_or_default()
                );
                let refused = json!({"kind": "Status", "message": message, "code": 400});
                return (400, refused);
            }
            return (201, object);
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if self.find_in(&asked.kind, &name).is_some() {
            return (409, refused(409, "AlreadyExists"));
        }
        self.put_in(&asked.kind, object);
        (201, self.find_in(&asked.kind, &name).unwrap())
    }

    pub(super) fn remove(&self, asked: &FakeRequest) -> (u16, Value) {
        if self.find_in(&asked.kind, &asked.name).is_none() {
            return (404, status(404));
        }
        self.delete_in(&asked.kind, &asked.name);
        (200, json!({"kind": "Status", "status": "Success"}))
    }
}
