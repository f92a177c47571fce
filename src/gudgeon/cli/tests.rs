//! Tables of command lines.

use std::path::Path;

use super::*;

fn parsed(line: &str) -> Result<Parsed, EarlyExit> {
    let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse(&arguments)
}

fn injector(line: &str) -> InjectorFlags {
    match parsed(line) {
        Ok(Parsed {
            action: Action::Injector(flags),
            ..
        }) => *flags,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_definitions_hold() {
    for name in [
        Name::Gudgeon,
        Name::PilotDiscovery,
        Name::Galley,
        Name::SidecarInjector,
        Name::Istioctl,
    ] {
        name.command().debug_assert();
    }
}

#[test]
fn defaults_are_the_originals() {
    let flags = injector("gudgeon injector");
    assert_eq!(flags.port, 443);
    assert_eq!(flags.monitoring_port, 15014);
    assert_eq!(
        flags.tls_cert_file,
        Path::new("/etc/istio/certs/cert-chain.pem")
    );
    assert_eq!(flags.webhook_config_name, ["istio-sidecar-injector"]);
    assert_eq!(flags.webhook_name, "sidecar-injector.istio.io");
    assert!(flags.reconcile_webhook_config && !flags.self_signed);
    assert_eq!(flags.self_signed_ttl.as_secs(), 720 * 3600);
    assert_eq!(flags.drain_duration.as_secs(), 5);
    assert_eq!(flags.inject_config, None);
    assert_eq!(flags.builtin.cni, None);
}

fn galley(line: &str) -> (GalleyFlags, Vec<String>) {
    match parsed(line) {
        Ok(Parsed {
            action: Action::Galley(flags),
            warnings,
        }) => (*flags, warnings),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn defaults_of_galley_are_the_originals() {
    for line in [
        "gudgeon galley",
        "galley",
        "galley server",
        "/bin/galley server",
    ] {
        let (flags, warnings) = galley(line);
        assert_eq!(warnings, [""; 0]);
        let GalleyFlags { mcp, webhook, .. } = &flags;
        assert!(flags.config_path.as_os_str().is_empty() && flags.mesh_config_file.is_none());
        assert!(flags.watch_config_files && mcp.enable_server && webhook.enable_reconcile);
        assert!(!flags.enable_service_discovery && !flags.enable_analysis && !mcp.insecure);
        assert_eq!(webhook.enable_validation, None);
        assert_eq!(mcp.server_address, "tcp://0.0.0.0:9901");
        assert_eq!(
            (
                mcp.server_max_received_message_size,
                mcp.server_max_concurrent_streams
            ),
            (1_048_576, 1024)
        );
        assert_eq!(mcp.keepalive_max_server_connection_age, None);
        assert_eq!(
            [&mcp.tls_cert_file, &mcp.tls_key_file, &mcp.ca_cert_file]
                .map(|path| path.to_str().unwrap()),
            [
                "/etc/certs/cert-chain.pem",
                "/etc/certs/key.pem",
                "/etc/certs/root-cert.pem"
            ]
        );
        assert_eq!(
            mcp.access_list_file,
            Path::new("/etc/config/accesslist.yaml")
        );
        assert_eq!(
            (webhook.port(), &*webhook.webhook_name),
            (9443, "istio-galley")
        );
        assert_eq!(flags.liveness_probe_path, Path::new("/healthLiveness"));
        assert_eq!(flags.readiness_probe_path, Path::new("/healthReadiness"));
        assert_eq!(flags.readiness_probe_interval.as_secs(), 2);
        assert_eq!((flags.monitoring_port, flags.ctrlz_port), (15014, 9876));
        assert_eq!(flags.ctrlz_address, "127.0.0.1");
    }
}

/// The command lines of Istio's charts, 1.1 and 1.5.
#[test]
fn command_lines_of_the_charts_are_taken() {
    let (flags, warnings) = galley(
        "/usr/local/bin/galley server --meshConfigFile=/etc/mesh-config/mesh --livenessProbeInterval=1s \
         --livenessProbePath=/healthliveness --readinessProbePath=/healthready --readinessProbeInterval=1s \
         --deployment-namespace=istio-system --insecure=true --validation-webhook-config-file \
         /etc/config/validatingwebhookconfiguration.yaml --monitoringPort=15014 \
         --log_output_level=default:info",
    );
    assert_eq!(warnings, [""; 0]);
    assert!(flags.mcp.insecure);
    assert_eq!(flags.webhook.port(), 443);
    assert_eq!(
        flags.webhook.webhook_config_file,
        Path::new("/etc/config/validatingwebhookconfiguration.yaml")
    );
    assert_eq!(
        flags.mesh_config_file.as_deref(),
        Some(Path::new("/etc/mesh-config/mesh"))
    );
    let (flags, warnings) = galley(
        "galley server --meshConfigFile=/etc/mesh-config/mesh --livenessProbeInterval=1s \
         --livenessProbePath=/tmp/healthliveness --readinessProbePath=/tmp/healthready --readinessProbeInterval=1s \
         --insecure=false --enable-validation=true --enable-reconcileWebhookConfiguration=true --enable-server=true \
         --deployment-namespace=istio-system --validation-webhook-config-file /etc/config/v.yaml --monitoringPort=15014 \
         --validation-port=9443 --enableServiceDiscovery=true --enableAnalysis=false --excludedResourceKinds=Node,Pod \
         --useOldProcessor=false --disableResourceReadyCheck --resyncPeriod 10s -c /x --config /y --deployment-name g \
         --enableProfiling --pprofPort 9094 --enableGRPCTracing --profile=true \
         --keepaliveMaxServerConnectionAge 2562047h47m16.854775807s --log_caller default \
         --validation.tls.clientCertificate /c --validation.tls.private-key=/k",
    );
    assert!(flags.enable_service_discovery && !flags.enable_analysis);
    assert_eq!(flags.webhook.enable_validation, Some(true));
    assert_eq!(flags.webhook.certificate.as_deref(), Some(Path::new("/c")));
    assert_eq!(flags.webhook.private_key.as_deref(), Some(Path::new("/k")));
    // Each once.
    assert_eq!(warnings.len(), 11, "{warnings:?}");
    assert!(warnings.contains(&"ignoring --config: it has no meaning here".to_owned()));
    for line in [
        "/usr/local/bin/galley probe --probe-path=/healthready --interval=10s",
        "gudgeon galley probe --probe-path=/healthready --interval 10s",
    ] {
        let Action::Probe(flags) = parsed(line).unwrap().action else {
            panic!("{line}")
        };
        assert_eq!(flags.interval.as_secs(), 10);
    }
    for (line, exit) in [
        ("galley serve", Exit::Usage),
        ("galley --configpath x", Exit::Usage),
        ("galley --ctrlz_port x", Exit::Config),
        ("galley --livenessProbeInterval 0", Exit::Config),
        ("galley --readinessProbeInterval 0s", Exit::Config),
        ("galley --domain a_b..c", Exit::Config),
        ("galley server --help", Exit::Done),
    ] {
        assert_eq!(parsed(line).unwrap_err().exit, exit, "{line}");
    }
}

#[test]
fn all_spellings_are_one_flag() {
    for line in [
        "gudgeon injector --injectConfig /x --selfSignedTTL 2h",
        "gudgeon injector --inject-config=/x --self-signed-ttl=2h",
        "gudgeon injector -injectConfig /x -selfSignedTTL=2h",
        "gudgeon injector --injectConfig /y --injectConfig /x --selfSignedTTL 2h",
        "sidecar-injector --injectConfig /x --selfSignedTTL 2h",
        "/usr/local/bin/sidecar-injector --inject-config /x --self-signed-ttl 2h",
    ] {
        let flags = injector(line);
        assert_eq!(
            flags.inject_config.as_deref(),
            Some(Path::new("/x")),
            "{line}"
        );
        assert_eq!(flags.self_signed_ttl.as_secs(), 7200, "{line}");
    }
}

#[test]
fn values_of_each_kind() {
    let flags = injector(
        "sidecar-injector --port 0 --monitoringPort -1 --selfSigned --reconcileWebhookConfig=false --selfSignedNames a,b \
         --selfSignedNames c --webhookConfigName one --webhookConfigName two --cni=false --log_output_level debug \
         --log_as_json --log_target stderr",
    );
    assert_eq!((flags.port, flags.monitoring_port), (0, -1));
    assert!(flags.self_signed && !flags.reconcile_webhook_config && flags.log.log_as_json);
    assert_eq!(flags.self_signed_names, ["a", "b", "c"]);
    assert_eq!(flags.webhook_config_name, ["one", "two"]);
    assert_eq!(flags.builtin.cni, Some(false));
    assert_eq!(flags.log.log_target, ["stderr"]);
}

/// As the original prints its default.
#[test]
fn a_connection_may_live_for_ever() {
    for age in ["2562047h47m16.854775807s", "infinity", "30m", "0s"] {
        let line = format!("gudgeon discovery --keepaliveMaxServerConnectionAge {age}");
        let Ok(Parsed {
            action: Action::Discovery(flags),
            ..
        }) = parsed(&line)
        else {
            panic!("{line}");
        };
        let age = values::age(age).unwrap();
        assert_eq!(flags.keepalive_max_server_connection_age, Some(age));
    }
}

/// The built-in template gives it to the agent, which ends at others.
#[test]
fn the_discovery_address_is_one_that_agents_take() {
    for text in [
        "",
        "d:15010",
        "d.istio-system.svc:1",
        "10.0.0.1:1",
        "[::1]:1",
    ] {
        assert!(values::host_port(text).is_ok(), "{text}");
    }
    for text in ["d", "d:0", "d:65536", "a_b:1", "a b:1", "::1:1", "-a:1"] {
        assert!(values::host_port(text).is_err(), "{text}");
    }
}

#[test]
fn wrong_command_lines_have_their_exit_codes() {
    for (line, exit, text) in [
        ("gudgeon", Exit::Usage, "Usage: gudgeon"),
        ("gudgeon injectr", Exit::Usage, "injector"),
        (
            "gudgeon injector --injectConfg x",
            Exit::Usage,
            "--injectConfig",
        ),
        (
            "sidecar-injector --web-hook-name x",
            Exit::Usage,
            "--web-hook-name",
        ),
        ("gudgeon injector extra", Exit::Usage, "extra"),
        ("gudgeon injector --port", Exit::Usage, "--port"),
        ("gudgeon injector --port http", Exit::Config, "--port"),
        (
            "gudgeon injector --discoveryAddress a",
            Exit::Config,
            "HOST:PORT",
        ),
        (
            "gudgeon injector --discoveryAddress a:0",
            Exit::Config,
            "HOST:PORT",
        ),
        (
            "gudgeon injector --proxyImage=",
            Exit::Usage,
            "name of an image",
        ),
        (
            "gudgeon injector --initImage=a,b",
            Exit::Config,
            "name of an image",
        ),
        ("gudgeon injector --port 65536", Exit::Config, "65536"),
        ("gudgeon injector --monitoringPort -2", Exit::Config, "-2"),
        (
            "gudgeon injector --selfSignedTTL 3",
            Exit::Config,
            "duration",
        ),
        (
            "gudgeon injector --selfSigned=yes",
            Exit::Config,
            "true or false",
        ),
        (
            "gudgeon injector --nativeSidecars maybe",
            Exit::Config,
            "auto",
        ),
        ("gudgeon completion tcsh", Exit::Usage, "tcsh"),
        ("gudgeon --help", Exit::Done, "Exit codes:"),
        ("gudgeon injector --help", Exit::Done, "--self-signed"),
        ("gudgeon help injector", Exit::Done, "--self-signed"),
        ("sidecar-injector -h", Exit::Done, "--webhookName"),
        (
            "istioctl kube-inject --help",
            Exit::Done,
            "--injectConfigFile",
        ),
        ("istioctl injector", Exit::Usage, "injector"),
    ] {
        let ended = parsed(line).expect_err(line);
        assert_eq!(ended.exit, exit, "{line}: {}", ended.text);
        assert!(ended.text.contains(text), "{line}: {}", ended.text);
    }
}

#[test]
fn flags_without_a_meaning_are_warned_about_once() {
    // Under both names: their flags are spelled otherwise.
    let line = "gudgeon injector --log_caller default --log-rotate=/x --logtostderr";
    assert_eq!(parsed(line).unwrap().warnings.len(), 3);
    let parsed = parsed(
        "sidecar-injector --log_caller default --log_rotate_max_age 30 --logtostderr --log-rotate=/x --log_caller=all",
    )
    .unwrap();
    assert_eq!(
        parsed.warnings,
        [
            "ignoring --log_caller: it has no meaning here",
            "ignoring --log_rotate: it has no meaning here",
            "ignoring --log_rotate_max_age: it has no meaning here",
            "ignoring --logtostderr: it has no meaning here",
        ]
    );
}

/// The migration pages name each flag that is accepted and ignored.
#[test]
fn flags_without_a_meaning_are_named_on_the_pages() {
    let istio = include_str!("../../../build/kubernetes/coming-from-istio.md");
    let galley = include_str!("../../../build/kubernetes/coming-from-galley.md");
    for (page, command) in [
        (istio, "injector"),
        (istio, "inject"),
        (istio, "discovery"),
        (galley, "galley"),
        (galley, "validate"),
    ] {
        let (_, flags) = page.split_once("\n## Flags\n").unwrap();
        let (flags, _) = flags.split_once("\n### ").unwrap();
        let own = format!("`{command}`");
        let items = flags.split("\n- ").skip(1);
        let items: Vec<&str> = items
            .filter(|item| item.starts_with("all:") || item.starts_with(&own))
            .collect();
        assert_eq!(items.len(), 2, "{command}");
        let is_named = |flag: &str| items.iter().any(|item| item.contains(flag));
        for (name, _) in meaningless::of(command, true) {
            assert!(is_named(&format!("`--{name}`")), "{command} --{name}");
            if let Some(letter) = meaningless::short(name) {
                assert!(is_named(&format!("`-{letter}`")), "{command} -{letter}");
            }
        }
    }
}

#[test]
fn manifests() {
    for line in [
        "gudgeon inject -f a -f b -o c --hub h --tag t --includeIPRanges 10.0.0.0/8 --debug --verbosity 3 -i ns",
        "istioctl kube-inject -f a --filename b --output c --hub h --tag t --include-ip-ranges 10.0.0.0/8 --debug \
         --verbosity=3 --istioNamespace ns",
    ] {
        let Parsed { action, warnings } = parsed(line).unwrap();
        let Action::Inject(flags) = action else {
            panic!("{line}")
        };
        assert_eq!(flags.files, ["a", "b"]);
        assert_eq!(flags.output.as_deref(), Some(Path::new("c")));
        assert_eq!(
            flags.kube_inject.include_ip_ranges.as_deref(),
            Some("10.0.0.0/8")
        );
        assert_eq!(flags.istio_namespace, "ns");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
}

#[test]
fn the_rest() {
    for line in [
        "gudgeon probe --probe-path /x --interval 4s",
        "sidecar-injector probe --probePath=/x --interval=4s",
    ] {
        let Action::Probe(flags) = parsed(line).unwrap().action else {
            panic!("{line}")
        };
        assert_eq!(
            (flags.probe_path.as_path(), flags.interval.as_secs()),
            (Path::new("/x"), 4)
        );
    }
    let Action::Version(flags) = parsed("gudgeon version -o json").unwrap().action else {
        panic!()
    };
    let json: serde_json::Value = serde_json::from_str(&version(&flags)).unwrap();
    assert_eq!(json["clientVersion"]["version"], VERSION);
    let bash = completion(&["sidecar-injector".into()], clap_complete::Shell::Bash);
    let bash = String::from_utf8(bash).unwrap();
    assert!(
        bash.contains("--selfSignedTTL") && !bash.contains("log_caller"),
        "{bash}"
    );
}

#[test]
fn a_flag_without_a_meaning_is_one_of_its_own_command_only() {
    let asked = parsed("istioctl validate -x -c /k -f a -n ns -f - -o json").unwrap();
    let Action::Validate(flags) = asked.action else {
        panic!("{:?}", asked.action);
    };
    assert_eq!(flags.files, ["a", "-"]);
    assert_eq!(
        (flags.namespace.as_deref(), flags.output),
        (Some("ns"), ReportFormat::Json)
    );
    assert_eq!(
        asked.warnings,
        [
            "ignoring --kubeconfig: it has no meaning here",
            "ignoring --referential: it has no meaning here",
        ]
    );
    for (line, count) in [
        ("gudgeon validate -f a", 0),
        ("gudgeon discovery -n ns", 0),
        ("gudgeon inject -f a -n ns", 1),
        ("istioctl kube-inject -f a --debug", 1),
    ] {
        assert_eq!(parsed(line).unwrap().warnings.len(), count, "{line}");
    }
}

/// As users of istioctl and pilot-discovery type them.
#[test]
fn flags_may_stand_in_front_of_the_command() {
    for (line, command) in [
        ("istioctl -n foo analyze a", "Analyze"),
        ("istioctl -n foo x analyze a", "Analyze"),
        ("istioctl --context c -c F validate -f a,b", "Validate"),
        ("istioctl -i istio-system kube-inject -f a", "Inject"),
        (
            "istioctl --log_output_level=all:debug version --remote=false",
            "Version",
        ),
        ("istioctl proxy-status", "ProxyStatus"),
        ("istioctl ps", "ProxyStatus"),
        ("istioctl -i istio-system proxy-status", "ProxyStatus"),
        ("istioctl -n x analyze a", "Analyze"),
        ("istioctl -n validate analyze a", "Analyze"),
        ("istioctl x -n foo analyze a", "Analyze"),
        (
            "pilot-discovery --log_output_level=default:info discovery --kubeconfig x",
            "Discovery",
        ),
    ] {
        let asked = parsed(line).unwrap_or_else(|ended| panic!("{line}: {}", ended.text));
        let action = format!("{:?}", asked.action);
        assert!(action.starts_with(command), "{line}: {action}");
    }
    let Action::Validate(flags) = parsed("istioctl validate -f a,b").unwrap().action else {
        panic!("no validate")
    };
    assert_eq!(flags.files, ["a", "b"]);
    for (line, text) in [
        ("istioctl proxy-config clusters a.b", "/debug/config_dump"),
        ("istioctl x describe pod a", "/debug/configz"),
        (
            "istioctl -n foo proxy-config clusters a.b",
            "/debug/config_dump",
        ),
        ("istioctl verify-install", "build/kubernetes"),
    ] {
        let ended = parsed(line).expect_err(line);
        assert_eq!(ended.exit, Exit::Usage, "{line}");
        assert!(ended.text.contains(text), "{line}: {}", ended.text);
    }
}

/// Releases 1.3 and 1.4 had the command among their experiments.
#[test]
fn istioctl_had_analyze_in_a_group() {
    for group in ["x", "exp", "experimental"] {
        let line =
            format!("istioctl {group} analyze -k -d --ignore-unknown --remote-contexts a,b x");
        let asked = parsed(&line).unwrap();
        let Action::Analyze(flags) = asked.action else {
            panic!("{:?}", asked.action);
        };
        assert_eq!(
            (flags.use_kube, flags.more),
            (Some(true), vec!["x".to_owned()]),
            "{line}"
        );
        assert_eq!(
            asked.warnings,
            ["discovery", "ignore-unknown", "remote-contexts"]
                .map(|name| format!("ignoring --{name}: it has no meaning here")),
            "{line}"
        );
    }
    for (line, text) in [
        ("gudgeon x analyze", "unrecognized subcommand 'x'"),
        ("istioctl x x analyze", "unrecognized subcommand 'x'"),
        ("istioctl x create-remote-secret", "create-remote-secret"),
    ] {
        let ended = parsed(line).expect_err(line);
        assert_eq!(ended.exit, Exit::Usage, "{line}");
        assert!(ended.text.contains(text), "{line}: {}", ended.text);
    }
}

/// Names that the flags got after 1.5.
#[test]
fn flags_by_the_names_of_later_releases() {
    let line = "gudgeon discovery --secureGRPCAddr :1 --shutdownDuration 3s --kubernetesApiQPS 80 --kubernetesApiBurst 160";
    match parsed(line) {
        Ok(Parsed {
            action: Action::Discovery(flags),
            warnings,
        }) => {
            assert_eq!(flags.secure_grpc_addr, ":1");
            assert_eq!(flags.drain_duration.as_secs(), 3);
            assert_eq!(warnings.len(), 2, "{warnings:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Charts of later releases have them.
#[test]
fn discovery_ignores_flags_of_later_releases() {
    let line = "gudgeon discovery --tlsCertFile /c --tlsKeyFile=/k --caCertFile /ca --tls-cipher-suites=a,b --tls-min-version TLSv1_3 \
                --clusterAliases=a=b --cniNamespace=istio-system";
    let warnings = parsed(line).unwrap().warnings;
    assert_eq!(warnings.len(), 7, "{warnings:?}");
    let of_certificates =
        "ignoring --tlsCertFile: certificates are those in the directory that PILOT_CERT_DIR names";
    assert!(
        warnings.iter().any(|one| one == of_certificates),
        "{warnings:?}"
    );
}

#[test]
fn a_tip_leads_to_no_flag_that_is_ignored() {
    for line in [
        "gudgeon discovery --tls-cert-fil x",
        "gudgeon injector --http-port 1",
        "gudgeon galley --http-port 1",
    ] {
        let text = parsed(line).unwrap_err().text;
        assert!(!text.contains("similar"), "{line}: {text}");
    }
    let text = parsed("gudgeon discovery --config-di x").unwrap_err().text;
    assert!(text.contains("'--config-dir'"), "{text}");
}

/// Their help is written for each role alone; `all` lacks some of its flags.
#[test]
fn help_of_all_names_only_flags_that_it_has() {
    let help = parsed("gudgeon all --help").unwrap_err().text;
    let command = Name::Gudgeon.command();
    let all = command.find_subcommand("all").unwrap();
    let is_there = |flag: &str| {
        all.get_arguments().any(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(flag) || aliases.contains(&flag)
        })
    };
    let is_of_flag = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    for word in help.split("--").skip(1) {
        let end = word.find(|letter| !is_of_flag(letter));
        let flag = &word[..end.unwrap_or(word.len())];
        let flag = flag.trim_end_matches('.');
        assert!(
            matches!(flag, "help" | "version") || is_there(flag),
            "--{flag}"
        );
    }
    for default in [
        "[default: where --server-address or --sink-address is given]",
        "[default: that of --port]",
    ] {
        assert!(help.contains(default), "{default}");
    }
}
