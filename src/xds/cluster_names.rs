//! Names of clusters and their assignments: one place writes them, and reads them back.
//!
//! A service's port has `outbound|PORT|SUBSET|HOST`. Where TLS is led on by its server name (`AUTO_PASSTHROUGH`, `sni-dnat`), the
//! same endpoints stand under that name, too: `outbound_.PORT_.SUBSET_.HOST`, which clients say as SNI.

/// The beginning of a name that is a server name, too.
pub(crate) const BY_SERVER_NAME: &str = "outbound_.";

/// Returns the name of a cluster for clients; an empty subset is the whole service.
#[must_use]
pub fn outbound(port: u16, subset: &str, host: &str) -> String {
    format!("outbound|{port}|{subset}|{host}")
}

/// Returns the name of the cluster that TLS is led to by its server name, which is that server name.
#[must_use]
pub fn by_server_name(port: u16, subset: &str, host: &str) -> String {
    format!("{BY_SERVER_NAME}{port}_.{subset}_.{host}")
}

/// Returns the parts of a server name as written; `None`: it is none.
pub(crate) fn server_name_parts(name: &str) -> Option<[&str; 3]> {
    let mut parts = name.strip_prefix(BY_SERVER_NAME)?.splitn(3, "_.");
    Some([parts.next()?, parts.next()?, parts.next()?])
}

/// Returns the port, the subset and the host that a server name means.
pub(crate) fn of_server_name(name: &str) -> Option<(u16, &str, &str)> {
    let [port, subset, host] = server_name_parts(name)?;
    Some((port.parse().ok()?, subset, host))
}

/// Returns the host of a cluster, whichever form its name has.
pub(crate) fn host(name: &str) -> Option<&str> {
    match server_name_parts(name) {
        Some([_, _, host]) => Some(host),
        None => name.splitn(4, '|').nth(3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_means_a_cluster() {
        for (name, cluster) in [
            ("outbound_.80_._.a.demo", Some((80, "", "a.demo"))),
            ("outbound_.80_.v1_.a.demo", Some((80, "v1", "a.demo"))),
            ("outbound|80||a.demo", None),
            ("outbound_.x_._.a.demo", None),
            ("outbound_.80_.a.demo", None),
            ("a.demo", None),
        ] {
            assert_eq!(of_server_name(name), cluster, "{name}");
        }
    }

    #[test]
    fn both_forms_of_a_name_have_its_host() {
        for subset in ["", "v1", "v_1"] {
            assert_eq!(host(&outbound(80, subset, "a.demo")), Some("a.demo"));
            assert_eq!(host(&by_server_name(80, subset, "a.demo")), Some("a.demo"));
        }
        assert_eq!(host("BlackHoleCluster"), None);
    }
}
