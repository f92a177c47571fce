//! Addresses that nobody who writes a RequestAuthentication may make this program ask: its own, those beside it on the link, and
//! the API server's. Addresses of a cluster's networks are allowed: issuers run there.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::model::Network;

/// Metadata services of clouds, which tell any client what its machine may do, beside `169.254.0.0/16`: Alibaba, Azure, Oracle,
/// AWS, Google.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Returns the reason why an address is not asked; `None`: it may be asked. `allowed`: networks whose addresses may be asked in any
/// case.
pub(super) fn forbidden_reason(
    address: IpAddr,
    allowed: &[Network],
    servers: &BTreeSet<IpAddr>,
) -> Option<&'static str> {
    // `::ffff:169.254.169.254` is the same address, written for IPv6.
    let address = address.to_canonical();
    // `--jwksAllow` comes before every reason to refuse.
    if allowed.iter().any(|network| network.contains(address)) {
        return None;
    }
    if servers.contains(&address) {
        return Some("the API server's");
    }
    if METADATA.contains(&address) {
        return Some("where a cloud says what its machines may do");
    }
    match address {
        IpAddr::V4(address) => of_v4(address),
        IpAddr::V6(address) => of_v6(address, allowed, servers),
    }
}

fn of_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [first, ..] = address.octets();
    match first {
        0 => Some("unspecified"),
        127 => Some("loopback"),
        169 if address.is_link_local() => Some("link-local"),
        224..=239 => Some("multicast"),
        240.. => Some("reserved"),
        _ => None,
    }
}

fn of_v6(
    address: Ipv6Addr,
    allowed: &[Network],
    servers: &BTreeSet<IpAddr>,
) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("unspecified");
    }
    if address.is_loopback() {
        return Some("loopback");
    }
    if address.is_unicast_link_local() {
        return Some("link-local");
    }
    if address.is_multicast() {
        return Some("multicast");
    }
    if let [0x64, 0xff9b, 1, ..] = address.segments() {
        let inside = translated_v4(address).into_iter();
        // The bits of another form are mostly zeros, which no translator passes on.
        let mut inside = inside.filter(|one| one.octets()[0] != 0);
        return inside.find_map(|one| forbidden_reason(one.into(), allowed, servers));
    }
    let inside = embedded_v4(address)?;
    forbidden_reason(inside.into(), allowed, servers)
}

/// The IPv4 address that one of IPv6 stands for: the compatible form (RFC 4291), 6to4 (RFC 3056), NAT64 (RFC 6052).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let four = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(four(high, low))
        }
        [0x2002, high, low, ..] => Some(four(high, low)),
        _ => None,
    }
}

/// The IPv4 addresses that one of `64:ff9b:1::/48` may stand for: a network chooses its prefix for NAT64 within that (RFC 8215), of
/// 48, 56, 64 or 96 bits (RFC 6052, section 2.2), and only its translator knows which.
fn translated_v4(address: Ipv6Addr) -> [Ipv4Addr; 4] {
    // The ninth byte is skipped: it belongs to no IPv4 address.
    let [_, _, _, _, _, _, a, b, _, c, d, e, f, g, h, i] = address.octets();
    [[a, b, c, d], [b, c, d, e], [c, d, e, f], [f, g, h, i]].map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_cannot_direct_a_fetch_to_this_machine() {
        let servers = BTreeSet::from(["10.96.0.1".parse().unwrap()]);
        for (address, why) in [
            ("10.0.0.1", None),
            ("10.96.0.2", None),
            ("172.16.0.1", None),
            ("192.168.1.1", None),
            ("100.64.0.1", None),
            ("8.8.8.8", None),
            ("fd00::1", None),
            ("2001:db8::1", None),
            ("64:ff9b::808:808", None),
            ("64:ff9b:1::808:808", None),
            ("64:ff9b:1:808:8:800::", None),
            ("64:ff9b:1::a9fe:a9fe", Some("link-local")),
            ("64:ff9b:1:a9fe:a9:fe00::", Some("link-local")),
            ("64:ff9b:1:a9:fe:a9fe::", Some("link-local")),
            ("64:ff9b:1:2:a9:fea9:fe00:0", Some("link-local")),
            // A translator need not look at the bits behind the address.
            ("64:ff9b:1:a9fe:a9:fe00:1:2", Some("link-local")),
            ("64:ff9b:1::a60:1", Some("the API server's")),
            ("127.0.0.1", Some("loopback")),
            ("127.255.255.254", Some("loopback")),
            ("::1", Some("loopback")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::127.0.0.1", Some("loopback")),
            ("2002:7f00:1::", Some("loopback")),
            ("64:ff9b::7f00:1", Some("loopback")),
            ("0.0.0.0", Some("unspecified")),
            ("0.1.2.3", Some("unspecified")),
            ("::", Some("unspecified")),
            ("::ffff:0.0.0.0", Some("unspecified")),
            ("169.254.169.254", Some("link-local")),
            ("::ffff:169.254.169.254", Some("link-local")),
            ("fe80::1", Some("link-local")),
            ("febf::1", Some("link-local")),
            ("224.0.0.1", Some("multicast")),
            ("239.255.255.255", Some("multicast")),
            ("ff02::1", Some("multicast")),
            ("255.255.255.255", Some("reserved")),
            ("240.0.0.1", Some("reserved")),
            ("10.96.0.1", Some("the API server's")),
            ("::ffff:10.96.0.1", Some("the API server's")),
            ("64:ff9b::a60:1", Some("the API server's")),
            (
                "100.100.100.200",
                Some("where a cloud says what its machines may do"),
            ),
            (
                "fd00:ec2::254",
                Some("where a cloud says what its machines may do"),
            ),
        ] {
            let found = forbidden_reason(address.parse().unwrap(), &[], &servers);
            assert_eq!(found, why, "{address}");
        }
        let allowed = ["127.0.7.0/24", "10.96.0.1"].map(|one| one.parse().unwrap());
        for (address, is_asked) in [
            ("127.0.7.1", true),
            ("::ffff:127.0.7.1", true),
            ("127.0.8.1", false),
            ("10.96.0.1", true),
            ("::1", false),
        ] {
            let found = forbidden_reason(address.parse().unwrap(), &allowed, &servers);
            assert_eq!(found.is_none(), is_asked, "{address}");
        }
    }
}
