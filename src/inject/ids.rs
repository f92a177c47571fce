//! User and group that the proxy runs as.

/// Source: Istio's `DefaultProxyUID`; its iptables rules leave the traffic of this user alone.
const PROXY_ID: i64 = 1337;

/// User and group of the proxy, as `.ProxyUID` and `.ProxyGID` have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyIds {
    pub uid: i64,
    pub gid: i64,
}

impl Default for ProxyIds {
    fn default() -> Self {
        Self {
            uid: PROXY_ID,
            gid: PROXY_ID,
        }
    }
}

impl ProxyIds {
    /// Returns the IDs for an OpenShift namespace, whose pods may run only as users of its range: the last of the range,
    /// which OpenShift gives no application. `users` and `groups` are its annotations `openshift.io/sa.scc.uid-range` and
    /// `openshift.io/sa.scc.supplemental-groups`, `START/SIZE` or `START-END`, of groups a list whose first block counts; a
    /// namespace without groups has those of its users. A malformed range leaves 1337.
    #[must_use]
    pub fn of_namespace(users: Option<&str>, groups: Option<&str>) -> Self {
        let own = Self::default();
        let groups = groups.or(users).and_then(|list| list.split(',').next());
        Self {
            uid: users.and_then(last).unwrap_or(own.uid),
            gid: groups.and_then(last).unwrap_or(own.gid),
        }
    }
}

/// The last number of a block.
fn last(block: &str) -> Option<i64> {
    let end = match block.split_once('/') {
        Some((start, size)) => {
            let (start, size): (u32, u32) = (start.trim().parse().ok()?, size.trim().parse().ok()?);
            start.checked_add(size.checked_sub(1)?)?
        }
        None => {
            let (start, end) = block.split_once('-')?;
            let (start, end): (u32, u32) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
            (start <= end).then_some(end)?
        }
    };
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_first_block() {
        for (users, groups, uid, gid) in [
            (None, None, 1337, 1337),
            (Some("1000/10000"), None, 10_999, 10_999),
            (
                Some("1000680000/10000"),
                Some("1000690000/10000"),
                1_000_689_999,
                1_000_699_999,
            ),
            (Some("1000-1999"), Some("5-6,7/8"), 1999, 6),
            (None, Some("5/6"), 1337, 10),
            (Some(""), Some(""), 1337, 1337),
            (Some("4294967295/2"), Some("x/1"), 1337, 1337),
            (Some("7/0"), Some("9-8"), 1337, 1337),
            (Some("-1/5"), None, 1337, 1337),
        ] {
            let ids = ProxyIds::of_namespace(users, groups);
            assert_eq!((ids.uid, ids.gid), (uid, gid), "{users:?} {groups:?}");
        }
    }
}
