//! Bounds on objects whose lists multiply: a small file must not be a large answer to every proxy.
//!
//! Sizes are counted in *places*: a place is the cost of one endpoint entry in a cluster, and 64 bytes of text count as one.

/// hosts × ports of one ServiceEntry, and ports of one Service, each of which is a cluster, an assignment and a virtual host of
/// every proxy: 4,096 are some 6 MB of them. So are ports that are not HTTP × addresses, each of which is a listener of its own.
/// `discovery.md` §5.2.
pub const SERVICE_PORTS: usize = 4_096;

/// hosts × ports × endpoints of one ServiceEntry, and the same with its addresses and with its `subjectAltNames`, in places: 100,000
/// are some 5 MB in every proxy. Chosen with [`SERVICE_PORTS`]: ten times the figure of the largest mesh that is promised.
pub const SERVICE_PLACES: usize = 100_000;

/// The most bytes of a text that stands in an answer for each place: longer is no name, no locality and no identity.
pub const TEXT: usize = 1 << 10;

/// Returns the message for an object or text that exceeds its limit of bytes.
#[must_use]
pub fn longer_than(max: usize) -> String {
    const MIB: usize = 1 << 20;
    match max % MIB {
        0 => format!("longer than {} MiB", max / MIB),
        _ => format!("longer than {max} bytes"),
    }
}

/// Bytes of text that count as one place.
const STEP: usize = 64;

/// Returns the places of texts that each cluster or each endpoint repeats.
#[must_use]
pub fn weight<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    let texts = texts.into_iter();
    texts.map(|text| text.len().div_ceil(STEP)).sum()
}

/// Returns the places of an endpoint with these texts, for each port: one, if its texts have 256 bytes at most together.
#[must_use]
pub fn endpoint<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    let bytes: usize = texts.into_iter().map(str::len).sum();
    bytes.div_ceil(STEP * 4).max(1)
}

/// Returns the error message for a text that is longer than [`TEXT`].
pub(crate) fn text(text: &str) -> Option<String> {
    let length = text.len();
    (length > TEXT).then(|| format!("want at most {TEXT} bytes, got {length}"))
}

/// The lengths of a ServiceEntry's lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntrySizes {
    pub(crate) hosts: usize,
    pub(crate) ports: usize,
    /// The number of ports that are not HTTP.
    pub(crate) streams: usize,
    /// In places, as [`endpoint`] counts them.
    pub(crate) endpoints: usize,
    pub(crate) addresses: usize,
    /// The number of addresses that are no ranges.
    pub(crate) plain: usize,
    /// `subjectAltNames` in places, as [`weight`] counts them.
    pub(crate) names: usize,
}

impl EntrySizes {
    /// Returns the field that is too large, with the cause. Every reader of ServiceEntries refuses it in these words.
    pub(crate) fn too_much(&self) -> Option<(&'static str, String)> {
        let Self { hosts, ports, .. } = *self;
        let pairs = hosts.saturating_mul(ports);
        if pairs > SERVICE_PORTS {
            let cause = format!(
                "{hosts} hosts with {ports} ports are {pairs} ports of services, more than {SERVICE_PORTS}: split the entry"
            );
            return Some(("hosts", cause));
        }
        let Self { streams, plain, .. } = *self;
        let listeners = streams.saturating_mul(plain);
        if listeners > SERVICE_PORTS {
            let cause = format!(
                "{plain} addresses with {streams} ports that are not HTTP are {listeners} listeners, more than \
                 {SERVICE_PORTS}: split the entry"
            );
            return Some(("addresses", cause));
        }
        let lists = [
            ("endpoints", self.endpoints),
            ("addresses", self.addresses),
            ("subjectAltNames", self.names),
        ];
        lists.into_iter().find_map(|(field, count)| {
            let places = pairs.saturating_mul(count);
            (places > SERVICE_PLACES).then(|| {
                let cause = format!(
                    "{hosts} hosts with {ports} ports and {count} {field} are {places} places, more than {SERVICE_PLACES}: split the entry"
                );
                (field, cause)
            })
        })
    }
}

/// The most addresses or selected workloads that are used of a service with so many hosts and ports.
#[must_use]
pub fn places(hosts: usize, ports: usize) -> usize {
    SERVICE_PLACES / hosts.saturating_mul(ports).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_fits_and_the_first_that_does_not() {
        let field = |sizes: [usize; 4]| {
            let [hosts, ports, endpoints, addresses] = sizes;
            let sizes = EntrySizes {
                hosts,
                ports,
                endpoints,
                addresses,
                ..EntrySizes::default()
            };
            sizes.too_much().map(|(field, _)| field)
        };
        for (sizes, expected) in [
            ([64, 64, 0, 0], None),
            ([4_096, 1, 24, 24], None),
            ([1, 4_096, 24, 24], None),
            ([1, 1, 100_000, 100_000], None),
            ([4_097, 1, 0, 0], Some("hosts")),
            ([65, 64, 0, 0], Some("hosts")),
            ([64, 64, 25, 0], Some("endpoints")),
            ([64, 64, 0, 25], Some("addresses")),
            ([1, 1, 100_001, 0], Some("endpoints")),
            ([usize::MAX, usize::MAX, usize::MAX, 0], Some("hosts")),
        ] {
            assert_eq!(field(sizes), expected, "{sizes:?}");
        }
        assert_eq!(places(64, 64), 24);
        assert_eq!(places(0, 0), SERVICE_PLACES);
    }

    #[test]
    fn listeners_and_names_have_a_bound_of_their_own() {
        let one = EntrySizes {
            hosts: 1,
            ports: 4_096,
            ..EntrySizes::default()
        };
        let field = |one: EntrySizes| one.too_much().map(|(field, _)| field);
        for (streams, plain, expected) in [
            (4_096, 1, None),
            (4_096, 2, Some("addresses")),
            (2, 2_048, None),
            (2, 2_049, Some("addresses")),
            (0, 24, None),
        ] {
            let addresses = plain.min(24);
            let one = EntrySizes {
                streams,
                plain,
                addresses,
                ..one
            };
            assert_eq!(field(one), expected, "{streams} × {plain}");
        }
        for (names, expected) in [(24, None), (25, Some("subjectAltNames"))] {
            assert_eq!(field(EntrySizes { names, ..one }), expected, "{names}");
        }
    }

    #[test]
    fn long_texts_count_for_more() {
        let long = "x".repeat(TEXT);
        assert_eq!(weight(["spiffe://cluster.local/ns/demo/sa/a", ""]), 1);
        assert_eq!(weight([&*long, "a"]), 17);
        assert_eq!(endpoint([]), 1);
        assert_eq!(
            endpoint(["europe-west1/europe-west1-b/rack-1", "network-1", "a"]),
            1
        );
        assert_eq!(endpoint([&*long, &*long, "a"]), 9);
        assert_eq!(text(&long), None);
        let message = text(&format!("{long}x")).unwrap();
        assert_eq!(message, "want at most 1024 bytes, got 1025");
    }
}
