//! `pintle version`, in the shapes of pilot-agent's.

#![forbid(unsafe_code)]

use super::Word;

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

/// What is printed, or what is wrong.
pub(super) fn render(short: &str, output: &str) -> Result<String, String> {
    let short = match short {
        "false" => false,
        "true" => true,
        other => return Err(["cannot use --short \"", other, "\": true or false"].concat()),
    };
    // Both are made of letters, digits and a few signs that JSON and YAML take as they are.
    let parts: &[&str] = match output {
        "" if short => &[VERSION, "\n"],
        "" => &["pintle ", VERSION, " (", REVISION, ")\n"],
        "json" => &[
            "{\n  \"clientVersion\": {\n    \"golang_version\": \"\",\n    \"host\": \"\",\n    \"hub\": \"\",\n    \
             \"revision\": \"",
            REVISION,
            "\",\n    \"status\": \"\",\n    \"tag\": \"",
            VERSION,
            "\",\n    \"user\": \"\",\n    \"version\": \"",
            VERSION,
            "\"\n  }\n}\n",
        ],
        "yaml" => &[
            "clientVersion:\n  golang_version: \"\"\n  host: \"\"\n  hub: \"\"\n  revision: \"",
            REVISION,
            "\"\n  status: \"\"\n  tag: \"",
            VERSION,
            "\"\n  user: \"\"\n  version: \"",
            VERSION,
            "\"\n",
        ],
        other => return Err(["cannot use --output \"", other, "\": json or yaml"].concat()),
    };
    Ok(parts.concat())
}

/// `-s`, `-o X`, `-oX` and `-o=X` as long flags.
pub(super) fn lengthen(argument: &'static str) -> Word {
    let long: &str = match argument.strip_prefix('-') {
        Some("s") => "--short",
        Some("o") => "--output",
        Some(rest) if rest.starts_with('o') => {
            let value = rest.get(1..).unwrap_or("");
            // The process ends before it could be freed.
            ["--output=", value.strip_prefix('=').unwrap_or(value)]
                .concat()
                .leak()
        }
        Some(_) | None => argument,
    };
    long.as_ref()
}
