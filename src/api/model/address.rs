//! An address that a service is declared with: one IP address, or a range of them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    Plain(IpAddr),
    /// A range of more than one address.
    Range(Network),
}

/// A range of addresses, `10.1.0.0/16`: the bits behind the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// `None` where the prefix is longer than the address.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = bits(address);
        if prefix > bits {
            return None;
        }
        let drop = u32::from(bits - prefix);
        let first = match address {
            IpAddr::V4(address) => {
                // `checked_shl` refuses a shift by all bits: nothing of a `/0` counts.
                let mask = u32::MAX.checked_shl(drop).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(drop).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Some(Self { first, prefix })
    }

    /// Returns an address or a range of addresses in one spelling, to compare it; any other text stays as it is.
    #[must_use]
    pub fn canonical(range: &str) -> String {
        let network = range.parse::<Self>();
        network.map_or_else(|()| range.to_owned(), |network| network.to_string())
    }

    #[must_use]
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// Leading bits that count.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        bits(address) == bits(self.first)
            && Self::new(address, self.prefix).is_some_and(|other| other.first == self.first)
    }
}

impl FromStr for Network {
    type Err = ();

    /// `10.1.0.0/16`, or one address alone.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address.parse().map_err(drop)?, length(prefix).ok_or(())?),
            None => {
                let address: IpAddr = text.parse().map_err(drop)?;
                (address, bits(address))
            }
        };
        Self::new(address, prefix).ok_or(())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.first, self.prefix)
    }
}

impl FromStr for Address {
    type Err = ();

    /// One address, alone or with all its bits (`10.0.0.1/32`), or a range.
    fn from_str(text: &str) -> Result<Self, ()> {
        let network: Network = text.parse()?;
        Ok(if network.prefix == bits(network.first) {
            Self::Plain(network.first)
        } else {
            Self::Range(network)
        })
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self::Plain(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(address) => address.fmt(to),
            Self::Range(network) => network.fmt(to),
        }
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn length(text: &str) -> Option<u8> {
    // `parse` alone would take a sign.
    text.bytes()
        .all(|digit| digit.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_an_address_or_a_range() {
        for (text, printed) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("10.0.0.1/32", Some("10.0.0.1")),
            ("2001:db8::1/128", Some("2001:db8::1")),
            ("10.1.2.3/16", Some("10.1.0.0/16")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("2001:db8:1::/32", Some("2001:db8::/32")),
            ("10.0.0.1/33", None),
            ("10.0.0.1/", None),
            ("10.0.0.1/+8", None),
            ("10.0.0", None),
            ("a.example", None),
            ("", None),
        ] {
            let read: Result<Address, ()> = text.parse();
            assert_eq!(
                read.ok().map(|address| address.to_string()).as_deref(),
                printed,
                "{text}"
            );
        }
    }

    #[test]
    fn a_range_contains_its_family_only() {
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("10.0.0.1".parse().unwrap()));
        assert!(!all.contains("::1".parse().unwrap()));
        let some: Network = "10.1.0.0/16".parse().unwrap();
        assert!(some.contains("10.1.255.255".parse().unwrap()));
        assert!(!some.contains("10.2.0.0".parse().unwrap()));
    }

    #[test]
    fn one_range_has_many_spellings() {
        for (range, canonical) in [
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("2001:db8:ffff::1/32", "2001:db8::/32"),
            ("2001:DB8::1", "2001:db8::1/128"),
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("A.example", "A.example"),
        ] {
            assert_eq!(Network::canonical(range), canonical, "{range}");
        }
    }
}
