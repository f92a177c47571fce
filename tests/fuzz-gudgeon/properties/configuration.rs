//! A configuration in fragment mode, for what needs one.

use std::sync::OnceLock;

use inject::{Configuration, Parameters, Sources};

const CONFIG: &str = "policy: enabled
template: |
  initContainers: [{name: istio-init, image: init}]
  containers:
  - name: istio-proxy
    image: proxy
    args: [--statusPort, 15020, '[[ .DeploymentMeta.Name ]]']
  volumes: [{name: istio-envoy, emptyDir: {}}]
";

pub(crate) fn configuration() -> &'static Configuration {
    static LOADED: OnceLock<Configuration> = OnceLock::new();
    LOADED.get_or_init(|| {
        let sources = Sources {
            config: Some(CONFIG),
            ..Sources::default()
        };
        let loaded = Configuration::load(sources, Parameters::default());
        loaded.expect("it is right").0
    })
}
