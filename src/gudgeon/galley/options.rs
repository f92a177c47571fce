//! Validates the flags in combination, once.

use std::path::{Path, PathBuf};

use sources::kubernetes::Access;
use tracing::{info, warn};

use crate::cli::{ACCESS_LIST, GalleyFlags, ValidationFlags};
use crate::exit::Failure;
use crate::shared::Shared;

/// The configuration that a program has with it.
const EMBEDDED: &str = "/etc/gudgeon/config";

/// The source of configuration.
#[derive(Clone, Debug)]
pub(super) enum From {
    /// No configuration is served.
    Nowhere,
    Files(PathBuf),
    Cluster(Access),
}

/// The enabled parts of the role.
#[derive(Clone, Debug)]
pub(super) struct GalleyOptions {
    pub(super) from: From,
    /// The webhook.
    pub(super) validation: bool,
    /// MCP.
    pub(super) server: bool,
}

/// Facts about the environment that defaults depend on.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
struct HostEnvironment {
    is_pod: bool,
    has_embedded: bool,
    has_certificate: bool,
    /// Another role of the process acts on the objects that galley reads, and has a listener for all webhooks.
    is_together: bool,
}

impl GalleyOptions {
    /// # Errors
    /// The flags contradict each other.
    pub(super) fn new(flags: &GalleyFlags, shared: &Shared) -> Result<Self, Failure> {
        let (chain, key) = certificate(flags);
        let environment = HostEnvironment {
            is_pod: Access::in_cluster(),
            has_embedded: Path::new(EMBEDDED).exists(),
            has_certificate: chain.exists() && key.exists(),
            is_together: shared.rules().is_some(),
        };
        let this = Self::of(flags, environment)?;
        for message in without_effect(flags, environment.is_pod) {
            warn!("{message}");
        }
        match flags.webhook.enable_validation {
            None if !this.validation => info!(
                "validation is off: there is no certificate at {}",
                chain.display()
            ),
            Some(false) if keeps_configuration(flags, environment.is_pod) => {
                info!("keeping no webhook configuration: --enable-validation is false");
            }
            None | Some(_) => {}
        }
        Ok(this)
    }

    fn of(flags: &GalleyFlags, environment: HostEnvironment) -> Result<Self, Failure> {
        let from = from(flags, environment)?;
        let wanted = flags.webhook.enable_validation;
        let possible =
            environment.has_certificate || environment.is_together || flags.webhook.self_signed;
        let validation = wanted.unwrap_or(possible || !matches!(from, From::Files(_)));
        if !validation && matches!(from, From::Nowhere) {
            return Err(Failure::config(
                "cannot serve anything: --enable-server and --enable-validation are both false",
            ));
        }
        Ok(Self {
            from,
            validation,
            server: flags.mcp.enable_server,
        })
    }
}

fn from(flags: &GalleyFlags, environment: HostEnvironment) -> Result<From, Failure> {
    let is_given = |path: &Path| !path.as_os_str().is_empty();
    if !flags.mcp.enable_server && !environment.is_together {
        return Ok(From::Nowhere);
    }
    if is_given(&flags.config_path) {
        return Ok(From::Files(flags.config_path.clone()));
    }
    if is_given(&flags.kubeconfig) {
        return Ok(From::Cluster(Access::Kubeconfig {
            file: Some(flags.kubeconfig.clone()),
            context: None,
        }));
    }
    if environment.is_pod {
        return Ok(From::Cluster(Access::InCluster));
    }
    if environment.has_embedded {
        return Ok(From::Files(EMBEDDED.into()));
    }
    Err(Failure::config(
        "cannot find configuration: give --configPath for files, or --kubeconfig for a cluster",
    ))
}

