//! The output of findings on stdout: lines, JSON or YAML.

use api::counted;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::messages::Located;
use crate::cli::{Level, MessageFormat};

/// The pages that explain the codes of Istio.
const DOCUMENTATION: &str = "https://istio.io/docs/reference/config/analysis/";

/// A finding as machines read it. A `serde_json::Value` writes its numbers so that only `serde_json` reads them again.
struct ReportRow<'a>(&'a Located);

impl Serialize for ReportRow<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(message) = self;
        let code = message.code.name;
        let url = code
            .starts_with("IST")
            .then(|| format!("{DOCUMENTATION}{}/", code.to_ascii_lowercase()));
        let mut map = to.serialize_map(Some(9))?;
        map.serialize_entry("code", code)?;
        map.serialize_entry("documentationUrl", &url)?;
        map.serialize_entry("file", &message.file)?;
        map.serialize_entry("level", message.code.level.as_str())?;
        map.serialize_entry("line", &message.line)?;
        map.serialize_entry("message", &message.text)?;
        map.serialize_entry("origin", &message.origin())?;
        map.serialize_entry("path", &message.path)?;
        map.serialize_entry("reference", &message.reference())?;
        map.end()
    }
}

/// Renders all findings in one form.
///
/// # Errors
///
/// A finding that cannot be written as JSON or YAML.
pub(super) fn written(messages: &[Located], format: MessageFormat) -> Result<String, String> {
    let rows: Vec<_> = messages.iter().map(ReportRow).collect();
    match format {
        MessageFormat::Json => {
            let text = serde_json::to_string_pretty(&rows);
            text.map(|text| text + "\n")
                .map_err(|error| error.to_string())
        }
        MessageFormat::Yaml => serde_saphyr::to_string(&rows).map_err(|error| error.to_string()),
        MessageFormat::Log | MessageFormat::Text => {
            let mut text = String::new();
            for one in messages {
                text.push_str(&one.as_line());
                text.push('\n');
            }
            let count = |level: Level| {
                messages
                    .iter()
                    .filter(|one| one.code.level == level)
                    .count()
            };
            text.push_str(&format!(
                "{}, {}, {}\n",
                counted(count(Level::Error), "error"),
                counted(count(Level::Warning), "warning"),
                counted(count(Level::Info), "remark")
            ));
            Ok(text)
        }
    }
}
