//! What must hold of a resource's body, whatever its bytes are: the first says which kind it is of. Asked by the fuzzer, and
//! by a test with its examples.

use api::config::{Check, KINDS, Object, Severity, read_message};
use api::wire;

pub(crate) fn check(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else {
        return;
    };
    let row = KINDS
        .get(usize::from(*first) % KINDS.len())
        .expect("the remainder is an index");
    let Ok(object) = Object::of_resource(row, "ns/name", body.to_vec().into()) else {
        return;
    };
    assert_eq!(object.full_name(), "ns/name");
    // What is read comes to rest: from its JSON on, nothing changes any more.
    let sent = wire::encode(row.message, &object.spec);
    let again = wire::decode(row.message, &sent).expect("our own bytes are read");
    assert_eq!(wire::encode(row.message, &again), sent);
    let (read, findings) = read_message(row.message, &again, Severity::Error);
    if findings
        .iter()
        .all(|finding| finding.severity == Severity::Warning)
    {
        assert_eq!(wire::encode(row.message, &read), sent);
    }
    if row.check == Check::Full {
        for finding in api::config::check_rules(&object) {
            assert!(finding.path.starts_with("spec") || finding.path.starts_with("metadata"));
            assert!(!finding.message.is_empty());
        }
    }
}
