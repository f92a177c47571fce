//! The URL of the server that a kubeconfig names.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use kube::config::Config;

/// Returns the URL as client-go reads it: a `host:port` alone means HTTP, or HTTPS if a setting of TLS is configured. kube takes
/// any text that looks like a part of a URL, and fails at each request.
///
/// # Errors
/// It is neither a URL nor a host:port pair.
pub(super) fn url(config: &Config) -> Result<Uri, String> {
    let mut parts = config.cluster_url.clone().into_parts();
    let is_http = |scheme: &Scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme);
    let is_known = parts.scheme.as_ref().is_none_or(is_http);
    let authority = parts.authority.as_ref();
    if is_known && authority.is_some_and(is_usable) {
        if parts.scheme.is_none() {
            let secure = is_secure(config);
            parts.scheme = Some(if secure { Scheme::HTTPS } else { Scheme::HTTP });
            parts.path_and_query = Some(PathAndQuery::from_static("/"));
        }
        if let Ok(url) = Uri::from_parts(parts) {
            return Ok(url);
        }
    }
    let text = config.cluster_url.to_string();
    // A user and a password stand before the last @, also where there is no scheme.
    let redacted = text.rsplit_once('@').map_or(&*text, |(_, host)| host);
    Err(format!(
        "the server is neither a URL nor a host:port pair: {redacted:?}"
    ))
}

/// Returns true if a host is named, and no port or a valid one: hyper takes the default port in place of one out of range.
fn is_usable(authority: &Authority) -> bool {
    let host = authority.host();
    let port = authority.as_str().rsplit_once(host);
    let port = port.map_or("", |(_, port)| port);
    !host.is_empty() && (matches!(port, "" | ":") || authority.port_u16().is_some())
}

fn is_secure(config: &Config) -> bool {
    let user = &config.auth_info;
    config.root_cert.is_some()
        || config.accept_invalid_certs
        || user.client_certificate.is_some()
        || user.client_certificate_data.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_or_a_host_and_a_port() {
        for (server, wanted) in [
            ("127.0.0.1:6443", Some("http://127.0.0.1:6443/")),
            ("api.example", Some("http://api.example/")),
            ("[::1]:6443", Some("http://[::1]:6443/")),
            ("https://api.example", Some("https://api.example/")),
            (
                "http://api.example:1/k8s/c",
                Some("http://api.example:1/k8s/c"),
            ),
            ("/foo", None),
            ("*", None),
            ("unix://api.example/", None),
            ("a:99999", None),
            ("http://a:99999/", None),
        ] {
            let found = url(&Config::new(server.parse().unwrap()));
            let found = found.map(|found| found.to_string());
            let message = format!("the server is neither a URL nor a host:port pair: {server:?}");
            assert_eq!(found, wanted.map(str::to_owned).ok_or(message));
        }
        for server in ["ftp://me:S3CRET@api.example", "me:S3CRET@:6443"] {
            let secret = Config::new(server.parse().unwrap());
            assert!(!url(&secret).unwrap_err().contains("S3CRET"), "{server}");
        }
    }

    #[test]
    fn a_host_with_something_of_tls_is_asked_by_tls() {
        let plain = Config::new("api.example:6443".parse().unwrap());
        let [mut by_ca, mut insecure, mut by_certificate] = [(); 3].map(|()| plain.clone());
        by_ca.root_cert = Some(Vec::new());
        insecure.accept_invalid_certs = true;
        by_certificate.auth_info.client_certificate = Some("client.pem".to_owned());
        for config in [by_ca, insecure, by_certificate] {
            assert_eq!(url(&config).unwrap(), "https://api.example:6443/");
        }
    }
}
