//! The description of a configuration for status pages: no text of a template, no value.

use crate::config::{Configuration, Mode};
use crate::template::Template;

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
        let (templates, delimiters) = match &self.mode {
            Mode::Fragment {
                template, version, ..
            } => (
                vec![(template.name().to_owned(), version.clone())],
                Some(template.delimiters()),
            ),
            Mode::Overlay(template_set) => (
                template_set.versions().collect(),
                template_set.templates().first().map(Template::delimiters),
            ),
        };
        let delimiters = delimiters.map(|found| (found.left.clone(), found.right.clone()));
        Description {
            policy: if self.policy.enabled {
                "enabled"
            } else {
                "disabled"
            },
            delimiters: delimiters.unwrap_or_default(),
            templates,
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
        let description = configuration.describe();
        assert_eq!(description.policy, "disabled");
        assert_eq!(description.delimiters, ("[[".to_owned(), "]]".to_owned()));
        let [(_, version)] = &description.templates[..] else {
            panic!("{description:?}")
        };
        assert_eq!(version.len(), 64);
    }
}
