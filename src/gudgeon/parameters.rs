//! The parameters of an injection configuration from flags and environment, and warnings about ignored flags.

use std::collections::BTreeMap;

use inject::Parameters;

use crate::cli::BuiltinFlags;

/// Builds the parameters from the flags and the environment.
pub(crate) fn of(revision: Option<&String>, builtin: &BuiltinFlags) -> Parameters {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Parameters {
        revision: revision
            .or_else(|| environment.get("REVISION"))
            .cloned()
            .unwrap_or_default(),
        proxy_image: builtin.proxy_image.clone(),
        init_image: builtin.init_image.clone(),
        discovery_address: builtin.discovery_address.clone(),
        cni: builtin.cni.unwrap_or_default(),
        settings: builtin
            .core_dump
            .iter()
            .map(|allowed| ("coreDump".to_owned(), allowed.clone()))
            .collect(),
        environment,
    }
}

/// The flags of the built-in template that were given.
pub(crate) fn set_flags(builtin: &BuiltinFlags) -> Vec<&'static str> {
    let BuiltinFlags {
        proxy_image,
        init_image,
        discovery_address,
        cni,
        core_dump,
    } = builtin;
    [
        ("proxyImage", proxy_image.is_some()),
        ("initImage", init_image.is_some()),
        ("discoveryAddress", discovery_address.is_some()),
        ("cni", cni.is_some()),
        ("coreDump", core_dump.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect()
}

/// Returns the warning about a flag that custom templates ignore.
pub(crate) fn ignored(flag: &str) -> String {
    let but = match flag {
        "proxyImage" => "; .ProxyImage has it, where the values name no image",
        "initImage" => "; .ProxyInitImage has it, where the values name no image",
        _ => "",
    };
    format!(
        "ignoring --{flag}: a configuration is in use, and it is a parameter of the built-in template{but}"
    )
}
