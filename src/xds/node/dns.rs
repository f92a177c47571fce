//! DNS options of a cluster, and the part of it in which an Envoy expects them.

/// The part of a cluster that has its DNS options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dns {
    /// In fields of the cluster: every Envoy knows them, and those of today call them deprecated with each cluster.
    #[default]
    Fields,
    /// In a type of cluster of its own, `envoy.cluster.dns`.
    ClusterType,
}

impl Dns {
    /// The part that an Envoy of this version expects. The type came with 1.33; the release after it has it whole.
    pub(super) fn of(version: &str) -> Self {
        let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (1, 34) => Self::ClusterType,
            _ => Self::Fields,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envoy_of_today_is_given_a_type_of_cluster_for_names() {
        for (version, dns) in [
            ("1.40.0", Dns::ClusterType),
            ("1.34.0-dev", Dns::ClusterType),
            ("2.0", Dns::ClusterType),
            ("1.33.9", Dns::Fields),
            ("1.7.0", Dns::Fields),
            ("", Dns::Fields),
            ("1", Dns::Fields),
            ("v1.40", Dns::Fields),
            ("99999999999.99999999999", Dns::Fields),
        ] {
            assert_eq!(Dns::of(version), dns, "{version}");
        }
    }
}
