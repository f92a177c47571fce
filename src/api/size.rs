//! How much an object may come to, where its lists multiply: a small file must not be a large answer to every proxy.

/// hosts × ports of one ServiceEntry, and ports of one Service, each of which is a cluster, an assignment and a virtual host of
/// every proxy: 4,096 are some 6 MB of them. `discovery.md` §5.2.
pub const SERVICE_PORTS: usize = 4_096;

/// hosts × ports × endpoints of one, and the same with addresses, each of which is a place in an answer: 100,000 are some
/// 5 MB in every proxy. Chosen with the former: ten times what the largest mesh that is promised has.
pub const SERVICE_PLACES: usize = 100_000;

/// What of a ServiceEntry is too much, by the lengths of its lists: the field, and the cause. Every reader of ServiceEntries
/// refuses it in these words.
pub(crate) fn service_entry(
    hosts: usize,
    ports: usize,
    endpoints: usize,
    addresses: usize,
) -> Option<(&'static str, String)> {
    let pairs = hosts.saturating_mul(ports);
    if pairs > SERVICE_PORTS {
        let cause = format!(
            "{hosts} hosts with {ports} ports are {pairs} ports of services, more than {SERVICE_PORTS}: split the entry"
        );
        return Some(("hosts", cause));
    }
    let lists = [("endpoints", endpoints), ("addresses", addresses)];
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

/// How many addresses or selected workloads count, of a service of so many hosts and ports.
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
            service_entry(hosts, ports, endpoints, addresses).map(|(field, _)| field)
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
}
