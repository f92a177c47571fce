//! Overlay templates by name: those that a configuration has, its aliases, and which of them a pod gets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::render_cache::RenderCache;
use crate::template::{Template, version};

/// The default template.
pub(crate) const SIDECAR: &str = "sidecar";

/// Templates in Istio's own configuration that its gateway controller prints, for other data. Pods do not choose them.
pub(crate) const OF_GATEWAYS: [&str; 3] = ["waypoint", "kube-gateway", "agentgateway"];

#[derive(Debug)]
pub(crate) struct TemplateSet {
    /// The templates in the file's order.
    templates: Vec<Template>,
    aliases: BTreeMap<String, Vec<String>>,
    /// The templates of pods that choose none.
    defaults: Vec<String>,
    /// Hashes of the usual choices: the defaults, each alias, each template.
    versions: BTreeMap<Vec<String>, String>,
    /// Their last outputs.
    pub(crate) render_cache: RenderCache<Value>,
}

/// The templates that a pod gets, each once.
#[derive(Debug)]
pub(crate) struct SelectedTemplates<'a> {
    pub(crate) templates: Vec<&'a Template>,
    pub(crate) version: String,
}

impl TemplateSet {
    /// Refuses a name that no template and no alias has: without its defaults no pod could be injected.
    pub(crate) fn new(
        templates: Vec<Template>,
        aliases: BTreeMap<String, Vec<String>>,
        defaults: Option<Vec<String>>,
    ) -> Result<Self, String> {
        let mut template_set = Self {
            templates,
            aliases,
            defaults: Vec::new(),
            versions: BTreeMap::new(),
            render_cache: RenderCache::default(),
        };
        for (alias, names) in &template_set.aliases {
            for name in names {
                template_set
                    .template(name)
                    .map_err(|cause| format!("aliases: {alias}: {cause}"))?;
            }
        }
        let defaults = defaults.unwrap_or_else(|| vec![SIDECAR.to_owned()]);
        template_set
            .resolve(defaults.iter().map(String::as_str))
            .map_err(|cause| format!("defaultTemplates: {cause}"))?;
        template_set.defaults = defaults;
        let choices: Vec<Vec<String>> = std::iter::once(template_set.defaults.clone())
            .chain(template_set.aliases.keys().map(|name| vec![name.clone()]))
            .chain(
                template_set
                    .templates
                    .iter()
                    .map(|one| vec![one.name().to_owned()]),
            )
            .collect();
        for choice in choices {
            let Ok(chosen) = template_set.resolve(choice.iter().map(String::as_str)) else {
                continue;
            };
            let of = template_set.version_of(&chosen);
            let names = chosen
                .iter()
                .map(|template| template.name().to_owned())
                .collect();
            template_set.versions.insert(names, of);
        }
        Ok(template_set)
    }

