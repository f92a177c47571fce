//! The properties of a set of keys that an issuer publishes, whatever its bytes are. The fuzzer asks for them, and a test with its
//! examples does.

use api::security::{KeySet, MAX_KEYS};
use serde_json::Value;

/// Members of a JSON Web Key that are private (RFC 7518, 6.2.2 and 6.3.2).
const PRIVATE: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "oth"];

/// Bytes of a set as proxies read it: each of 64 KiB may be an escape of six.
const LONGEST: usize = 6 * (64 << 10) + MAX_KEYS * 64;

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let inline = KeySet::inline(&text);
    if let Ok(published) = KeySet::published(&text) {
        assert!(keys_of(&published).iter().all(|key| key.get("k").is_none()));
        let inline = inline
            .as_ref()
            .expect("a published set can be written inline");
        assert!(published.keys() <= inline.keys());
    }
    if let Ok(set) = inline {
        let again = KeySet::inline(set.json()).expect("what was written can be read");
        assert!(again.keys() >= set.keys());
        assert!(keys_of(&set).len() <= MAX_KEYS + 1);
    }
}

/// The keys as proxies read them.
fn keys_of(set: &KeySet) -> Vec<Value> {
    assert!((1..=MAX_KEYS).contains(&set.keys()));
    assert!(set.json().len() <= LONGEST, "{}", set.json().len());
    let json: Value = serde_json::from_str(set.json()).expect("it is JSON");
    let keys = json["keys"].as_array().expect("it has keys").clone();
    let is_private = |key: &Value| PRIVATE.iter().any(|name| key.get(name).is_some());
    assert!(!keys.iter().any(is_private));
    keys
}
