//! The URL from which keys of an issuer are fetched, for rules that hold none.

use std::sync::Arc;

use super::JwtRule;

/// A URL, http or https.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JwksSource {
    /// The URL of the set itself: `jwksUri`.
    Set(Arc<str>),
    /// The URL of the document that names the set (OpenID Connect Discovery 1.0, section 4): the issuer is a URL.
    Discovery(Arc<str>),
}

impl JwksSource {
    /// `None`: the rule has keys itself, or says no source.
    #[must_use]
    pub fn of(rule: &JwtRule) -> Option<Self> {
        if !rule.jwks.is_empty() {
            return None;
        }
        if !rule.jwks_uri.is_empty() {
            return Some(Self::Set(rule.jwks_uri.as_str().into()));
        }
        Self::of_issuer(&rule.issuer)
    }

    /// `None`: it is no URL.
    #[must_use]
    pub fn of_issuer(issuer: &str) -> Option<Self> {
        let is_url = ["http://", "https://"]
            .iter()
            .any(|scheme| issuer.starts_with(scheme) && issuer.len() > scheme.len());
        let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
        let url = || format!("{issuer}/.well-known/openid-configuration");
        is_url.then(|| Self::Discovery(url().into()))
    }

    #[must_use]
    pub fn url(&self) -> &str {
        match self {
            Self::Set(url) | Self::Discovery(url) => url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_without_keys_says_where_they_are() {
        let of = |issuer: &str, uri: &str, keys: &str| {
            JwksSource::of(&JwtRule {
                issuer: issuer.to_owned(),
                jwks_uri: uri.to_owned(),
                jwks: keys.to_owned(),
                ..JwtRule::default()
            })
        };
        let set = JwksSource::Set("https://k/jwks".into());
        assert_eq!(of("https://i", "https://k/jwks", ""), Some(set));
        assert_eq!(of("https://i", "https://k/jwks", "{}"), None);
        for (issuer, url) in [
            (
                "https://i",
                Some("https://i/.well-known/openid-configuration"),
            ),
            (
                "http://i/r/",
                Some("http://i/r/.well-known/openid-configuration"),
            ),
            ("https://", None),
            ("i", None),
            ("", None),
        ] {
            let url = url.map(|url| JwksSource::Discovery(url.into()));
            assert_eq!(of(issuer, "", ""), url, "{issuer}");
        }
    }
}
