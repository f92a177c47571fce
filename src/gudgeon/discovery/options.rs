//! The options of discovery, from flags and variables, checked once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use api::model::{Network, Registry};
use xds::debounce::DebounceOptions;
use xds::settings::{DnsRefresh, Headless, Settings, Sniffing};

use crate::cli::DiscoveryFlags;
use crate::cli::values::{self, given};
use crate::exit::Failure;
use crate::grpc::ConnectionOptions;

/// Streams of one connection, unless `ISTIO_GPRC_MAXSTREAMS` says something else (discovery.md §9): a proxy has one, two during a
/// hot restart. pilot-discovery's 100,000 would let one connection have the memory of all.
const STREAMS: u32 = 100;

/// The most pushes at a time that may be asked for. Chosen: far more than streams; a semaphore has a limit of its own.
const MAX_THROTTLE: usize = 1_000_000;

/// The options, except addresses and files.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveryOptions {
    pub(crate) settings: Arc<Settings>,
    pub(crate) quiet: DebounceOptions,
    pub(crate) throttle: usize,
    pub(crate) connections: ConnectionOptions,
    pub(crate) identity_check: bool,
    /// Endpoints are counted by cluster.
    pub(crate) cluster_metrics: bool,
    pub(crate) domain: Arc<str>,
    pub(crate) trust_domain: Arc<str>,
    /// The namespace of discovery itself.
    pub(crate) namespace: Arc<str>,
    /// The registries in the order of the flag, none twice.
    pub(crate) registries: Vec<Registry>,
    pub(crate) certificates: std::path::PathBuf,
    /// True if messages about objects are written into their status.
    pub(crate) writes_status: bool,
    /// The interval of fetches of one issuer's keys.
    pub(crate) jwks_refresh: Duration,
    /// Addresses that keys are fetched from, whatever they are.
    pub(crate) jwks_allowed: Vec<Network>,
}

/// Connections to a port that have not asked for anything yet. After a restart thousands of proxies come at once: so many do
/// their handshakes beside each other, which takes half a second of a core.
const IDLE: usize = 256;

/// Variables, by name.
pub(crate) type Environment = BTreeMap<String, String>;

/// The variables of the process.
pub(crate) fn environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

impl DiscoveryOptions {
    /// Reads flags and environment. Returns the options and the warnings about them.
    ///
    /// # Errors
    /// The variable or flag whose value is none.
    pub(crate) fn new(
        flags: &DiscoveryFlags,
        environment: &Environment,
    ) -> Result<(Self, Vec<String>), Failure> {
        let variables = Variables {
            all: environment,
            read: RefCell::default(),
        };
        let mut warnings: Vec<_> = without_effect(flags).collect();
        let registries = registries(flags, &mut warnings)?;
        let named = |flag: &Option<String>, variable: &str, otherwise: &str| -> Arc<str> {
            given(flag.as_deref())
                .or_else(|| variables.get(variable))
                .unwrap_or(otherwise)
                .into()
        };
        let cluster = named(&flags.cluster_id, "CLUSTER_ID", "Kubernetes");
        let settings = settings(flags, &variables, &cluster)?;
        let (throttle, streams) = limits(&variables)?;
        let options = Self {
            settings: Arc::new(settings),
            quiet: quiet(&variables)?,
            throttle,
            connections: ConnectionOptions {
                interval: flags.keepalive_interval,
                timeout: flags.keepalive_timeout,
                age: flags.keepalive_max_server_connection_age,
                streams,
                idle: IDLE,
                stays: true,
            },
            identity_check: variables.boolean("PILOT_ENABLE_XDS_IDENTITY_CHECK", true)?,
            cluster_metrics: variables.boolean("PILOT_ENABLE_CLUSTER_METRICS", false)?,
            writes_status: variables.boolean("PILOT_ENABLE_STATUS", false)?,
            jwks_refresh: jwks_refresh(&variables)?,
            jwks_allowed: flags.jwks_allow.clone(),
            domain: flags.domain.as_str().into(),
            trust_domain: flags.trust_domain.as_str().into(),
            namespace: named(&flags.namespace, "POD_NAMESPACE", "istio-system"),
            registries,
            certificates: variables
                .get("PILOT_CERT_DIR")
                .unwrap_or("/etc/certs/")
                .into(),
        };
        warnings.extend(variables.unread());
        Ok((options, warnings))
    }
}

