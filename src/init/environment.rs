//! The variables that the agent was started with, read once.
//!
//! `proxyMetadata` of `PROXY_CONFIG` stands in for variables that are not set, so it is laid under them here and nobody
//! else needs to know.

#![forbid(unsafe_code)]

use std::ffi::OsStr;

use crate::cli::Word;

/// A snapshot, of what lies where the process has it.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(Word, Word)>,
}

impl Environment {
    /// Reads the environment of the process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(sys::variables())
    }

    #[must_use]
    pub const fn new(variables: Vec<(Word, Word)>) -> Self {
        Self { variables }
    }

    /// The value of `name`; one that is empty or blank counts as not set, as it does to pilot-agent.
    ///
    /// # Errors
    /// The value, when it is not UTF-8.
    pub fn get(&self, name: &str) -> Result<Option<&str>, &OsStr> {
        let variable = self.variables.iter().find(|(n, _)| *n == name);
        let Some((_, value)) = variable else {
            return Ok(None);
        };
        let text = value.to_str().ok_or(*value)?.trim();
        Ok((!text.is_empty()).then_some(text))
    }

    #[must_use]
    pub fn variables(&self) -> &[(Word, Word)] {
        &self.variables
    }

    /// Sets what is not set yet: a few texts that are never freed.
    pub(crate) fn stand_in(&mut self, name: &str, value: &str) {
        if !matches!(self.get(name), Ok(None)) {
            return;
        }
        let kept = |text: &str| -> Word { Box::leak(OsStr::new(text).into()) };
        match self.variables.iter_mut().find(|(n, _)| *n == name) {
            Some((_, blank)) => *blank = kept(value),
            None => self.variables.push((kept(name), kept(value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn values() {
        let odd = OsStr::from_bytes(&[0xff]);
        let mut environment = Environment::new(vec![
            ("A".as_ref(), "1\n".as_ref()),
            ("EMPTY".as_ref(), " ".as_ref()),
            ("ODD".as_ref(), odd),
        ]);
        assert_eq!(environment.get("A"), Ok(Some("1")));
        assert_eq!(environment.get("EMPTY"), Ok(None));
        assert_eq!(environment.get("NONE"), Ok(None));
        assert_eq!(environment.get("ODD"), Err(odd));
        environment.stand_in("A", "2");
        environment.stand_in("B", "3");
        environment.stand_in("EMPTY", "4");
        environment.stand_in("ODD", "5");
        assert_eq!(environment.get("A"), Ok(Some("1")));
        assert_eq!(environment.get("B"), Ok(Some("3")));
        // Blank is not set; and there are not two of a name.
        assert_eq!(environment.get("EMPTY"), Ok(Some("4")));
        assert_eq!(environment.get("ODD"), Err(odd));
        assert_eq!(environment.variables().len(), 4);
    }
}
