//! The programs that a name asks for, each with its commands: links choose a role.

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::galley::{GalleyCommand, GalleySubcommand as InsteadOfGalley};
use super::{
    Action, AllFlags, AnalyzeFlags, CompletionFlags, DiscoveryFlags, InjectFlags, InjectorFlags,
    ProbeFlags, ProxyStatusFlags, RequestFlags, VERSION, ValidateFlags, VersionFlags, help_layout,
    spelled,
};

#[derive(Debug, Subcommand)]
enum Program {
    /// Run injector, discovery and galley in one process.
    All(Box<AllFlags>),
    /// Serve services and rules to proxies, over xDS.
    Discovery(Box<DiscoveryFlags>),
    /// Validate configuration by webhook, and serve it over MCP.
    Galley(Box<GalleyCommand>),
    /// Serve the mutating admission webhook that adds the proxy to pods.
    Injector(Box<InjectorFlags>),
    /// Add the proxy to manifests.
    #[command(alias = "kube-inject")]
    Inject(Box<InjectFlags>),
    /// Check manifests: fields and rules, without a cluster.
    Validate(ValidateFlags),
    /// Analyze manifests or the objects of a cluster: references, conflicts, selectors.
    Analyze(Box<AnalyzeFlags>),
    /// Send an HTTP request to a running discovery.
    Request(RequestFlags),
    /// Show which proxies are in sync with a running discovery.
    #[command(name = "proxy-status", alias = "ps")]
    ProxyStatus(ProxyStatusFlags),
    /// Check that the health file was written recently.
    Probe(ProbeFlags),
    /// Print the version.
    Version(VersionFlags),
    /// Print a shell's completions.
    Completion(CompletionFlags),
}

#[derive(Debug, Parser)]
#[command(name = "gudgeon", about = "The control plane beside pintle")]
struct Gudgeon {
    #[command(subcommand)]
    role: Program,
}

#[derive(Debug, Parser)]
#[command(
    name = "sidecar-injector",
    about = "The mutating admission webhook that adds the proxy to pods"
)]
struct SidecarInjector {
    #[command(flatten)]
    flags: InjectorFlags,
    #[command(subcommand)]
    instead: Option<ProgramSubcommand>,
}

#[derive(Debug, Subcommand)]
enum ProgramSubcommand {
    /// Check that the health file was written recently.
    Probe(ProbeFlags),
    /// Print the version.
    Version(VersionFlags),
    /// Print a shell's completions.
    Completion(CompletionFlags),
}

#[derive(Debug, Parser)]
#[command(
    name = "istioctl",
    about = "The part of istioctl that works on manifests"
)]
struct Istioctl {
    #[command(subcommand)]
    role: Manifests,
}

#[derive(Debug, Subcommand)]
enum Manifests {
    /// Add the proxy to manifests.
    #[command(name = "kube-inject", alias = "inject")]
    Inject(Box<InjectFlags>),
    /// Check manifests: fields and rules, without a cluster.
    Validate(ValidateFlags),
    /// Analyze manifests or the objects of a cluster: references, conflicts, selectors.
    Analyze(Box<AnalyzeFlags>),
    /// Show which proxies are in sync with a running discovery.
    #[command(name = "proxy-status", alias = "ps")]
    ProxyStatus(ProxyStatusFlags),
    /// Print the version.
    Version(VersionFlags),
    /// Print a shell's completions.
    Completion(CompletionFlags),
}

#[derive(Debug, Parser)]
#[command(
    name = "pilot-discovery",
    about = "Services and rules for proxies, over xDS"
)]
struct PilotDiscovery {
    #[command(subcommand)]
    role: Pilot,
}

#[derive(Debug, Subcommand)]
enum Pilot {
    /// Serve services and rules to proxies, over xDS.
    Discovery(Box<DiscoveryFlags>),
    /// Send an HTTP request to a running discovery.
    Request(RequestFlags),
    /// Print the version.
    Version(VersionFlags),
    /// Print a shell's completions.
    Completion(CompletionFlags),
}

/// Commands of istioctl that are none here, each with what stands in its place.
const INSTEAD: [(&[&str], &str); 5] = [
    (
        &["proxy-config", "pc"],
        "see /debug/config_dump?proxyID=POD.NAMESPACE of discovery, or /config_dump of the proxy's admin port",
    ),
    (
        &["describe", "desc"],
        "see `analyze`, and /debug/configz of discovery",
    ),
    (
        &["authn", "authz"],
        "see /debug/authenticationz and /debug/authorizationz of discovery, with ?proxyID=POD.NAMESPACE",
    ),
    (
        &["dashboard", "dash", "d"],
        "see /debug of discovery, and the proxy's admin port",
    ),
    (
        &[
            "install",
            "manifest",
            "operator",
            "upgrade",
            "uninstall",
            "verify-install",
            "profile",
        ],
        "gudgeon is installed by the manifests of build/kubernetes",
    ),
];

/// The program that a name asks for: links choose a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Gudgeon,
    PilotDiscovery,
    Galley,
    SidecarInjector,
    Istioctl,
}

impl Name {
    pub(super) fn of(program: Option<&OsString>) -> Self {
        let base = program
            .map(Path::new)
            .and_then(Path::file_name)
            .and_then(|name| name.to_str());
        match base {
            Some("pilot-discovery") => Self::PilotDiscovery,
            Some("galley") => Self::Galley,
            Some("sidecar-injector") => Self::SidecarInjector,
            Some("istioctl") => Self::Istioctl,
            Some(_) | None => Self::Gudgeon,
        }
    }

