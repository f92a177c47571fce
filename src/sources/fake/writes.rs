//! The fake's responses to writes.

use serde_json::{Value, json};

use super::Fake;
use super::wire::{FakeRequest, refused, status};

impl Fake {
    /// Returns an object, if it exists.
    pub(crate) fn find_in(&self, kind: &str, name: &str) -> Option<Value> {
        let place = (kind.to_owned(), name.to_owned());
        self.state.lock().unwrap().objects.get(&place).cloned()
    }

    /// Makes a webhook refuse objects that are created by a dry run.
    pub(crate) fn denies(&self) {
        self.change(|state| state.denies = true);
    }

    pub(super) fn create(&self, asked: &FakeRequest) -> (u16, Value) {
        let object: Value = serde_json::from_slice(&asked.body).unwrap();
        if asked.query.contains("dryRun=All") {
            if self.state.lock().unwrap().denies {
                let message = "admission webhook \"validation.istio.io\" denied the request: no";
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
