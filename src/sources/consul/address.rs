//! Consul's address, and the optional ACL token.

use std::fmt;
use std::str::FromStr;

use http::HeaderValue;
use http::uri::{Authority, Scheme, Uri};

/// `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Authority);

/// The error of a URL that cannot be an agent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress(&'static str);

impl fmt::Display for BadAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "want http://host:port: {}", self.0)
    }
}

impl std::error::Error for BadAddress {}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let uri: Uri = text.parse().map_err(|_| BadAddress("not a URL"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(BadAddress("it does not begin with http://"));
        }
        let authority = uri.authority().ok_or(BadAddress("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(BadAddress("it must not contain a user"));
        }
        if authority.host().is_empty() {
            return Err(BadAddress("it has no host"));
        }
        if authority.port_u16().is_none_or(|port| port == 0) {
            return Err(BadAddress("it has no port"));
        }
        if uri.query().is_some() || !matches!(uri.path(), "" | "/") {
            return Err(BadAddress("it must not contain a path"));
        }
        Ok(Self(authority.clone()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "http://{}", self.0)
    }
}

impl Address {
    pub(super) fn uri(&self, path: &str) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.0.clone())
            .path_and_query(path)
            .build()
    }
}

/// The ACL token. It is never logged or shown.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// `None`: it is no text that a header can have.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(text.trim()).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port_and_no_more() {
        for good in [
            "http://127.0.0.1:8500",
            "http://consul:8500/",
            "http://[::1]:8500",
        ] {
            let address: Address = good.parse().unwrap();
            assert_eq!(address.to_string(), good.trim_end_matches('/'));
        }
        for (bad, why) in [
            ("", "not a URL"),
            ("127.0.0.1:8500", "begin"),
            ("https://consul:8500", "begin"),
            ("http://consul", "no port"),
            ("http://consul:0", "no port"),
            ("http://:8500", "no"),
            ("http://me:secret@consul:8500", "user"),
            ("http://consul:8500/v1", "path"),
            ("http://consul:8500?a=b", "path"),
        ] {
            let message = bad.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(why), "{bad}: {message}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = Token::new("sesame\n").unwrap();
        assert_eq!(token.header(), "sesame");
        assert!(!format!("{token:?} {:?}", token.header()).contains("sesame"));
        assert!(Token::new("a\nb").is_none());
    }
}
