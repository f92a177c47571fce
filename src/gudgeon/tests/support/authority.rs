//! A root CA, and certificates signed by it. The library's tests include it, too.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

/// Chain and key, PEM.
pub type Signed = (String, String);

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    pub fn sign(&self, names: Vec<SanType>) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        (leaf.pem(), key.serialize_pem())
    }

    /// Signs a certificate of this machine.
    pub fn server(&self) -> Signed {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.sign(vec![dns("localhost"), SanType::IpAddress(here)])
    }

    /// Signs a certificate with this identity.
    pub fn client(&self, id: &str) -> Signed {
        self.sign(vec![uri(id)])
    }

    /// A pair and the root, under the names that the mesh mounts them by, each in one step.
    pub fn write(&self, folder: &Path, (chain, key): &Signed) {
        let files = [
            ("cert-chain.pem", chain),
            ("key.pem", key),
            ("root-cert.pem", &self.pem),
        ];
        for (name, text) in files {
            std::fs::write(folder.join(".new.pem"), text).unwrap();
            std::fs::rename(folder.join(".new.pem"), folder.join(name)).unwrap();
        }
    }
}

pub fn dns(name: &str) -> SanType {
    SanType::DnsName(Ia5String::try_from(name).unwrap())
}

pub fn uri(id: &str) -> SanType {
    SanType::URI(Ia5String::try_from(id).unwrap())
}