/// Tells of flags that do nothing beside the others, or without a cluster.
fn without_effect(flags: &GalleyFlags, is_pod: bool) -> Vec<String> {
    let GalleyFlags { mcp, webhook, .. } = flags;
    let is_file = |path: &Path| !path.as_os_str().is_empty();
    let serves_all = mcp.enable_server && mcp.insecure;
    let keeps_none =
        !keeps_configuration(flags, is_pod) || webhook.enable_validation == Some(false);
    let dials_none = mcp.sink_address.is_empty();
    let no_identity = "with --insecure no client proves who it is, and each may connect";
    let (no_webhook, no_sink) = (
        "no webhook configuration is kept",
        "there is no --sinkAddress",
    );
    let rows = [
        (
            "accessListFile",
            serves_all && mcp.access_list_file != Path::new(ACCESS_LIST),
            no_identity,
        ),
        (
            "unregisterValidationWebhook",
            keeps_none && webhook.unregister,
            no_webhook,
        ),
        (
            "validation-webhook-config-file",
            keeps_none && is_file(&webhook.webhook_config_file),
            "no webhook configuration is kept; only the default of --validation-port depends on it",
        ),
        (
            "validation.tls.caCertificates",
            keeps_none && webhook.ca_certificates.is_some(),
            no_webhook,
        ),
        (
            "sinkMeta",
            dials_none && mcp.sink_meta.iter().any(|pair| !pair.is_empty()),
            no_sink,
        ),
        (
            "sinkServerName",
            dials_none && mcp.sink_server_name.is_some(),
            no_sink,
        ),
    ];
    rows.into_iter()
        .filter(|(_, is_idle, _)| *is_idle)
        .map(|(flag, _, cause)| format!("--{flag} has no effect: {cause}"))
        .collect()
}

/// Returns true if the cluster and the flags are such that a webhook keeps its configuration.
fn keeps_configuration(flags: &GalleyFlags, is_pod: bool) -> bool {
    let is_given = |path: &Path| !path.as_os_str().is_empty();
    let has_cluster = is_pod || is_given(&flags.kubeconfig);
    flags.webhook.enable_reconcile && has_cluster && !is_given(&flags.config_path)
}