/// Reads the settings of the resources.
fn settings(
    flags: &DiscoveryFlags,
    variables: &Variables<'_>,
    cluster: &str,
) -> Result<Settings, Failure> {
    let sniffing = "PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_";
    Ok(Settings {
        cluster: cluster.into(),
        domain: flags.domain.as_str().into(),
        trust_domain: flags.trust_domain.as_str().into(),
        trace_sampling: trace_sampling(variables)?,
        initial_fetch_timeout: variables.duration("PILOT_INITIAL_FETCH_TIMEOUT", Duration::ZERO)?,
        sniffing: Sniffing {
            outbound: variables.boolean(&format!("{sniffing}OUTBOUND"), true)?,
            inbound: variables.boolean(&format!("{sniffing}INBOUND"), true)?,
        },
        http10: variables.boolean("PILOT_HTTP10", false)?,
        headless: Headless {
            listeners: headless_listeners(variables)?,
            eds: variables.boolean("PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES", false)?,
        },
        block_http_on_443: variables.boolean("PILOT_BLOCK_HTTP_ON_443", true)?,
        inbound_detection_timeout: inbound_detection_timeout(variables)?,
        dns_refresh: dns_refresh(variables)?,
        gateways_of_own_namespace: variables.boolean("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", false)?,
    })
}

fn trace_sampling(variables: &Variables<'_>) -> Result<f64, Failure> {
    let percent: f64 = variables.read("PILOT_TRACE_SAMPLING", 1.0)?;
    match (0.0..=100.0).contains(&percent) {
        true => Ok(percent),
        false => Err(wrong("PILOT_TRACE_SAMPLING", "want 0 to 100")),
    }
}

/// Pilot's own variable comes before the shorter one.
fn headless_listeners(variables: &Variables<'_>) -> Result<bool, Failure> {
    let usual = variables.boolean("PILOT_ENABLE_HEADLESS_SERVICE", true)?;
    variables.boolean("PILOT_ENABLE_HEADLESS_SERVICE_POD_LISTENERS", usual)
}

fn dns_refresh(variables: &Variables<'_>) -> Result<DnsRefresh, Failure> {
    let by_ttl = variables.boolean("PILOT_RESPECT_DNS_TTL", true)?;
    Ok(match by_ttl {
        true => DnsRefresh::ByTtl,
        false => DnsRefresh::AtRate,
    })
}

/// Returns the inbound timeout; without it the mesh's `protocolDetectionTimeout` holds for both directions.
fn inbound_detection_timeout(variables: &Variables<'_>) -> Result<Option<Duration>, Failure> {
    const NAME: &str = "PILOT_INBOUND_PROTOCOL_DETECTION_TIMEOUT";
    let timeout = variables
        .get(NAME)
        .map(|_| variables.duration(NAME, Duration::ZERO));
    timeout.transpose()
}

/// The number of pushes at a time, and that of streams of one connection.
fn limits(variables: &Variables<'_>) -> Result<(usize, u32), Failure> {
    let throttle: usize = variables.read("PILOT_PUSH_THROTTLE", 100)?;
    let streams: u32 = variables.read("ISTIO_GPRC_MAXSTREAMS", STREAMS)?;
    if !(1..=MAX_THROTTLE).contains(&throttle) {
        let wanted = format!("want a number from 1 to {MAX_THROTTLE}");
        return Err(wrong("PILOT_PUSH_THROTTLE", &wanted));
    }
    if streams == 0 {
        return Err(wrong("ISTIO_GPRC_MAXSTREAMS", "want a number above 0"));
    }
    Ok((throttle, streams))
}

/// Warnings about flags that have no effect.
fn without_effect(flags: &DiscoveryFlags) -> impl Iterator<Item = String> {
    const SECURITY: &str =
        "--ignoreSecurityPolicies has no effect: all kinds of security.istio.io are enforced";
    const NAMESPACE: &str = "--appNamespace applies to clusters only; --configDir is read whole";
    let security = flags.ignore_security_policies.then(|| SECURITY.to_owned());
    let has_files = given(flags.app_namespace.as_deref()).is_some() && flags.config_dir.is_some();
    security
        .into_iter()
        .chain(has_files.then(|| NAMESPACE.to_owned()))
}

/// Prefixes of the variables that pilot-discovery reads.
const PREFIXES: [&str; 4] = ["PILOT_", "ISTIO_GPRC_", "K8S_INGRESS_NS", "XDS_AUTH"];

/// The minimum interval between two fetches of keys: the issuer is another party.
const MIN_REFRESH: Duration = Duration::from_secs(1);

fn jwks_refresh(variables: &Variables<'_>) -> Result<Duration, Failure> {
    const NAME: &str = "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL";
    let refresh = variables.duration(NAME, Duration::from_secs(20 * 60))?;
    if refresh < MIN_REFRESH {
        return Err(wrong(NAME, "want a second at least"));
    }
    Ok(refresh)
}

