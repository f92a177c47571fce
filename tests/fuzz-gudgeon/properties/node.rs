//! What must hold of a proxy's node, whatever its bytes are. Asked by the fuzzer, and by a test with its examples.

use envoy_types::pb::envoy::config::core::v3 as core;
use prost::Message;
use xds::node::Node;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(said) = core::Node::decode(bytes) else {
        return;
    };
    match Node::read(Some(&said)) {
        Ok(node) => {
            assert_eq!(*node.id, said.id);
            assert!(!node.addresses.is_empty());
            let mut once = node.addresses.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), node.addresses.len());
            assert!(!node.namespace.is_empty() && !node.name.is_empty());
            assert!(node.warnings.len() <= 2);
            node.warnings.iter().for_each(|words| is_short(words));
            assert_eq!(
                Node::read(Some(&said)),
                Ok(node),
                "it is read alike each time"
            );
        }
        Err(bad) => {
            let words = bad.to_string();
            is_short(&words);
            assert!(words.starts_with("node "), "{words}");
        }
    }
}

/// For the log and for the client: what is quoted is cut.
fn is_short(words: &str) {
    assert!(!words.contains(char::is_control), "{words:?}");
    assert!(words.len() <= 6000, "{}", words.len());
}
