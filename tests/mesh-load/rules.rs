//! The directory that galley serves: one file for each VirtualService.

use std::path::PathBuf;

use crate::Failure;

/// A directory of VirtualServices.
#[derive(Clone, Debug)]
pub(crate) struct Rules(PathBuf);

impl Rules {
    pub(crate) fn new(path: &str) -> Self {
        Self(path.into())
    }

    pub(crate) fn write(&self, rules: usize) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.0)?;
        (0..rules).try_for_each(|rule| self.put(rule, 0))
    }

    /// Writes the rule as of the given change.
    pub(crate) fn put(&self, rule: usize, change: usize) -> Result<(), Failure> {
        let name = short(rule);
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: load}}\n\
             spec:\n  hosts: [{name}.load.svc.cluster.local]\n  http:\n  - timeout: 5s\n    route:\n    \
             - destination: {{host: {name}.load.svc.cluster.local, subset: {subset}}}\n",
            subset = subset(change),
        );
        // In one step, as an editor or a kubelet does it.
        let new = self.0.join(format!(".{name}.new"));
        std::fs::write(&new, text)?;
        Ok(std::fs::rename(new, self.0.join(format!("{name}.yaml")))?)
    }
}

fn short(rule: usize) -> String {
    format!("rule-{rule:05}")
}

/// As MCP names it.
pub(crate) fn name(rule: usize) -> String {
    format!("load/{}", short(rule))
}

/// Returns the subset that a change adds. No name is a prefix of another.
pub(crate) fn subset(change: usize) -> String {
    format!("turn-{change:05}")
}
