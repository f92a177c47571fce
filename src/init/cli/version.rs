//! `pintle version`, in the shapes of pilot-agent's.

#![forbid(unsafe_code)]

use argh::FromArgs;

use super::Word;

/// The number.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, where the build says it.
pub(crate) const REVISION: &str = match option_env!("PINTLE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// print the version
#[derive(Debug, FromArgs)]
#[argh(
    name = "version",
    help_triggers("--help", "-h"),
    usage = "[-s] [-o json|yaml]"
)]
pub(super) struct VersionFlags {
    /// the number only
    #[argh(option, short = 's', arg_name = "bool")]
    pub(super) short: Option<String>,
    /// json or yaml
    #[argh(option, short = 'o', arg_name = "format")]
    pub(super) output: Option<String>,
}

pub(super) fn help() -> String {
    let exit = VersionFlags::from_args(&["pintle", "version"], &["--help"]).err();
    exit.map(|exit| exit.output).unwrap_or_default()
}

/// What is printed, or what is wrong.
pub(super) fn render(flags: &VersionFlags) -> Result<String, String> {
    let revision = REVISION;
    let short = match flags.short.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(format!("cannot use --short \"{other}\": true or false")),
    };
    match flags.output.as_deref().unwrap_or("") {
        "" if short => Ok(format!("{VERSION}\n")),
        "" => Ok(format!("pintle {VERSION} ({revision})\n")),
        // Both are made of letters, digits and a few signs that JSON takes as they are.
        "json" => Ok(format!(
            "{{\n  \"clientVersion\": {{\n    \"golang_version\": \"\",\n    \"host\": \"\",\n    \"hub\": \"\",\n    \
             \"revision\": \"{revision}\",\n    \"status\": \"\",\n    \"tag\": \"{VERSION}\",\n    \
             \"user\": \"\",\n    \"version\": \"{VERSION}\"\n  }}\n}}\n"
        )),
        "yaml" => Ok(format!(
            "clientVersion:\n  golang_version: \"\"\n  host: \"\"\n  hub: \"\"\n  revision: \"{revision}\"\n  \
             status: \"\"\n  tag: \"{VERSION}\"\n  user: \"\"\n  version: \"{VERSION}\"\n"
        )),
        other => Err(format!("cannot use --output \"{other}\": json or yaml")),
    }
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
