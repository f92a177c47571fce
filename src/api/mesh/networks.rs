//! The networks of a mesh: text to type, checked.

use serde_json::{Map, Value as Json};

use super::{MeshNetworks, Parsed, document, network};
use crate::config::{Finding, push_index, push_key};
use crate::model;
use crate::read::{self, Invalid};
use crate::schema::Typed;

/// Reads networks from YAML or JSON. An empty text has none.
///
/// # Errors
///
/// A text that is malformed, of a wrong type or not valid, with its path.
pub fn parse(text: &str) -> Result<Parsed<MeshNetworks>, Invalid> {
    let Some(node) = document(text, super::LIMITS)? else {
        return Ok(Parsed {
            config: MeshNetworks::default(),
            written: Map::new(),
            warnings: Vec::new(),
        });
    };
    let wrong = |finding| Invalid::at(finding, &node);
    let read = read::tree(MeshNetworks::MESSAGE, &node).map_err(wrong)?;
    let fields = read.fields;
    let config: MeshNetworks = read::typed(&Json::Object(fields.clone()))?;
    check(&config).map_err(wrong)?;
    Ok(Parsed {
        config,
        written: fields,
        warnings: read.warnings,
    })
}

fn check(networks: &MeshNetworks) -> Result<(), Finding> {
    for (name, network) in &networks.networks {
        let place = |list: &str, at: usize, cause: String| {
            let mut path = "networks".to_owned();
            push_key(&mut path, name);
            push_key(&mut path, list);
            push_index(&mut path, at);
            Finding::error(path, cause)
        };
        for (at, endpoints) in network.endpoints.iter().enumerate() {
            check_endpoints(endpoints).map_err(|cause| place("endpoints", at, cause))?;
        }
        for (at, gateway) in network.gateways.iter().enumerate() {
            check_gateway(gateway).map_err(|cause| place("gateways", at, cause))?;
        }
    }
    Ok(())
}

fn check_endpoints(endpoints: &network::NetworkEndpoints) -> Result<(), String> {
    use network::network_endpoints::Ne;
    match &endpoints.ne {
        Some(Ne::FromCidr(range)) if range.parse::<model::Network>().is_err() => {
            Err(format!("want a range such as 10.1.0.0/16, got {range:?}"))
        }
        Some(Ne::FromRegistry(cluster)) if cluster.is_empty() => {
            Err("want the name of a cluster".to_owned())
        }
        Some(Ne::FromCidr(_) | Ne::FromRegistry(_)) => Ok(()),
        None => Err("want fromCidr or fromRegistry".to_owned()),
    }
}

fn check_gateway(gateway: &network::IstioNetworkGateway) -> Result<(), String> {
    use network::istio_network_gateway::Gw;
    if !(1..=65535).contains(&gateway.port) {
        return Err(format!("want a port, 1 to 65535, got {}", gateway.port));
    }
    match &gateway.gw {
        // A name is left out where gateways are used, and told there: the others serve without it.
        Some(Gw::Address(address))
            if address.parse::<std::net::IpAddr>().is_err() && !crate::names::is_name(address) =>
        {
            Err(format!("want an address, got {address:?}"))
        }
        Some(Gw::RegistryServiceName(name)) if !crate::names::is_name(name) => {
            Err(format!("want the full name of a service, got {name:?}"))
        }
        Some(Gw::Address(_) | Gw::RegistryServiceName(_)) => Ok(()),
        None => Err("want address or registryServiceName".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn networks_have_endpoints_and_gateways() {
        let text = "networks:\n  west:\n    endpoints:\n    - fromRegistry: west\n    - fromCidr: 10.1.0.0/16\n\
                    \x20   gateways:\n    - address: 198.51.100.1\n      port: 15443\n\
                    \x20   - registryServiceName: gw.istio-system.svc.cluster.local\n      port: 443\n  east: {}\n";
        let read = parse(text).unwrap();
        assert_eq!(read.warnings, Vec::<String>::new());
        let networks = read.config.networks;
        assert_eq!(networks["west"].gateways[0].port, 15443);
        assert_eq!(networks["west"].endpoints.len(), 2);
        assert_eq!(
            networks["east"],
            crate::istio::mesh::v1alpha1::Network::default()
        );
        assert_eq!(parse("").unwrap().config, MeshNetworks::default());
        // As load balancers of AWS have it.
        let named = "networks: {a: {gateways: [{address: lb.example.com, port: 15443}]}}";
        assert_eq!(parse(named).unwrap().config.networks["a"].gateways.len(), 1);
    }

    #[test]
    fn an_invalid_network_is_reported_with_its_path_and_line() {
        for (text, message) in [
            (
                "networks:\n  a:\n    endpoints:\n    - fromCidr: 10.0.0.0/33\n",
                "line 4: networks.a.endpoints[0]: want a range such as 10.1.0.0/16, got \"10.0.0.0/33\"",
            ),
            (
                "networks: {a: {endpoints: [{}]}}",
                "line 1: networks.a.endpoints[0]: want fromCidr or fromRegistry",
            ),
            (
                "networks: {a: {gateways: [{address: 10.0.0.300, port: 1}]}}",
                "line 1: networks.a.gateways[0]: want an address, got \"10.0.0.300\"",
            ),
            (
                "networks: {a: {gateways: [{address: 10.0.0.1}]}}",
                "line 1: networks.a.gateways[0]: want a port, 1 to 65535, got 0",
            ),
            (
                "networks: {a: {gateways: [{port: 1}]}}",
                "line 1: networks.a.gateways[0]: want address or registryServiceName",
            ),
        ] {
            assert_eq!(cause(text), message, "{text}");
        }
    }
}
