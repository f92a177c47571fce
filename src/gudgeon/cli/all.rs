//! The flags of `gudgeon all`: those of its three roles. A flag that several of them have goes to each of them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::AdminAddress;
use super::{DiscoveryFlags, GalleyFlags, InjectorFlags, LogFlags, MESH_CONFIG};

/// Flags of one role that another flag replaces here, or that have no meaning where one process has one readiness, one admin
/// listener and one reader of each source.
const WITHOUT: [&str; 13] = [
    "configPath",
    "meshConfigFile",
    "enableServiceDiscovery",
    "watchConfigFiles",
    "livenessProbePath",
    "livenessProbeInterval",
    "readinessProbePath",
    "readinessProbeInterval",
    "monitoringPort",
    "ctrlz_address",
    "ctrlz_port",
    "deployment-namespace",
    // Both webhooks are behind one Service.
    "service-name",
];

/// Flags of galley that are another role's here, by that role's name.
const ALIASES: [(&str, &str); 2] = [
    ("configDir", "configPath"),
    ("meshConfig", "meshConfigFile"),
];

/// Flags that are too near to one of another role, and their names here.
const RENAMED: [(&str, &str); 1] = [("webhook-name", "validation-webhook-name")];

/// Flags whose meaning or default is another one here than in their role, by their names here.
const DESCRIBED: [(&str, &str); 4] = [
    (
        "accessListFile",
        "File of identities that may connect to the MCP listeners; without it every verified client may read from \
         --server-address, and none may dial --mcpSinkAddr [default: /etc/config/accesslist.yaml]",
    ),
    (
        "enable-server",
        "Serve configuration over MCP [default: where --server-address or --sinkAddress is given]",
    ),
    (
        "validation-port",
        "HTTPS port of the validation webhook; 0: a free one [default: that of --port]",
    ),
    (
        "enable-validation",
        "Serve the validation webhook [default: true; with --configDir, where its certificate is there]",
    ),
];

/// Returns the name of a role's flag in `all`; `None` if `all` lacks it.
fn here(long: &str) -> Option<&str> {
    if WITHOUT.contains(&long) {
        return None;
    }
    let renamed = RENAMED.iter().find(|(there, _)| *there == long);
    Some(renamed.map_or(long, |(_, here)| here))
}

/// `gudgeon all`.
#[derive(Clone, Debug)]
pub struct AllFlags {
    pub discovery: DiscoveryFlags,
    pub injector: InjectorFlags,
    pub galley: GalleyFlags,
    /// Plain HTTP listeners of all roles.
    pub(crate) http: Vec<AdminAddress>,
    pub log: LogFlags,
}

fn role<F: Args>(name: &'static str) -> Command {
    // A later one wins, as on the command line.
    F::augment_args(Command::new(name).no_binary_name(true)).args_override_self(true)
}

fn roles() -> [Command; 3] {
    [
        role::<DiscoveryFlags>("discovery"),
        role::<InjectorFlags>("injector"),
        role::<GalleyFlags>("galley"),
    ]
}

/// Each flag once, by its long name.
fn flags() -> Vec<Arg> {
    let mut all: Vec<Arg> = Vec::new();
    for arg in roles().iter().flat_map(Command::get_arguments) {
        let Some(long) = arg.get_long().and_then(here).map(ToOwned::to_owned) else {
            continue;
        };
        let is_there = all.iter().any(|known| known.get_long() == Some(&long));
        if !is_there {
            let described = DESCRIBED.iter().find(|(flag, _)| *flag == long);
            let alias = ALIASES.iter().find(|(flag, _)| *flag == long);
            let mut arg = arg.clone().long(long.clone()).id(long);
            if let Some((_, alias)) = alias {
                arg = arg.alias(alias);
            }
            all.push(match described {
                Some((_, help)) => arg.help(*help).hide_default_value(true),
                None => arg,
            });
        }
    }
    all
}

/// The flags that were given and that a role has, as its own command line would have them.
fn flags_of_role<F: Args>(matches: &ArgMatches, role: Command) -> Result<F, clap::Error> {
    let mut args: Vec<OsString> = Vec::new();
    for arg in role.get_arguments() {
        let Some(there) = arg.get_long() else {
            continue;
        };
        let Some(long) = here(there).filter(|long| is_on_command_line(matches, long)) else {
            continue;
        };
        let values = matches.get_raw(long).into_iter().flatten();
        let values: Vec<_> = match arg.get_value_delimiter() {
            Some(delimiter) => {
                let delimiter = OsString::from(delimiter.to_string());
                let values: Vec<_> = values.collect();
                // Clap has split the values, and the role's parser splits them once more.
                vec![values.join(&delimiter)]
            }
            None => values.map(ToOwned::to_owned).collect(),
        };
        for value in values {
            let mut flag = OsString::from(format!("--{there}="));
            flag.push(value);
            args.push(flag);
        }
    }
    F::from_arg_matches(&role.try_get_matches_from(args)?)
}

