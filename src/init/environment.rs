//! The variables that the agent was started with, read once.
//!
//! `proxyMetadata` of `PROXY_CONFIG` stands in for variables that are not set, so it is laid under them here and nobody
//! else needs to know.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

/// A snapshot.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(OsString, OsString)>,
}

impl Environment {
    /// Of the process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(std::env::vars_os())
    }

    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            variables: variables.into_iter().collect(),
        }
    }

    /// The value of `name`; one that is empty or blank counts as not set, as it does to pilot-agent.
    ///
    /// # Errors
    /// The value, when it is not UTF-8.
    pub fn get(&self, name: &str) -> Result<Option<&str>, &OsStr> {
        let variable = self.variables.iter().find(|(n, _)| n == name);
        let Some((_, value)) = variable else {
            return Ok(None);
        };
        let text = value.to_str().ok_or(value.as_os_str())?.trim();
        Ok((!text.is_empty()).then_some(text))
    }

    #[must_use]
    pub fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    /// Sets what is not set yet.
    pub(crate) fn stand_in(&mut self, name: &str, value: &str) {
        if !self.variables.iter().any(|(n, _)| n == name) {
            self.variables.push((name.into(), value.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn values() {
        let odd = OsString::from_vec(vec![0xff]);
        let mut environment = Environment::new([
            ("A".into(), "1\n".into()),
            ("EMPTY".into(), " ".into()),
            ("ODD".into(), odd.clone()),
        ]);
        assert_eq!(environment.get("A"), Ok(Some("1")));
        assert_eq!(environment.get("EMPTY"), Ok(None));
        assert_eq!(environment.get("NONE"), Ok(None));
        assert_eq!(environment.get("ODD"), Err(odd.as_os_str()));
        environment.stand_in("A", "2");
        environment.stand_in("B", "3");
        assert_eq!(environment.get("A"), Ok(Some("1")));
        assert_eq!(environment.get("B"), Ok(Some("3")));
    }
}