/// The time for which changes are collected.
fn quiet(variables: &Variables<'_>) -> Result<DebounceOptions, Failure> {
    let usual = DebounceOptions::default();
    Ok(DebounceOptions {
        quiet: variables.duration("PILOT_DEBOUNCE_AFTER", usual.quiet)?,
        max: variables.duration("PILOT_DEBOUNCE_MAX", usual.max)?,
        endpoints: variables.boolean("PILOT_ENABLE_EDS_DEBOUNCE", usual.endpoints)?,
    })
}

fn registries(
    flags: &DiscoveryFlags,
    warnings: &mut Vec<String>,
) -> Result<Vec<Registry>, Failure> {
    let list = match (&flags.registries, &flags.config_dir) {
        (Some(list), _) => list.clone(),
        (None, Some(_)) => Vec::new(),
        (None, None) => vec!["Kubernetes".to_owned()],
    };
    let (mut registries, mut names) = (Vec::new(), BTreeSet::new());
    let mut repeated = BTreeSet::new();
    for name in list.iter().filter(|name| !name.is_empty()) {
        let lower = name.to_ascii_lowercase();
        let registry = match lower.as_str() {
            "kubernetes" => Some(Registry::Kubernetes),
            "consul" => Some(Registry::Consul),
            "mock" => Some(Registry::Memory),
            // Its sources are another role's.
            "mcp" => None,
            _ => {
                return Err(Failure::config(format!(
                    "cannot use --registries {name:?}: want Kubernetes, Consul, Mock or MCP"
                )));
            }
        };
        if names.insert(lower.clone()) {
            registries.extend(registry);
        } else if repeated.insert(lower) {
            warnings.push(format!("--registries names {name} more than once"));
        }
    }
    if registries.contains(&Registry::Consul) && flags.consul_server_url.is_none() {
        return Err(Failure::config(
            "cannot use Consul: --consulserverURL is missing",
        ));
    }
    Ok(registries)
}

fn wrong(name: &str, cause: impl Display) -> Failure {
    Failure::config(format!("cannot use {name}: {cause}"))
}

/// Variables that are not empty.
struct Variables<'a> {
    all: &'a Environment,
    /// The names that were asked for.
    read: RefCell<BTreeSet<String>>,
}

