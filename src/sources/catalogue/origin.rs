//! The place that an object is written in, as the log, pages and documents show it.

use std::fmt;
use std::sync::Arc;

use api::model::ClusterId;

/// The place that an object is written in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A file or a directory, and the line in it; 0 if that is unknown.
    File { path: Arc<str>, line: usize },
    /// An object of an API server: `NAMESPACE/NAME@VERSION`.
    Cluster {
        cluster: ClusterId,
        object: Arc<str>,
    },
    /// A source without places of its own: an address that speaks MCP, or a registry.
    Source(Arc<str>),
}

impl Origin {
    /// A file or a directory.
    #[must_use]
    pub fn file(path: impl Into<Arc<str>>) -> Self {
        Self::File {
            path: path.into(),
            line: 0,
        }
    }

    /// An object of an API server. `version`: its `resourceVersion`; empty if that is unknown.
    #[must_use]
    pub fn of_cluster(cluster: &ClusterId, object: &impl fmt::Display, version: &str) -> Self {
        let object = match version {
            "" => object.to_string(),
            version => format!("{object}@{version}"),
        };
        Self::Cluster {
            cluster: cluster.clone(),
            object: object.into(),
        }
    }

    /// Returns the same place at another line; only a file has lines.
    #[must_use]
    pub fn at(&self, line: usize) -> Self {
        match self {
            Self::File { path, .. } => Self::File {
                path: Arc::clone(path),
                line,
            },
            Self::Cluster { .. } | Self::Source(_) => self.clone(),
        }
    }

    /// Returns the same place without the version of the object there.
    #[must_use]
    pub fn without_version(&self) -> Self {
        match self {
            Self::Cluster { cluster, object } => Self::Cluster {
                cluster: cluster.clone(),
                object: object.split('@').next().unwrap_or_default().into(),
            },
            Self::File { .. } | Self::Source(_) => self.clone(),
        }
    }

    /// The line; 0 if it is unknown.
    #[must_use]
    pub const fn line(&self) -> usize {
        match self {
            Self::File { line, .. } => *line,
            Self::Cluster { .. } | Self::Source(_) => 0,
        }
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self::Source(Arc::default())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: 0 } => to.write_str(path),
            Self::File { path, line } => write!(to, "{path}:{line}"),
            Self::Cluster { cluster, object } => write!(to, "{cluster}/{object}"),
            Self::Source(name) => to.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_text_everywhere() {
        let file = Origin::file("rules/a.yaml");
        let east = ClusterId::from("east");
        let server = Origin::of_cluster(&east, &"shop/web", "17");
        let source = Origin::Source("mcp://a:1".into());
        for (origin, text, line) in [
            (file.clone(), "rules/a.yaml", 0),
            (file.at(7), "rules/a.yaml:7", 7),
            (file.at(7).at(0), "rules/a.yaml", 0),
            (server.clone(), "east/shop/web@17", 0),
            (server.at(7), "east/shop/web@17", 0),
            (Origin::of_cluster(&east, &"web", ""), "east/web", 0),
            (source.at(7), "mcp://a:1", 0),
        ] {
            assert_eq!((&*origin.to_string(), origin.line()), (text, line));
        }
    }

    /// Each object has one: a galley holds 200,000 of them.
    #[test]
    fn an_origin_is_small() {
        assert!(size_of::<Origin>() <= 40);
    }
}
