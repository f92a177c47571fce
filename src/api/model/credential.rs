//! Certificates that Gateways name: those that a server presents, and the roots that it checks its clients against.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Namespace and name of the object that it is from.
pub type CredentialKey = (Arc<str>, Arc<str>);

/// All credentials, by the objects that they are from.
pub type Credentials = BTreeMap<CredentialKey, Arc<Credential>>;

/// A certificate with its chain, and its key.
pub type CertificatePair = (Arc<[u8]>, Arc<[u8]>);

/// One object's, as PEM. The key is a secret: nothing prints it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential {
    pub pair: Option<CertificatePair>,
    /// Certificates that those of clients are checked against.
    pub root: Option<Arc<[u8]>>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Credential")
            .field("pair", &self.pair.is_some())
            .field("root", &self.root.is_some())
            .finish()
    }
}

/// The end of the name of an object that has the root of another one.
pub const ROOT_SUFFIX: &str = "-cacert";

impl Credential {
    /// Reads the data of a Secret: `tls.crt`, `tls.key` and `ca.crt`, or `cert`, `key` and `cacert`. `None` if it has none of
    /// them.
    #[must_use]
    pub fn of_data<'a>(mut data: impl FnMut(&str) -> Option<&'a [u8]>) -> Option<Self> {
        let mut of = |names: [&str; 2]| {
            let mut parts = names.into_iter().filter_map(&mut data);
            parts.find(|bytes| !bytes.is_empty()).map(Arc::<[u8]>::from)
        };
        let (chain, key) = (of(["tls.crt", "cert"]), of(["tls.key", "key"]));
        let root = of(["ca.crt", "cacert"]);
        let pair = chain.zip(key);
        (pair.is_some() || root.is_some()).then_some(Self { pair, root })
    }

    /// Bytes of all of it.
    #[must_use]
    pub fn size(&self) -> usize {
        let pair = self.pair.as_ref();
        let pair = pair.map_or(0, |(chain, key)| chain.len().saturating_add(key.len()));
        pair.saturating_add(self.root.as_ref().map_or(0, |root| root.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data: &[(&str, &str)]) -> Option<Credential> {
        Credential::of_data(|name| {
            let found = data.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| text.as_bytes())
        })
    }

    #[test]
    fn a_secret_has_a_pair_or_a_root_by_either_names() {
        for (data, pair, root) in [
            (&[("tls.crt", "a"), ("tls.key", "b")][..], true, false),
            (
                &[("tls.crt", "a"), ("tls.key", "b"), ("ca.crt", "c")],
                true,
                true,
            ),
            (&[("cert", "a"), ("key", "b")], true, false),
            (&[("cert", "a"), ("key", "b"), ("cacert", "c")], true, true),
            (&[("ca.crt", "c")], false, true),
            (&[("cacert", "c")], false, true),
            (&[("tls.crt", "a"), ("ca.crt", "c")], false, true),
            (
                &[("tls.crt", ""), ("cert", "a"), ("tls.key", "b")],
                true,
                false,
            ),
        ] {
            let credential = of(data).unwrap();
            assert_eq!(
                (credential.pair.is_some(), credential.root.is_some()),
                (pair, root),
                "{data:?}"
            );
        }
        for data in [
            &[][..],
            &[("tls.crt", "a")],
            &[("password", "x")],
            &[("cacert", "")],
        ] {
            assert_eq!(of(data), None, "{data:?}");
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        let one = of(&[
            ("tls.crt", "chain-of-it"),
            ("tls.key", "key-of-it"),
            ("ca.crt", "root-of-it"),
        ]);
        let printed = format!(
            "{one:?} {:?}",
            Credentials::from([(("n".into(), "a".into()), Arc::new(one.clone().unwrap()))])
        );
        assert!(
            !printed.contains("-of-it") && !printed.contains("107"),
            "{printed}"
        );
        assert_eq!(one.unwrap().size(), 11 + 9 + 10);
    }
}
