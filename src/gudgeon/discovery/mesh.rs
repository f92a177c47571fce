//! Mesh configuration and networks: two files that need not be there, watched for as long as the program runs.

use std::sync::Arc;

use api::istio::networking::v1alpha3::LocalityLoadBalancerSetting;
use api::mesh::{self, Invalid, MeshConfig, MeshNetworks, Parsed};
use tracing::warn;

use super::hub::Hub;
use super::mesh_fields;
use super::sources::McpSources;
use crate::cli::{DiscoveryFlags, MESH_CONFIG, MESH_NETWORKS};
use crate::config_file::TextFile;
use crate::exit::Failure;
use crate::watch::Follower;

/// The two files.
#[derive(Debug)]
pub(super) struct MeshFiles {
    mesh: TextFile,
    networks: TextFile,
}

/// The mesh configuration and the networks that the files hold.
#[derive(Debug)]
pub(super) struct MeshContents {
    pub(super) mesh: Arc<MeshConfig>,
    pub(super) networks: Arc<MeshNetworks>,
}

impl MeshFiles {
    /// Reads both.
    ///
    /// # Errors
    /// One that a flag names is missing, or one is not valid.
    pub(super) async fn open(flags: &DiscoveryFlags) -> Result<(Self, MeshContents), Failure> {
        let path = flags.mesh_config.as_deref();
        let (mesh, text) = TextFile::open("meshConfig", path, MESH_CONFIG).await?;
        let config = match text {
            Some(text) => {
                let config = mesh.first(parse(&text))?;
                doubt(&config, &text);
                config
            }
            None => {
                warn!(
                    "no mesh configuration at {}; using the defaults",
                    mesh.named().path.display()
                );
                mesh::discovery_defaults()
            }
        };
        let path = flags.networks_config.as_deref();
        let (networks, text) =
            TextFile::open_if_readable("networksConfig", path, MESH_NETWORKS).await?;
        let known = match text {
            Some(text) => networks.first(mesh::parse_networks(&text))?,
            None => MeshNetworks::default(),
        };
        let read = MeshContents {
            mesh: Arc::new(config),
            networks: Arc::new(known),
        };
        Ok((Self { mesh, networks }, read))
    }

    /// Tells of changes, for ever. A file that is not valid any more, or gone, changes nothing.
    pub(super) async fn follow(mut self, hub: Arc<Hub>, mcp_sources: Option<Arc<McpSources>>) {
        let mut follower = Follower::new([&self.mesh, &self.networks], true).await;
        loop {
            if let Some(text) = self.mesh.changed_text().await
                && let Some(config) = self.mesh.later(parse(&text))
            {
                doubt(&config, &text);
                let config = Arc::new(config);
                let mesh = Arc::clone(&config);
                hub.update(|registries| registries.set_mesh(mesh));
                if let Some(mcp_sources) = &mcp_sources {
                    mcp_sources.configure(&config.config_sources);
                }
            }
            if let Some(text) = self.networks.changed_text().await
                && let Some(networks) = self.networks.later(mesh::parse_networks(&text))
            {
                hub.update(|registries| registries.set_networks(Arc::new(networks)));
            }
            for file in [&self.mesh, &self.networks] {
                if let Some(state) = file.state() {
                    hub.files.put(file.named().flag, state);
                }
            }
            follower.changed([&self.mesh, &self.networks]).await;
        }
    }
}

/// Warns of settings that have no effect, and of one that is missing.
fn doubt(mesh: &MeshConfig, text: &str) {
    for doubt in doubts(mesh) {
        warn!("{doubt}");
    }
    if relies_on_auto_mtls(mesh, text) {
        warn!("{NO_AUTO_MTLS}");
    }
    if let Some(line) = mesh_fields::idle(mesh) {
        warn!("{line}");
    }
}

const NO_AUTO_MTLS: &str = "enableAutoMtls is not set: sidecars call each other in plain text, unless policies or DestinationRules \
                            say otherwise. Istio 1.7 and later take true for it, which their charts do not write: set \
                            enableAutoMtls: true to keep mutual TLS";

/// Returns true for a configuration as the charts of Istio 1.7 and later write it, that leaves automatic mutual TLS to the default.
/// It is true there (`pkg/config/mesh/mesh.go` of 1.7.8) and false here, as up to 1.6.
fn relies_on_auto_mtls(mesh: &MeshConfig, text: &str) -> bool {
    let fields = mesh::written_fields(text);
    let has = |name: &str| fields.contains(name);
    let names = [
        "enableAutoMtls",
        "enable_auto_mtls",
        "authPolicy",
        "auth_policy",
    ];
    let is_of_istiod = mesh
        .default_config
        .as_ref()
        .is_some_and(|proxy| proxy.discovery_address.starts_with("istiod"));
    let is_later = has("enablePrometheusMerge") || has("defaultProviders") || is_of_istiod;
    is_later && !names.into_iter().any(has)
}

