//! The memory that a node takes: clients choose their nodes, so that those of one address have a bound.

use super::{Files, Node};

/// Bytes of memory that a label takes beside its texts: two counted strings, and their places in a map.
const LABEL_BYTES: usize = 128;
/// Bytes of memory of the other fields of a node, most of which are short.
const FIXED_BYTES: usize = 1 << 10;

impl Node {
    /// Returns about the bytes of memory that a stream keeps of the node.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| key.len() + value.len() + LABEL_BYTES);
        let of_files = |files: &Files| files.chain.len() + files.key.len() + files.root.len();
        let texts = [
            &self.id,
            &self.name,
            &self.namespace,
            &self.domain,
            &self.version,
            &self.proxy_version,
        ];
        let optional = [&self.network, &self.account].into_iter().flatten();
        let texts = texts.into_iter().chain(optional).map(|text| text.len());
        let warnings = self.warnings.iter().map(String::len);
        let numbers = size_of_val(&*self.addresses) + size_of_val(&*self.ports);
        let variable: usize = labels.chain(texts).chain(warnings).sum();
        FIXED_BYTES + numbers + of_files(&self.server) + of_files(&self.client) + variable
    }
}
