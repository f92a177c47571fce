//! The Gateway of a name, with the servers of all Ingresses that have it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::json;

use super::room::{PartPath, Rank, SharedPart, fitting, unique};
use super::{ANY, Context, Finding, GATEWAYS, Generated, SUFFIX, Settings, generated};
use crate::Key;
use api::kubernetes::{Ingress, ObjectMeta};

/// The directory of the certificate in a gateway's pod.
const CERTIFICATES: &str = "/etc/istio/ingress-certs";

/// The Secret that charts of Istio mount at [`CERTIFICATES`].
const MOUNTED_SECRET: &str = "istio-ingress-certs";

/// Returns the indices of `spec.tls` whose Secrets no router reads, each with the message about it.
pub(super) fn unread_secrets(ingress: &Ingress) -> impl Iterator<Item = (usize, String)> {
    let all = ingress.spec.tls.iter().enumerate();
    // Charts mount one Secret where routers look, so its name does take effect.
    let unread = all.filter(|(_, tls)| !matches!(&*tls.secret_name, "" | MOUNTED_SECRET));
    unread.map(|(at, _)| {
        let message = format!(
            "has no effect: routers read {CERTIFICATES}/tls.crt and tls.key; a server of a Gateway can name a Secret in \
             credentialName"
        );
        (at, message)
    })
}

/// The Gateway of all Ingresses of a name: two of one name, in two namespaces, share theirs.
pub(super) fn gateway(
    name: &str,
    of: &[(&Key, &Ingress)],
    context: Context<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Generated> {
    let (first, ingress) = *of.first()?;
    let mut gateway = Gateway {
        first,
        metadata: context.carried.carried(first, ingress),
        ports: BTreeSet::new(),
        servers: Vec::new(),
    };
    for (key, ingress) in of {
        gateway.serve(key, ingress, findings);
    }
    Some(gateway.generated(name, context.settings, findings))
}

struct Gateway<'a> {
    first: &'a Key,
    metadata: Cow<'a, ObjectMeta>,
    /// The names of the servers' ports.
    ports: BTreeSet<String>,
    servers: Vec<SharedPart<'a>>,
}

impl<'a> Gateway<'a> {
    /// Adds the servers of an Ingress: one for each certificate, then the plaintext one. A host that no Gateway can have is
    /// left out alone, and costs no other host its server.
    fn serve(&mut self, key: &'a Key, ingress: &Ingress, findings: &mut Vec<Finding>) {
        let of = format!("i-{}-{}", key.name, key.namespace);
        for (at, tls) in ingress.spec.tls.iter().enumerate() {
            let mut hosts: Vec<&str> = Vec::new();
            for (index, host) in tls.hosts.iter().enumerate() {
                match api::config::rules::served_host(host) {
                    None => hosts.push(host),
                    Some(why) => findings.push(Finding {
                        ingress: key.clone(),
                        path: format!("spec.tls[{at}].hosts[{index}]"),
                        message: format!("{host:?} is not served: {why}"),
                    }),
                }
            }
            match (tls.hosts.is_empty(), hosts.is_empty()) {
                (true, _) => hosts.push(ANY),
                // None of its hosts is served: with the empty list's meaning it would serve every host.
                (false, true) => continue,
                (false, false) => {}
            }
            let name = match at {
                0 => format!("https-443-{of}"),
                at => format!("https-443-{of}-{at}"),
            };
            let value = json!({
                "port": {
                    "number": 443,
                    "protocol": "HTTPS",
                    "name": unique(&mut self.ports, name),
                },
                "hosts": hosts,
                "tls": {
                    "mode": "SIMPLE",
                    "serverCertificate": format!("{CERTIFICATES}/tls.crt"),
                    "privateKey": format!("{CERTIFICATES}/tls.key"),
                    "caCertificates": format!("{CERTIFICATES}/root-cert.pem"),
                },
            });
            self.servers.push(SharedPart {
                of: key,
                path: PartPath::Tls(at),
                rank: Rank::default(),
                value,
            });
        }
        let name = unique(&mut self.ports, format!("http-80-{of}"));
        self.servers.push(SharedPart {
            of: key,
            path: PartPath::Plaintext,
            rank: Rank::default(),
            value: json!({
                "port": {"number": 80, "protocol": "HTTP", "name": name},
                "hosts": [ANY],
            }),
        });
    }

    fn generated(self, name: &str, settings: &Settings, findings: &mut Vec<Finding>) -> Generated {
        let name = format!("{name}-{SUFFIX}");
        let spec = json!({
            "servers": fitting(self.servers, &format!("the Gateway {name}"), findings),
            "selector": {"istio": settings.selector},
        });
        generated(GATEWAYS, name, self.first, &self.metadata, spec)
    }
}
