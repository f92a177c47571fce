//! The command line: the program by its name, the flags in both spellings, and the errors.
//!
//! clap does the work. The rest is here: each flag answers to camelCase and kebab-case, flags of some versions of the
//! originals are accepted with one warning, and a link's name chooses the role.

mod admin_address;
mod all;
mod discovery;
mod flags;
mod galley;
mod help_layout;
mod meaningless;
mod programs;
pub(crate) mod values;

use std::ffi::OsString;

use clap::builder::Str;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

pub(crate) use admin_address::{AdminAddress, DebugAccess};
pub use all::AllFlags;
pub(crate) use discovery::MESH_NETWORKS;
pub use discovery::{DiscoveryFlags, ProxyStatusFlags, RequestFlags};
pub use flags::{
    AnalyzeFlags, BuiltinFlags, CompletionFlags, InjectFlags, InjectorFlags, KubeInjectFlags,
    LogFlags, ProbeFlags, ValidateFlags, VersionFlags,
};
pub(crate) use flags::{INJECT_CONFIG, INJECT_VALUES, MESH_CONFIG};
pub(crate) use galley::ACCESS_LIST;
pub use galley::{GalleyFlags, McpFlags, ValidationFlags};

pub(crate) use values::{Level, MessageFormat, NativeSetting, ReportFormat};

use crate::exit::Exit;
use programs::Name;

/// The number of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, if the build sets it.
pub(crate) const REVISION: &str = match option_env!("PINTLE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// The parsed command.
#[derive(Clone, Debug)]
pub enum Action {
    All(Box<AllFlags>),
    Discovery(Box<DiscoveryFlags>),
    Galley(Box<GalleyFlags>),
    Request(RequestFlags),
    ProxyStatus(ProxyStatusFlags),
    Injector(Box<InjectorFlags>),
    Inject(Box<InjectFlags>),
    Analyze(Box<AnalyzeFlags>),
    Validate(ValidateFlags),
    Probe(ProbeFlags),
    Version(VersionFlags),
    Completion(CompletionFlags),
}

/// A command line that was understood.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub action: Action,
    /// Flags without a meaning here.
    pub warnings: Vec<String>,
}

/// A command line that ends before a command runs: help, or an error.
#[derive(Clone, Debug)]
pub struct EarlyExit {
    pub exit: Exit,
    /// With its newline.
    pub text: String,
}

/// Every flag by its other spellings too, and the flags without a meaning.
fn spelled(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let mut command = command.args_override_self(true);
    let has_log = command
        .get_arguments()
        .any(|arg| matches!(arg.get_long(), Some("log_as_json" | "log-as-json")));
    command = command.args(meaningless::of(&name, has_log).map(without_meaning));
    let command = command.mut_args(|arg| {
        let Some(long) = arg.get_long().map(ToOwned::to_owned) else {
            return arg;
        };
        let mut others: Vec<String> = vec![values::kebab(&long), values::camel(&long)];
        others.dedup();
        let aliases = arg.get_all_aliases().unwrap_or_default();
        others.retain(|other| *other != long && !aliases.contains(&&**other));
        arg.aliases(others.into_iter().map(Str::from))
    });
    command.mut_subcommands(spelled)
}