fn is_on_command_line(matches: &ArgMatches, long: &str) -> bool {
    let source = matches.value_source(long);
    source == Some(ValueSource::CommandLine)
}

impl Args for AllFlags {
    fn augment_args(command: Command) -> Command {
        command.args(flags())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AllFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let [of_discovery, of_injector, of_galley] = roles();
        let mut discovery: DiscoveryFlags = flags_of_role(matches, of_discovery)?;
        let mut injector: InjectorFlags = flags_of_role(matches, of_injector)?;
        let mut galley: GalleyFlags = flags_of_role(matches, of_galley)?;
        let log = discovery.log.clone();
        let http = http(&mut discovery);
        injector.monitoring_port = -1;
        injector.debug_addr = None;
        alone(&mut galley, &discovery);
        let sends = ["enable-server", "server-address", "sinkAddress"];
        galley.mcp.enable_server &= sends.iter().any(|flag| is_on_command_line(matches, flag));
        if galley.webhook.port == Some(injector.port) {
            galley.webhook.port = None;
        }
        let service = injector.webhook_service.clone();
        galley.webhook.service_name = service;
        galley.webhook.deployment_namespace = injector.service_namespace();
        Ok(Self {
            discovery,
            injector,
            galley,
            http,
            log,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Takes the plain listeners, which are not discovery's alone here.
fn http(discovery: &mut DiscoveryFlags) -> Vec<AdminAddress> {
    let addresses = discovery.admin_addresses();
    discovery.http_addr.clear();
    discovery.monitoring_addr.clear();
    discovery.debug_addr = None;
    addresses
}

/// Gives galley the sources of discovery's flags, and turns off its own listeners.
fn alone(galley: &mut GalleyFlags, discovery: &DiscoveryFlags) {
    galley.config_path = discovery.config_dir.clone().unwrap_or_default();
    galley.mesh_config_file.clone_from(&discovery.mesh_config);
    galley.usual_mesh_config = MESH_CONFIG;
    galley.mesh_config_flag = "meshConfig";
    galley.monitoring_port = 0;
    galley.ctrlz_port = 0;
    galley.liveness_probe_path = PathBuf::new();
    galley.readiness_probe_path = PathBuf::new();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::time::Duration;

    use super::super::{Action, discovery, galley, meaningless, parse};
    use super::{flags as flags_of_all, *};
    use crate::exit::Exit;

    fn flags(line: &str) -> AllFlags {
        let line = format!("gudgeon all {line}");
        let arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        let parsed = parse(&arguments).unwrap_or_else(|ended| panic!("{line}: {}", ended.text));
        assert!(parsed.warnings.is_empty(), "{line}: {:?}", parsed.warnings);
        let Action::All(flags) = parsed.action else {
            panic!("{line}")
        };
        *flags
    }

    #[test]
    fn a_flag_goes_to_each_role_that_has_it() {
        let all = flags(
            "--configDir /c --drainDuration 7s --tls-cert-file /t --kubeconfig /k --selfSigned \
             --registries Consul,Mock --webhookConfigName a --webhookConfigName b --mcpServerAddrs x:1,y:2",
        );
        let seven = Duration::from_secs(7);
        assert_eq!(all.discovery.drain_duration, seven);
        assert_eq!(all.injector.drain_duration, seven);
        assert_eq!(all.galley.drain_duration, seven);
        assert_eq!(all.injector.tls_cert_file, Path::new("/t"));
        assert_eq!(all.galley.mcp.tls_cert_file, Path::new("/t"));
        assert_eq!(all.injector.kubeconfig, "/k");
        assert_eq!(all.galley.kubeconfig, Path::new("/k"));
        assert_eq!(all.discovery.kubeconfig.as_deref(), Some(Path::new("/k")));
        assert!(all.injector.self_signed && all.galley.webhook.self_signed);
        let registries = all.discovery.registries.unwrap();
        assert_eq!(registries, ["Consul", "Mock"]);
        assert_eq!(all.discovery.mcp_server_addrs, ["x:1", "y:2"]);
        assert_eq!(all.injector.webhook_config_name, ["a", "b"]);
        assert_eq!(all.galley.config_path, Path::new("/c"));
    }

    #[test]
    fn omitted_flags_have_the_defaults_of_their_role() {
        let all = flags("");
        assert_eq!(
            all.injector.tls_cert_file,
            Path::new("/etc/istio/certs/cert-chain.pem")
        );
        assert_eq!(
            all.galley.mcp.tls_cert_file,
            Path::new("/etc/certs/cert-chain.pem")
        );
        let http: Vec<_> = all
            .http
            .iter()
            .map(|one| (one.flag, &*one.address))
            .collect();
        assert_eq!(http, [("httpAddr", ":8080"), ("monitoringAddr", ":15014")]);
        assert_eq!(
            (all.discovery.http_addr, all.galley.monitoring_port),
            (String::new(), 0)
        );
        // One mesh configuration for all, also where the file comes later.
        let mesh = (all.galley.mesh_config_file, all.galley.usual_mesh_config);
        assert_eq!(mesh, (None, MESH_CONFIG));
        assert!(!all.galley.mcp.enable_server);
        assert!(flags("--enable-server").galley.mcp.enable_server);
        assert!(
            flags("--server-address 127.0.0.1:1")
                .galley
                .mcp
                .enable_server
        );
        let off = flags("--server-address 127.0.0.1:1 --enable-server=false");
        assert!(!off.galley.mcp.enable_server);
    }

    #[test]
    fn webhooks_share_a_port_unless_one_is_given() {
        assert_eq!(flags("--port 8443").galley.webhook.port, None);
        assert_eq!(
            flags("--port 8443 --validation-port 8443")
                .galley
                .webhook
                .port,
            None
        );
        assert_eq!(
            flags("--validation-port 9443").galley.webhook.port,
            Some(9443)
        );
        let line = "--namespace mesh --webhook-service gudgeon --validation-webhook-name v";
        let webhook = flags(line).galley.webhook;
        let service = (&*webhook.service_name, &*webhook.deployment_namespace);
        assert_eq!(service, ("gudgeon", "mesh"));
        assert_eq!(webhook.webhook_name, "v");
    }

    #[test]
    fn galleys_flags_for_sources_are_discoverys() {
        let all = flags("--configPath /c --meshConfigFile /m");
        assert_eq!(all.discovery.config_dir.as_deref(), Some(Path::new("/c")));
        assert_eq!(all.galley.config_path, Path::new("/c"));
        assert_eq!(all.discovery.mesh_config.as_deref(), Some(Path::new("/m")));
        assert_eq!(
            all.galley.mesh_config_file.as_deref(),
            Some(Path::new("/m"))
        );
        // The file has one name in messages and metrics.
        assert_eq!(all.galley.mesh_config_flag, "meshConfig");
    }

    #[test]
    fn flags_that_a_role_ignores_are_ignored() {
        let line = "gudgeon all --plugins=a --resync=1s --profile --resyncPeriod=1s";
        let arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        let warnings = parse(&arguments)
            .unwrap_or_else(|ended| panic!("{}", ended.text))
            .warnings;
        let expected = ["plugins", "resync", "profile", "resyncPeriod"];
        let expected = expected.map(|flag| format!("ignoring --{flag}: it has no meaning here"));
        assert_eq!(warnings.len(), expected.len());
        assert!(
            expected.iter().all(|one| warnings.contains(one)),
            "{warnings:?}"
        );
    }

    #[test]
    fn flags_that_all_ignores_are_those_that_its_roles_ignore() {
        let used: Vec<_> = flags_of_all()
            .iter()
            .filter_map(Arg::get_long)
            .map(str::to_owned)
            .collect();
        let roles = discovery::WITHOUT_MEANING
            .iter()
            .chain(&galley::WITHOUT_MEANING);
        let expected: BTreeSet<_> = roles
            .filter(|(flag, _)| !used.iter().any(|one| one == flag))
            .collect();
        assert_eq!(meaningless::of_all().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn flags_without_a_meaning_are_refused() {
        let refused = WITHOUT
            .iter()
            .filter(|flag| ALIASES.iter().all(|(_, alias)| alias != *flag));
        for flag in refused {
            let arguments = ["gudgeon", "all"].map(OsString::from).into_iter();
            let arguments: Vec<_> = arguments.chain([format!("--{flag}=1").into()]).collect();
            // Every command that writes a log takes these two, with a warning.
            if flag.starts_with("ctrlz") {
                assert_eq!(parse(&arguments).unwrap().warnings.len(), 1);
                continue;
            }
            let ended = parse(&arguments).unwrap_err();
            assert_eq!(ended.exit, Exit::Usage, "{flag}: {}", ended.text);
        }
        let wrong = ["gudgeon", "all", "--drainDuration", "soon"].map(OsString::from);
        assert_eq!(parse(&wrong).unwrap_err().exit, Exit::Config);
    }
}
