//! What a configuration says of itself, for whoever looks in: no text of a template, no value.

use crate::config::{Configuration, Mode};

/// Policy, delimiters, and the templates with their versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub policy: &'static str,
    /// Left and right.
    pub delimiters: (String, String),
    /// Name and version.
    pub templates: Vec<(String, String)>,
}

impl Configuration {
    #[must_use]
    pub fn describe(&self) -> Description {
        let Mode::Fragment { template, version } = &self.mode;
        let delimiters = template.delimiters();
        Description {
            policy: if self.policy.enabled {
                "enabled"
            } else {
                "disabled"
            },
            delimiters: (delimiters.left.clone(), delimiters.right.clone()),
            templates: vec![(template.name().to_owned(), version.clone())],
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Configuration, Parameters, Sources};

    #[test]
    fn names_and_versions() {
        let sources = Sources {
            config: Some("policy: disabled\ntemplate: 'containers: []'\n"),
            ..Sources::default()
        };
        let (configuration, _) = Configuration::load(sources, Parameters::default()).unwrap();
        let found = configuration.describe();
        assert_eq!(found.policy, "disabled");
        assert_eq!(found.delimiters, ("[[".to_owned(), "]]".to_owned()));
        let [(_, version)] = &found.templates[..] else {
            panic!("{found:?}")
        };
        assert_eq!(version.len(), 64);
    }
}
