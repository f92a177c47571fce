//! The output of findings on stdout: lines, JSON or YAML.

use api::counted;
use serde_json::{Value, json};

use super::messages::Located;
use crate::cli::Level;

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Log,
    Json,
    Yaml,
}

/// The pages that explain the codes of Istio.
const DOCUMENTATION: &str = "https://istio.io/docs/reference/config/analysis/";

fn row(found: &Located) -> Value {
    let code = found.code.name;
    let url = code
        .starts_with("IST")
        .then(|| format!("{DOCUMENTATION}{}/", code.to_ascii_lowercase()));
    json!({
        "code": code,
        "documentationUrl": url,
        "level": found.code.level.word(),
        "message": found.text,
        "origin": found.origin(),
        "reference": found.reference(),
        "file": found.file,
        "line": found.line,
        "path": found.path,
    })
}

/// All of one form.
///
/// # Errors
///
/// A finding that cannot be written as JSON or YAML.
pub(super) fn written(found: &[Located], format: OutputFormat) -> Result<String, String> {
    let rows = || -> Vec<Value> { found.iter().map(row).collect() };
    match format {
        OutputFormat::Json => {
            let text = serde_json::to_string_pretty(&rows());
            text.map(|text| text + "\n")
                .map_err(|error| error.to_string())
        }
        OutputFormat::Yaml => serde_saphyr::to_string(&rows()).map_err(|error| error.to_string()),
        OutputFormat::Log => {
            let mut text = String::new();
            for one in found {
                text.push_str(&one.as_line());
                text.push('\n');
            }
            let count = |level: Level| found.iter().filter(|one| one.code.level == level).count();
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