    /// As it is documented: each flag by one name.
    pub(super) fn documented(self) -> Command {
        let command = match self {
            Self::Gudgeon => Gudgeon::command(),
            Self::PilotDiscovery => PilotDiscovery::command(),
            Self::Galley => GalleyCommand::command(),
            Self::SidecarInjector => SidecarInjector::command(),
            Self::Istioctl => Istioctl::command(),
        };
        // `-V` prints the same as `version`.
        let command = command.version(VERSION).propagate_version(true);
        help_layout::dressed(command)
    }

    /// Returns the command with all accepted spellings.
    pub(super) fn command(self) -> Command {
        spelled(self.documented())
    }

    /// Returns the arguments with the command first: the originals take flags in front of it as well, and istioctl had its new
    /// commands in a group, such as `analyze` in 1.3 and 1.4.
    pub(super) fn command_first(self, args: &[OsString], command: &Command) -> Vec<OsString> {
        let mut args = args.to_vec();
        if !matches!(self, Self::Istioctl | Self::PilotDiscovery) {
            return args;
        }
        let Some(mut at) = name_behind_flags(&args, 1, command) else {
            return args;
        };
        let is_group = |arg: &OsString| arg == "x" || arg == "exp" || arg == "experimental";
        if self == Self::Istioctl && args.get(at).is_some_and(is_group) {
            args.remove(at);
            match name_behind_flags(&args, at, command) {
                Some(behind) => at = behind,
                None => return args,
            }
        }
        let name = args.remove(at);
        args.insert(1, name);
        args
    }

    /// Returns what stands in the place of a command that the original has and this program has not.
    pub(super) fn instead_of(self, args: &[OsString]) -> Option<&'static str> {
        let name = args.get(1).filter(|_| self == Self::Istioctl)?.to_str()?;
        let row = INSTEAD.iter().find(|(names, _)| names.contains(&name));
        row.map(|(_, instead)| *instead)
    }

    pub(super) fn action(self, matches: &ArgMatches) -> Result<Action, clap::Error> {
        Ok(match self {
            Self::PilotDiscovery => match PilotDiscovery::from_arg_matches(matches)?.role {
                Pilot::Discovery(flags) => Action::Discovery(flags),
                Pilot::Request(flags) => Action::Request(flags),
                Pilot::Version(flags) => Action::Version(flags),
                Pilot::Completion(flags) => Action::Completion(flags),
            },
            Self::Gudgeon => match Gudgeon::from_arg_matches(matches)?.role {
                Program::All(flags) => Action::All(flags),
                Program::Discovery(flags) => Action::Discovery(flags),
                Program::Galley(this) => galley(*this),
                Program::Request(flags) => Action::Request(flags),
                Program::ProxyStatus(flags) => Action::ProxyStatus(flags),
                Program::Injector(flags) => Action::Injector(flags),
                Program::Inject(flags) => Action::Inject(flags),
                Program::Validate(flags) => Action::Validate(flags),
                Program::Analyze(flags) => Action::Analyze(flags),
                Program::Probe(flags) => Action::Probe(flags),
                Program::Version(flags) => Action::Version(flags),
                Program::Completion(flags) => Action::Completion(flags),
            },
            Self::Galley => galley(GalleyCommand::from_arg_matches(matches)?),
            Self::SidecarInjector => {
                let this = SidecarInjector::from_arg_matches(matches)?;
                match this.instead {
                    None => Action::Injector(Box::new(this.flags)),
                    Some(ProgramSubcommand::Probe(flags)) => Action::Probe(flags),
                    Some(ProgramSubcommand::Version(flags)) => Action::Version(flags),
                    Some(ProgramSubcommand::Completion(flags)) => Action::Completion(flags),
                }
            }
            Self::Istioctl => match Istioctl::from_arg_matches(matches)?.role {
                Manifests::Inject(flags) => Action::Inject(flags),
                Manifests::Validate(flags) => Action::Validate(flags),
                Manifests::Analyze(flags) => Action::Analyze(flags),
                Manifests::ProxyStatus(flags) => Action::ProxyStatus(flags),
                Manifests::Version(flags) => Action::Version(flags),
                Manifests::Completion(flags) => Action::Completion(flags),
            },
        })
    }
}

/// Returns the place of the first argument from `at` on that is neither a flag nor the value of one.
fn name_behind_flags(args: &[OsString], at: usize, command: &Command) -> Option<usize> {
    let takes_value = |flag: &str| {
        let name = flag.trim_start_matches('-');
        let is_it = |arg: &clap::Arg| match flag.strip_prefix("--") {
            Some(long) => {
                let aliases = arg.get_all_aliases().unwrap_or_default();
                arg.get_long() == Some(long) || aliases.contains(&long)
            }
            None => arg
                .get_short()
                .is_some_and(|letter| name.chars().eq([letter])),
        };
        let mut commands = command.get_subcommands();
        commands.any(|below| {
            let mut all = below.get_arguments();
            all.any(|arg| {
                let count = arg.get_num_args();
                let is_optional = count.is_some_and(|count| count.min_values() == 0);
                is_it(arg) && arg.get_action().takes_values() && !is_optional
            })
        })
    };
    let mut is_value = false;
    args.iter().enumerate().skip(at).find_map(|(at, arg)| {
        let text = arg.to_str().unwrap_or_default();
        if std::mem::take(&mut is_value) {
            return None;
        }
        if text.starts_with('-') {
            is_value = !text.contains('=') && takes_value(text);
            return None;
        }
        Some(at)
    })
}

fn galley(this: GalleyCommand) -> Action {
    match this.instead {
        None => Action::Galley(Box::new(this.flags)),
        Some(InsteadOfGalley::Probe(flags)) => Action::Probe(flags),
        Some(InsteadOfGalley::Version(flags)) => Action::Version(flags),
        Some(InsteadOfGalley::Completion(flags)) => Action::Completion(flags),
    }
}