fn without_meaning((name, takes_value): (&'static str, bool)) -> Arg {
    let arg = Arg::new(name)
        .long(name)
        .hide(true)
        .action(ArgAction::Append);
    let arg = match meaningless::short(name) {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    if takes_value {
        arg.num_args(1).allow_hyphen_values(true)
    } else {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    }
}

/// Parses a command line; the first argument is the program's name.
///
/// # Errors
/// The text to print, and the exit code; `--help` counts, too.
pub fn parse(args: &[OsString]) -> Result<Parsed, EarlyExit> {
    let name = Name::of(args.first());
    let command = name.command();
    let args = doubled(&name.command_first(args, &command), &command);
    if let Some(instead) = name.instead_of(&args) {
        let asked = args.get(1).map(|name| name.to_string_lossy());
        let text = format!(
            "error: there is no {:?} here: {instead}\n",
            asked.unwrap_or_default()
        );
        return Err(EarlyExit {
            exit: Exit::Usage,
            text,
        });
    }
    let matches = command
        .clone()
        .try_get_matches_from(&args)
        .map_err(|error| ended(&without_ignored_tip(error, &command, &args)))?;
    let action = name.action(&matches).map_err(|error| ended(&error))?;
    let mut flags: Vec<&str> = Vec::new();
    let mut level = Some((command.get_name().to_owned(), &matches));
    while let Some((name, matches)) = level {
        for (flag, _) in meaningless::of(&name, true) {
            let is_given = matches
                .try_get_raw(flag)
                .is_ok_and(|values| values.is_some());
            if is_given && !flags.contains(&flag) {
                flags.push(flag);
            }
        }
        level = matches
            .subcommand()
            .map(|(name, below)| (name.to_owned(), below));
    }
    let warnings = flags.into_iter().map(meaningless::warning).collect();
    Ok(Parsed { action, warnings })
}

/// `-injectConfig X` as Go's own flag package would take it: a known long name after one dash gets its second.
fn doubled(args: &[OsString], command: &Command) -> Vec<OsString> {
    fn has_long(command: &Command, name: &str) -> bool {
        command.get_arguments().any(|arg| {
            arg.get_long() == Some(name)
                || arg
                    .get_all_aliases()
                    .is_some_and(|aliases| aliases.contains(&name))
        }) || command.get_subcommands().any(|below| has_long(below, name))
    }
    let mut only_values = false;
    args.iter()
        .map(|arg| {
            only_values |= arg == "--";
            let long = arg
                .to_str()
                .and_then(|text| text.strip_prefix('-'))
                .filter(|rest| !rest.starts_with('-') && !only_values)
                .and_then(|rest| rest.split('=').next())
                .is_some_and(|name| name.len() > 1 && has_long(command, name));
            if long {
                let mut doubled = OsString::from("-");
                doubled.push(arg);
                doubled
            } else {
                arg.clone()
            }
        })
        .collect()
}

/// Takes away a tip that leads to a flag which the command ignores: those are hidden.
fn without_ignored_tip(
    mut error: clap::Error,
    command: &Command,
    args: &[OsString],
) -> clap::Error {
    let names = args.iter().filter_map(|arg| arg.to_str());
    let command = names.fold(command, |command, name| {
        command.find_subcommand(name).unwrap_or(command)
    });
    let Some(ContextValue::String(tip)) = error.get(ContextKind::SuggestedArg) else {
        return error;
    };
    let tip = tip.trim_start_matches('-');
    let is_tip = |arg: &&Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(tip) || aliases.contains(&tip)
    };
    if command
        .get_arguments()
        .find(is_tip)
        .is_some_and(Arg::is_hide_set)
    {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

fn ended(error: &clap::Error) -> EarlyExit {
    let kind = error.kind();
    let exit = if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        Exit::Done
    } else if matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue)
        && !is_usage(error)
    {
        Exit::Config
    } else {
        Exit::Usage
    };
    // The text is the command's, whatever the program's name.
    let text = if kind == ErrorKind::DisplayVersion {
        version(&VersionFlags::default())
    } else {
        error.to_string()
    };
    EarlyExit { exit, text }
}

/// Returns true for a missing value and for an unknown shell, which are usage errors; any other invalid value is a
/// configuration error.
fn is_usage(error: &clap::Error) -> bool {
    let missing = matches!(
        error.get(ContextKind::InvalidValue),
        Some(ContextValue::String(value)) if value.is_empty()
    );
    let argument = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(arg)) if arg.starts_with(['<', '['])
    );
    missing || argument
}

/// Returns the output of `completion SHELL`, for the name that the program was called by.
#[must_use]
pub fn completion(args: &[OsString], shell: clap_complete::Shell) -> Vec<u8> {
    let mut command = Name::of(args.first()).documented();
    let name = command.get_name().to_owned();
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut out);
    out
}

/// Returns the output of `version`.
#[must_use]
pub fn version(flags: &VersionFlags) -> String {
    // Both consist of characters that JSON and YAML take without escaping.
    match flags.output.as_str() {
        "json" => format!(
            "{{\n  \"clientVersion\": {{\n    \"golang_version\": \"\",\n    \"host\": \"\",\n    \"hub\": \"\",\n    \
             \"revision\": \"{REVISION}\",\n    \"status\": \"\",\n    \"tag\": \"{VERSION}\",\n    \"user\": \"\",\n    \
             \"version\": \"{VERSION}\"\n  }}\n}}\n"
        ),
        "yaml" => format!(
            "clientVersion:\n  golang_version: \"\"\n  host: \"\"\n  hub: \"\"\n  revision: \"{REVISION}\"\n  status: \"\"\n  \
             tag: \"{VERSION}\"\n  user: \"\"\n  version: \"{VERSION}\"\n"
        ),
        _ if flags.short => format!("{VERSION}\n"),
        _ => format!("gudgeon {VERSION} ({REVISION})\n"),
    }
}

#[cfg(test)]
mod tests;