fn doubts(mesh: &MeshConfig) -> Vec<&'static str> {
    let mut doubts = Vec::new();
    if mesh.enable_envoy_access_log_service && !xds::has_log_service(mesh) {
        doubts.push(
            "enableEnvoyAccessLogService: defaultConfig.envoyAccessLogService does not say where it is, by HOST:PORT and files of \
             TLS: only proxies with a cluster envoy_accesslog_service in their own bootstrap send access logs",
        );
    }
    // The charts of 1.1 and 1.2 write an empty one.
    let setting = mesh.locality_lb_setting.as_ref();
    let setting = setting.filter(|setting| **setting != LocalityLoadBalancerSetting::default());
    if setting.is_some_and(|setting| setting.enabled.is_none() && setting.distribute.is_empty()) {
        doubts.push(
            "localityLbSetting has no effect without enabled: true, but for DestinationRules and services that prefer endpoints near \
             the client themselves",
        );
    } else if setting.is_some_and(|setting| setting.enabled.is_none()) {
        doubts.push(
            "localityLbSetting without enabled: distribute counts, and clients in places that no from names prefer no endpoints",
        );
    }
    doubts
}

fn parse(text: &str) -> Result<Parsed<MeshConfig>, Invalid> {
    mesh::parse_over(&mesh::discovery_defaults(), text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn flags(mesh: &Path) -> DiscoveryFlags {
        let arguments = ["gudgeon", "discovery", "--meshConfig"].map(Into::into);
        let arguments: Vec<_> = arguments.into_iter().chain([mesh.into()]).collect();
        let crate::cli::Action::Discovery(flags) = crate::cli::parse(&arguments).unwrap().action
        else {
            panic!("{arguments:?}")
        };
        *flags
    }

    /// The charts of 1.1 to 1.6 write it.
    #[test]
    fn automatic_mutual_tls_that_a_later_chart_leaves_out_is_missed() {
        for (text, is_missed) in [
            ("", false),
            ("enableTracing: true", false),
            (
                "defaultConfig: {discoveryAddress: 'istio-pilot.istio-system:15010'}",
                false,
            ),
            (
                "defaultConfig: {discoveryAddress: 'istiod.istio-system.svc:15012'}",
                true,
            ),
            ("enablePrometheusMerge: true", true),
            ("defaultProviders: {metrics: [prometheus]}", true),
            ("enablePrometheusMerge: true\nenableAutoMtls: false", false),
            ("enablePrometheusMerge: true\nauthPolicy: MUTUAL_TLS", false),
        ] {
            let mesh = parse(text).unwrap().config;
            assert_eq!(relies_on_auto_mtls(&mesh, text), is_missed, "{text}");
        }
    }

    #[test]
    fn a_preference_for_near_endpoints_that_is_not_switched_on_is_logged() {
        let doubts_of = |text: &str| doubts(&parse(text).unwrap().config).join("; ");
        let share = "distribute: [{from: r1/*, to: {'r1/*': 80, 'r2/*': 20}}]";
        for (text, message) in [
            ("{}", ""),
            ("localityLbSetting: {}", ""),
            ("localityLbSetting: {enabled: true}", ""),
            ("localityLbSetting: {enabled: false}", ""),
            (
                "localityLbSetting: {failover: [{from: r1, to: r2}]}",
                "has no effect without enabled: true",
            ),
            (
                &format!("localityLbSetting: {{{share}}}"),
                "distribute counts",
            ),
            (
                &format!("localityLbSetting: {{enabled: true, {share}}}"),
                "",
            ),
        ] {
            let found = doubts_of(text);
            assert!(
                found.contains(message) && found.is_empty() == message.is_empty(),
                "{text}: {found}"
            );
        }
    }

    #[tokio::test]
    async fn at_the_start_a_file_must_be_good_and_later_the_last_good_one_stays() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("mesh");
        let missing = MeshFiles::open(&flags(&path)).await.unwrap_err().message;
        assert!(
            missing.starts_with("cannot read --meshConfig /"),
            "{missing}"
        );
        std::fs::write(&path, "connectTimeout: soon\n").unwrap();
        let wrong = MeshFiles::open(&flags(&path)).await.unwrap_err().message;
        assert!(wrong.starts_with("cannot use --meshConfig /"), "{wrong}");
        assert!(wrong.contains("connectTimeout"), "{wrong}");
        std::fs::write(&path, "connectTimeout: 3s\n").unwrap();
        let (mut files, read) = MeshFiles::open(&flags(&path)).await.unwrap();
        let seconds = |mesh: &MeshConfig| mesh.connect_timeout.as_ref().unwrap().seconds;
        assert_eq!(seconds(&read.mesh), 3);
        assert_eq!(files.mesh.changed_text().await, None);
        for (text, seen) in [
            ("connectTimeout: x\n", None),
            ("connectTimeout: 4s\n", Some(4)),
        ] {
            std::fs::write(&path, text).unwrap();
            let text = files.mesh.changed_text().await.unwrap();
            let now = files.mesh.later(parse(&text));
            assert_eq!(now.as_ref().map(seconds), seen);
            let state = files.mesh.state().unwrap();
            assert_eq!(state.error.is_none(), seen.is_some(), "{state:?}");
            assert_eq!(
                (state.good, state.broken),
                (1 + u64::from(seen.is_some()), 1)
            );
            // It goes, and comes back as it was.
            let away = root.path().join("away");
            std::fs::rename(&path, &away).unwrap();
            assert_eq!(files.mesh.changed_text().await, None);
            assert!(files.mesh.state().unwrap().error.is_some());
            std::fs::rename(&away, &path).unwrap();
            assert_eq!(files.mesh.changed_text().await, None);
            assert_eq!(files.mesh.state(), Some(state));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(files.mesh.changed_text().await, None);
        assert!(files.mesh.state().unwrap().error.is_some());
    }
}
