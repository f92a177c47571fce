//! `pintle version`, in the shapes of pilot-agent's.

#![forbid(unsafe_code)]

/// The number.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, where the build says it.
pub(crate) const REVISION: &str = match option_env!("PINTLE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

pub(super) fn help() -> String {
    HELP.to_owned()
}

const HELP: &str = "Usage: pintle version [-s] [-o json|yaml]

print the version

Options:
  -s, --short       the number only
  -o, --output      json or yaml
  --help, -h        display usage information
";

/// Returns the text to print, or the fault.
pub(super) fn render(short: bool, output: &str) -> Result<String, String> {
    // Both are made of letters, digits and a few signs that JSON and YAML take as they are.
    let (before, after) = match output {
        "" if short => return Ok([VERSION, "\n"].concat()),
        "" => (concat!("pintle ", env!("CARGO_PKG_VERSION"), " ("), ")\n"),
        "json" => (
            "{\n  \"clientVersion\": {\n    \"golang_version\": \"\",\n    \"host\": \"\",\n    \"hub\": \"\",\n    \
             \"revision\": \"",
            concat!(
                "\",\n    \"status\": \"\",\n    \"tag\": \"",
                env!("CARGO_PKG_VERSION"),
                "\",\n    \"user\": \"\",\n    \"version\": \"",
                env!("CARGO_PKG_VERSION"),
                "\"\n  }\n}\n"
            ),
        ),
        "yaml" => (
            "clientVersion:\n  golang_version: \"\"\n  host: \"\"\n  hub: \"\"\n  revision: \"",
            concat!(
                "\"\n  status: \"\"\n  tag: \"",
                env!("CARGO_PKG_VERSION"),
                "\"\n  user: \"\"\n  version: \"",
                env!("CARGO_PKG_VERSION"),
                "\"\n"
            ),
        ),
        other => {
            let what = [
                "pintle: cannot use --output \"",
                other,
                "\": json or yaml\n",
            ];
            return Err(what.concat());
        }
    };
    Ok([before, REVISION, after].concat())
}
