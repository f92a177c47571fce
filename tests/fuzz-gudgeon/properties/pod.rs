//! What must hold of any pod in a review. Asked by the fuzzer, and by a test with its examples.

use inject::Configuration;
use serde_json::Value;

use crate::injection;

thread_local! {
    static LOADED: Vec<Configuration> = injection::CONFIGURATIONS.map(injection::load).into();
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(pod) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    LOADED.with(|all| all.iter().for_each(|one| injection::check(one, &pod)));
}