/// The webhook's certificate and its key.
fn certificate(flags: &GalleyFlags) -> (&Path, &Path) {
    let ValidationFlags {
        certificate,
        private_key,
        ..
    } = &flags.webhook;
    (
        certificate.as_ref().unwrap_or(&flags.mcp.tls_cert_file),
        private_key.as_ref().unwrap_or(&flags.mcp.tls_key_file),
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{Action, parse};
    use crate::exit::Exit;

    const NOTHING: HostEnvironment = HostEnvironment {
        is_pod: false,
        has_embedded: false,
        has_certificate: false,
        is_together: false,
    };

    fn read(line: &str, environment: HostEnvironment) -> Result<(String, bool), String> {
        let line = format!("gudgeon galley {line}");
        let arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        let Action::Galley(flags) = parse(&arguments).unwrap().action else {
            panic!("{line}")
        };
        let options = GalleyOptions::of(&flags, environment).map_err(|failure| {
            assert_eq!(failure.exit, Exit::Config);
            failure.message
        })?;
        let from = match options.from {
            From::Nowhere => "nowhere".to_owned(),
            From::Files(path) => path.display().to_string(),
            From::Cluster(Access::InCluster) => "pod".to_owned(),
            From::Cluster(Access::Kubeconfig { .. }) => "kubeconfig".to_owned(),
        };
        Ok((from, options.validation))
    }

    #[test]
    fn flags_and_the_place_choose_the_source() {
        let pod = HostEnvironment {
            is_pod: true,
            has_embedded: true,
            has_certificate: true,
            ..NOTHING
        };
        let together = HostEnvironment {
            is_together: true,
            ..NOTHING
        };
        let edge = HostEnvironment {
            has_embedded: true,
            ..NOTHING
        };
        for (line, environment, from, validation) in [
            ("--configPath /c --kubeconfig /k", pod, "/c", true),
            ("--configPath /c", NOTHING, "/c", false),
            ("--configPath /c --enable-validation", NOTHING, "/c", true),
            ("--configPath /c --selfSigned", NOTHING, "/c", true),
            (
                "--configPath /c --enable-validation=false",
                pod,
                "/c",
                false,
            ),
            ("--kubeconfig /k", pod, "kubeconfig", true),
            ("", pod, "pod", true),
            ("", edge, EMBEDDED, false),
            ("--enable-server=false", NOTHING, "nowhere", true),
            (
                "--enable-server=false --configPath /c",
                together,
                "/c",
                true,
            ),
            (
                "--enable-server=false --kubeconfig /k",
                together,
                "kubeconfig",
                true,
            ),
            (
                "--enable-server=false --configPath /c",
                pod,
                "nowhere",
                true,
            ),
        ] {
            let read = read(line, environment);
            assert_eq!(read, Ok((from.to_owned(), validation)), "{line}");
        }
    }

    #[test]
    fn flags_without_effect_are_told() {
        let messages = |line: &str, is_pod: bool| {
            let line = format!("gudgeon galley {line}");
            let arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            let Action::Galley(flags) = parse(&arguments).unwrap().action else {
                panic!("{line}")
            };
            without_effect(&flags, is_pod)
        };
        let list = "--accessListFile has no effect: with --insecure no client proves who it is, and each may connect";
        let unregister =
            "--unregisterValidationWebhook has no effect: no webhook configuration is kept";
        let roots =
            "--validation.tls.caCertificates has no effect: no webhook configuration is kept";
        let meta = "--sinkMeta has no effect: there is no --sinkAddress";
        let file = "--validation-webhook-config-file has no effect: no webhook configuration is kept; only the default of \
                    --validation-port depends on it";
        let name = "--sinkServerName has no effect: there is no --sinkAddress";
        let webhook = "--unregisterValidationWebhook --validation.tls.caCertificates /c";
        for (line, expected) in [
            (
                "--sinkServerName a --insecure --sinkMeta a=b --accessListFile /l".to_owned(),
                vec![list, meta, name],
            ),
            (
                format!("--configPath /c {webhook}"),
                vec![unregister, roots],
            ),
            (
                format!("--enable-reconcileWebhookConfiguration=false {webhook}"),
                vec![unregister, roots],
            ),
            (
                format!("--enable-validation=false {webhook}"),
                vec![unregister, roots],
            ),
            (format!("--enable-validation {webhook}"), vec![]),
            (webhook.to_owned(), vec![]),
            ("--accessListFile /l".to_owned(), vec![]),
            (
                "--insecure --server-address unix:///s --configPath /c".to_owned(),
                vec![],
            ),
            (
                "--insecure --enable-server=false --accessListFile /l".to_owned(),
                vec![],
            ),
            (
                "--sinkAddress s:1 --sinkMeta a=b --sinkServerName a".to_owned(),
                vec![],
            ),
        ] {
            assert_eq!(messages(&line, true), expected, "{line}");
        }
        // A file that does not exist said nothing where no cluster gets it.
        let line = "--enable-server=false --validation-webhook-config-file /none";
        assert_eq!(messages(line, false), [file]);
        let with_cluster = format!("{line} --kubeconfig /k");
        assert!(messages(&with_cluster, false).is_empty() && messages(line, true).is_empty());
        let of_files = format!("--configPath /c {line}");
        assert_eq!(messages(&of_files, true), [file]);
        assert_eq!(messages(webhook, false), [unregister, roots]);
    }

    #[test]
    fn errors_name_flags_that_contradict() {
        let none = read("", NOTHING).unwrap_err();
        assert!(
            none.contains("--configPath") && none.contains("--kubeconfig"),
            "{none}"
        );
        let both = read("--enable-server=false --enable-validation=false", NOTHING);
        assert!(both.unwrap_err().contains("both false"));
    }
}
