//! Groups addresses by client: shares are counted per group.

use std::net::{IpAddr, Ipv6Addr};

/// The address; of IPv6 the first 64 bits, for the rest is a machine's to choose.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_network() {
        for (address, same) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8::ffff:2", "2001:db8::"),
            ("2001:db8:0:1::3", "2001:db8:0:1::"),
        ] {
            let found = network(address.parse().unwrap());
            assert_eq!(found, same.parse::<IpAddr>().unwrap(), "{address}");
        }
    }
}