    pub(crate) fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Iterates over each template's name and version.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (String, String)> {
        let all = self.templates.iter();
        all.map(|one| (one.name().to_owned(), self.version_of(&[one])))
    }

    /// Returns the templates of a pod with this `annotation`, or without.
    pub(crate) fn choose(&self, annotation: Option<&str>) -> Result<SelectedTemplates<'_>, String> {
        let templates = match annotation {
            Some(annotation) => self.resolve(annotation.split(',').map(str::trim))?,
            None => self
                .resolve(self.defaults.iter().map(String::as_str))
                .map_err(|cause| format!("defaultTemplates: {cause}"))?,
        };
        let version = self.version_of(&templates);
        Ok(SelectedTemplates { templates, version })
    }

    fn resolve<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<Vec<&Template>, String> {
        let mut seen = BTreeSet::new();
        let mut templates = Vec::new();
        for name in names {
            let members = match self.aliases.get(name) {
                Some(members) => members.iter().map(String::as_str).collect(),
                None => vec![name],
            };
            for name in members {
                let template = self.template(name)?;
                if seen.insert(template.name()) {
                    templates.push(template);
                }
            }
        }
        Ok(templates)
    }

    fn template(&self, name: &str) -> Result<&Template, String> {
        let template = self.templates.iter().find(|known| known.name() == name);
        template.ok_or_else(|| {
            let templates = self.templates.iter().map(Template::name);
            let names: BTreeSet<&str> = templates
                .chain(self.aliases.keys().map(String::as_str))
                .collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            format!("no template {name:?}, known: {names}")
        })
    }

    fn version_of(&self, templates: &[&Template]) -> String {
        let names: Vec<String> = templates.iter().map(|one| one.name().to_owned()).collect();
        match self.versions.get(&names) {
            Some(known) => known.clone(),
            None => version(&templates.iter().map(|one| one.text()).collect::<Vec<_>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Delimiters, Dialect};

    fn template_set(
        names: &[&str],
        aliases: &[(&str, &[&str])],
        defaults: Option<&[&str]>,
    ) -> Result<TemplateSet, String> {
        let parse = |name: &&str| {
            let text = format!("# {name}");
            Template::parse(name, &text, Dialect::Overlay, &Delimiters::new("{{", "}}")).unwrap()
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let aliases = aliases
            .iter()
            .map(|(name, of)| ((*name).to_owned(), owned(of)));
        TemplateSet::new(
            names.iter().map(parse).collect(),
            aliases.collect(),
            defaults.map(owned),
        )
    }

    fn names(selected: Result<SelectedTemplates<'_>, String>) -> Result<Vec<&str>, String> {
        selected.map(|chosen| chosen.templates.iter().map(|one| one.name()).collect())
    }

    #[test]
    fn templates_are_chosen_by_name_and_alias_in_order() {
        let set = template_set(&["sidecar", "b", "c"], &[("both", &["c", "b"])], None).unwrap();
        let rows: [(Option<&str>, &[&str]); 5] = [
            (None, &["sidecar"]),
            (Some("b"), &["b"]),
            (Some(" c ,sidecar"), &["c", "sidecar"]),
            (Some("both"), &["c", "b"]),
            (Some("b,both,b"), &["b", "c"]),
        ];
        for (choice, wanted) in rows {
            assert_eq!(names(set.choose(choice)), Ok(wanted.to_vec()), "{choice:?}");
        }
        assert_eq!(
            names(set.choose(Some("b,x"))),
            Err("no template \"x\", known: b, both, c, sidecar".to_owned())
        );
        assert!(names(set.choose(Some(""))).is_err());
        let selected = set.choose(Some("b,c")).unwrap();
        assert_eq!(selected.version, version(&["# b", "# c"]));
        assert_ne!(selected.version, set.choose(Some("both")).unwrap().version);
    }

    #[test]
    fn loading_reports_unknown_template_names() {
        let cause = |result: Result<TemplateSet, String>| result.map(drop).unwrap_err();
        assert_eq!(
            cause(template_set(&["a"], &[("x", &["a", "b"])], None)),
            "aliases: x: no template \"b\", known: a, x"
        );
        // Not recursive.
        assert!(template_set(&["a"], &[("x", &["a"]), ("y", &["x"])], None).is_err());
        assert_eq!(
            cause(template_set(&["a"], &[], Some(&["b"]))),
            "defaultTemplates: no template \"b\", known: a"
        );
        let selected = template_set(&["a"], &[("x", &["a"])], Some(&["x"])).unwrap();
        assert_eq!(names(selected.choose(None)), Ok(vec!["a"]));
        assert_eq!(
            cause(template_set(&["a"], &[], None)),
            "defaultTemplates: no template \"sidecar\", known: a"
        );
        assert_eq!(
            cause(template_set(&[], &[], None)),
            "defaultTemplates: no template \"sidecar\", known: "
        );
        // Pods may choose all by themselves.
        let none = template_set(&["a"], &[], Some(&[])).unwrap();
        assert_eq!(names(none.choose(None)), Ok(Vec::new()));
        assert_eq!(names(none.choose(Some("a"))), Ok(vec!["a"]));
    }
}