impl Variables<'_> {
    /// Returns a warning about variables of pilot-discovery that nothing reads. Kubernetes sets some for each Service, which are none
    /// of them.
    fn unread(&self) -> Option<String> {
        let read = self.read.borrow();
        let is_pilots = |name: &str| {
            let of_service =
                name.contains("_SERVICE_") || name.ends_with("_PORT") || name.contains("_PORT_");
            PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !of_service
        };
        let names = self.all.iter().filter(|(name, value)| {
            !value.is_empty() && is_pilots(name) && !read.contains(name.as_str())
        });
        let names: Vec<_> = names.map(|(name, _)| name.as_str()).collect();
        let have = if names.len() == 1 {
            "variable that has"
        } else {
            "variables that have"
        };
        (!names.is_empty()).then(|| format!("{have} no effect here: {}", names.join(", ")))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.read.borrow_mut().insert(name.to_owned());
        self.all
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    fn parsed<T>(
        &self,
        name: &str,
        usual: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        match self.get(name) {
            None => Ok(usual),
            Some(text) => {
                parse(text).map_err(|cause| wrong(name, format!("{cause}, got {text:?}")))
            }
        }
    }

    fn read<T: FromStr>(&self, name: &str, usual: T) -> Result<T, Failure> {
        self.parsed(name, usual, |text| {
            text.parse().map_err(|_| "want a number".to_owned())
        })
    }

    fn boolean(&self, name: &str, usual: bool) -> Result<bool, Failure> {
        self.parsed(name, usual, values::boolean)
    }

    fn duration(&self, name: &str, usual: Duration) -> Result<Duration, Failure> {
        self.parsed(name, usual, values::duration)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{Action, parse};
    use crate::exit::Exit;

    fn read(
        line: &str,
        environment: &[(&str, &str)],
    ) -> Result<(DiscoveryOptions, Vec<String>), Failure> {
        let arguments: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let Action::Discovery(flags) = parse(&arguments).unwrap().action else {
            panic!("{line}")
        };
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        DiscoveryOptions::new(&flags, &environment)
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let (options, warnings) = read("gudgeon discovery", &[]).unwrap();
        assert_eq!(*options.settings, Settings::default());
        assert_eq!(options.quiet, DebounceOptions::default());
        assert_eq!((options.throttle, options.connections.streams), (100, 100));
        assert_eq!(options.registries, [Registry::Kubernetes]);
        assert!(options.identity_check && warnings.is_empty());
    }

    #[test]
    fn variables_that_nothing_reads_are_named_in_one_warning() {
        let environment = [
            ("PILOT_SIDECAR_USE_REMOTE_ADDRESS", "true"),
            ("PILOT_ENABLE_EDS_DEBOUCE", "false"),
            ("XDS_AUTH", "false"),
            ("PILOT_RESPECT_DNS_TTL", ""),
            ("PILOT_HTTP10", "true"),
            ("PILOT_PORT_15010_TCP", "tcp://10.0.0.1:15010"),
            ("PILOT_SERVICE_HOST", "10.0.0.1"),
            ("HOME", "/"),
        ];
        let (_, warnings) = read("gudgeon discovery", &environment).unwrap();
        assert_eq!(
            warnings,
            [
                "variables that have no effect here: PILOT_ENABLE_EDS_DEBOUCE, PILOT_SIDECAR_USE_REMOTE_ADDRESS, XDS_AUTH"
            ]
        );
        let (_, warnings) = read("gudgeon discovery", &environment[..1]).unwrap();
        assert_eq!(
            warnings,
            ["variable that has no effect here: PILOT_SIDECAR_USE_REMOTE_ADDRESS"]
        );
        assert!(
            read("gudgeon discovery", &environment[3..])
                .unwrap()
                .1
                .is_empty()
        );
    }

    #[test]
    fn headless_services_are_switched_off_by_pilots_variable_and_by_the_shorter_one() {
        const OWN: &str = "PILOT_ENABLE_HEADLESS_SERVICE_POD_LISTENERS";
        const SHORT: &str = "PILOT_ENABLE_HEADLESS_SERVICE";
        for (environment, listeners) in [
            (vec![], true),
            (vec![(OWN, "false")], false),
            (vec![(SHORT, "false")], false),
            (vec![(OWN, "true"), (SHORT, "false")], true),
        ] {
            let (options, _) = read("gudgeon discovery", &environment).unwrap();
            assert_eq!(
                options.settings.headless.listeners, listeners,
                "{environment:?}"
            );
        }
    }

    #[test]
    fn flags_win_over_variables_and_variables_over_defaults() {
        let environment = [
            ("CLUSTER_ID", "east"),
            ("PILOT_DEBOUNCE_AFTER", "1s"),
            ("PILOT_ENABLE_EDS_DEBOUNCE", "false"),
            ("PILOT_TRACE_SAMPLING", "100"),
            ("PILOT_CERT_DIR", ""),
        ];
        let (options, _) = read("pilot-discovery discovery", &environment).unwrap();
        assert_eq!(options.settings.cluster, "east".into());
        assert_eq!(
            (options.quiet.quiet, options.quiet.endpoints),
            (Duration::from_secs(1), false)
        );
        assert_eq!(options.certificates, std::path::Path::new("/etc/certs/"));
        let (options, _) = read("gudgeon discovery --clusterID west", &environment).unwrap();
        assert_eq!(options.settings.cluster, "west".into());
    }

    /// Istio's own defaults of these flags are empty.
    #[test]
    fn an_empty_flag_is_none() {
        let names = |options: &DiscoveryOptions| {
            let cluster = options.settings.cluster.as_str().to_owned();
            [cluster, options.namespace.to_string()]
        };
        let empty = "--clusterID= --namespace= --appNamespace= --clusterRegistriesNamespace=";
        let variables = [("CLUSTER_ID", "east"), ("POD_NAMESPACE", "mesh")];
        for (line, environment, expected) in [
            (empty, &variables[..], ["east", "mesh"]),
            (empty, &[], ["Kubernetes", "istio-system"]),
            ("--clusterID=west -n=a", &variables[..], ["west", "a"]),
        ] {
            let line = format!("gudgeon discovery --configDir d {line}");
            let (options, warnings) = read(&line, environment).unwrap();
            assert_eq!(names(&options), expected, "{line}");
            assert!(warnings.is_empty(), "{warnings:?}");
        }
    }

    /// Each by another value than the one that it has without.
    #[test]
    fn variables_reach_what_resources_are_made_by() {
        let environment = [
            ("PILOT_INITIAL_FETCH_TIMEOUT", "7s"),
            ("PILOT_TRACE_SAMPLING", "12.5"),
            ("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND", "false"),
            ("PILOT_HTTP10", "true"),
            ("PILOT_ENABLE_HEADLESS_SERVICE", "false"),
            ("ISTIO_GPRC_MAXSTREAMS", "9"),
        ];
        let (options, _) = read("gudgeon discovery", &environment).unwrap();
        let expected = Settings {
            initial_fetch_timeout: Duration::from_secs(7),
            trace_sampling: 12.5,
            sniffing: Sniffing {
                outbound: false,
                inbound: true,
            },
            http10: true,
            headless: Headless {
                listeners: false,
                eds: false,
            },
            ..Settings::default()
        };
        assert_eq!(*options.settings, expected);
        assert_eq!(
            (options.connections.streams, options.cluster_metrics),
            (9, false)
        );
        let environment = [
            ("PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_INBOUND", "false"),
            ("PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES", "true"),
            ("PILOT_ENABLE_CLUSTER_METRICS", "true"),
            ("PILOT_BLOCK_HTTP_ON_443", "false"),
            ("PILOT_INBOUND_PROTOCOL_DETECTION_TIMEOUT", "1s"),
            ("PILOT_RESPECT_DNS_TTL", "false"),
            ("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", "true"),
        ];
        let (options, _) = read("gudgeon discovery", &environment).unwrap();
        let expected = Settings {
            sniffing: Sniffing {
                outbound: true,
                inbound: false,
            },
            headless: Headless {
                listeners: true,
                eds: true,
            },
            block_http_on_443: false,
            inbound_detection_timeout: Some(Duration::from_secs(1)),
            dns_refresh: DnsRefresh::AtRate,
            gateways_of_own_namespace: true,
            ..Settings::default()
        };
        assert_eq!(*options.settings, expected);
        assert!(options.cluster_metrics);
    }

    #[test]
    fn registries_in_their_order() {
        for (line, registries, warnings) in [
            ("--configDir d", vec![], 0),
            ("--configDir d --appNamespace demo", vec![], 1),
            ("--appNamespace demo", vec![Registry::Kubernetes], 0),
            (
                "--registries mock,KUBERNETES,Mock",
                vec![Registry::Memory, Registry::Kubernetes],
                1,
            ),
            ("--registries Mock,mock,MOCK", vec![Registry::Memory], 1),
            ("--registries MCP --configDir d", vec![], 0),
            ("--registries MCP,mock,mcp", vec![Registry::Memory], 1),
            (
                "--registries Consul --consulserverURL http://c:8500",
                vec![Registry::Consul],
                0,
            ),
        ] {
            let (options, reported) = read(&format!("gudgeon discovery {line}"), &[]).unwrap();
            assert_eq!(
                (options.registries, reported.len()),
                (registries, warnings),
                "{line}"
            );
        }
    }

    #[test]
    fn an_error_names_the_malformed_variable() {
        for (line, variable, value, message) in [
            (
                "",
                "PILOT_DEBOUNCE_AFTER",
                "soon",
                "cannot use PILOT_DEBOUNCE_AFTER: want a duration",
            ),
            (
                "",
                "PILOT_HTTP10",
                "maybe",
                "cannot use PILOT_HTTP10: want true or false, got \"maybe\"",
            ),
            (
                "",
                "PILOT_PUSH_THROTTLE",
                "0",
                "cannot use PILOT_PUSH_THROTTLE: want a number from 1 to 1000000",
            ),
            (
                "",
                "PILOT_PUSH_THROTTLE",
                "18446744073709551615",
                "cannot use PILOT_PUSH_THROTTLE: want a number from 1 to 1000000",
            ),
            (
                "",
                "PILOT_PUSH_THROTTLE",
                "-1",
                "cannot use PILOT_PUSH_THROTTLE: want a number, got",
            ),
            (
                "",
                "PILOT_TRACE_SAMPLING",
                "101",
                "cannot use PILOT_TRACE_SAMPLING: want 0 to 100",
            ),
            (
                "",
                "PILOT_INITIAL_FETCH_TIMEOUT",
                "7",
                "cannot use PILOT_INITIAL_FETCH_TIMEOUT: want a duration",
            ),
            (
                "",
                "ISTIO_GPRC_MAXSTREAMS",
                "0",
                "cannot use ISTIO_GPRC_MAXSTREAMS: want a number above 0",
            ),
            (
                " --registries Eureka",
                "X",
                "",
                "cannot use --registries \"Eureka\": want",
            ),
            (
                " --registries Consul",
                "X",
                "",
                "cannot use Consul: --consulserverURL is missing",
            ),
        ] {
            let failure =
                read(&format!("gudgeon discovery{line}"), &[(variable, value)]).unwrap_err();
            assert_eq!(failure.exit, Exit::Config);
            assert!(failure.message.starts_with(message), "{}", failure.message);
        }
    }
}
