//! The Istio release of an agent's image. Agents end at probes of an unknown form, so the form follows the release that will
//! run.

use serde_json::Value;

use crate::file::Probers;
use crate::labels::Labels;
use crate::pod;

/// The vendor and release of the agent in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// Istio 1.N; those before 1.0 count as 1.0.
    Istio(u32),
    /// pintle, which supports all features of Istio's newest agents.
    Ours,
    /// The tag names no release.
    Unknown,
}

impl Release {
    /// The release that the tag of an image names: `proxyv2:1.4.10` is Istio 1.4.
    pub(crate) fn of_image(image: &str) -> Self {
        // A registry's port has a colon, too, and a digest may stand behind the tag.
        let last = image.rsplit('/').next().unwrap_or_default();
        let last = last.split('@').next().unwrap_or_default();
        let (name, tag) = last.split_once(':').unwrap_or((last, ""));
        if name.starts_with("pintle") {
            return Self::Ours;
        }
        // Other images count their releases by themselves. Mirrors put a prefix before the name.
        let is_istios = name.starts_with("proxy")
            || ["proxyv2", "istio-proxy"]
                .into_iter()
                .any(|known| name.contains(known));
        if !is_istios {
            return Self::Unknown;
        }
        let before_1 = tag.strip_prefix("0.");
        if before_1.is_some_and(|minor| minor.starts_with(|first: char| first.is_ascii_digit())) {
            return Self::Istio(0);
        }
        let minor = tag.strip_prefix("1.").unwrap_or_default();
        let end = minor.find(|letter: char| !letter.is_ascii_digit());
        let (number, rest) = minor.split_at(end.unwrap_or(minor.len()));
        if !(rest.is_empty() || rest.starts_with(['.', '-'])) {
            return Self::Unknown;
        }
        number.parse().map_or(Self::Unknown, Self::Istio)
    }

    /// The release of the container istio-proxy among some.
    pub(crate) fn of_proxy<'a>(containers: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut proxies = containers
            .into_iter()
            .filter(|container| pod::name(container) == pod::PROXY);
        let image = proxies.find_map(|proxy| proxy.get("image")?.as_str());
        image.map_or(Self::Unknown, Self::of_image)
    }

    fn is_between(self, first: u32, last: u32) -> bool {
        matches!(self, Self::Istio(minor) if (first..=last).contains(&minor))
    }

    /// Returns true if injectors of that release set the pod's group for the token of its account, where their template was
    /// a fragment: those before did so for the secret discovery service alone.
    pub(crate) fn sets_group(self) -> bool {
        self.is_between(7, 8)
    }

    /// Returns true if injectors of that release merged metrics and asked the mesh for the status port, where their template
    /// was a fragment.
    pub(crate) fn is_of_istiods_fragments(self) -> bool {
        self.is_between(6, 8)
    }

    /// Returns true if injectors of that release read `podRedirectAnnot` and ignored it, while their template went on
    /// writing it.
    pub(crate) fn drops_redirect(self) -> bool {
        self.is_between(8, 8)
    }

    /// Returns true if injectors of that release gave a proxy its threads, where their template was an overlay.
    pub(crate) fn gives_threads(self) -> bool {
        self.is_between(9, 10)
    }
}

/// The configuration's settings of agents; an unset one follows their release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentSettings {
    pub(crate) probers: Option<Probers>,
    pub(crate) add_labels: Option<bool>,
    pub(crate) is_fragment: bool,
    /// Templates of Istio 1.1 are written with brackets.
    pub(crate) brackets: bool,
}

impl AgentSettings {
    pub(crate) fn probers(self, release: Release) -> Probers {
        self.probers.unwrap_or(match release {
            Release::Istio(..5) => Probers::Legacy,
            Release::Istio(5..=6) => Probers::WithoutStartup,
            Release::Istio(7..=8) => Probers::CurrentHttp,
            Release::Istio(9..=11) => Probers::Http,
            Release::Istio(12) => Probers::TcpSocket,
            Release::Istio(13..=24) => Probers::Grpc,
            Release::Istio(_) | Release::Ours => Probers::Current,
            Release::Unknown if !self.is_fragment => Probers::Current,
            Release::Unknown if self.brackets => Probers::Legacy,
            Release::Unknown => Probers::CurrentHttp,
        })
    }

    pub(crate) fn labels(self, release: Release) -> Labels {
        if let Some(all) = self.add_labels {
            return if all { Labels::All } else { Labels::None };
        }
        // Overlays write their own.
        if !self.is_fragment {
            return Labels::None;
        }
        match release {
            Release::Istio(..4) | Release::Ours => Labels::None,
            Release::Istio(4) => Labels::TlsMode,
            Release::Istio(_) => Labels::All,
            Release::Unknown if self.brackets => Labels::None,
            Release::Unknown => Labels::All,
        }
    }

    /// Returns true if neither configuration nor release tells which probers the agent supports.
    pub(crate) fn guesses(self, release: Release) -> bool {
        self.probers.is_none() && release == Release::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_its_release() {
        let rows = [
            ("docker.io/istio/proxyv2:1.4.10", Release::Istio(4)),
            ("proxyv2:1.10", Release::Istio(10)),
            ("istio/proxy:0.7.1", Release::Istio(0)),
            ("proxy:0.8.0-rc.1", Release::Istio(0)),
            ("corp/agent:0.3.1", Release::Unknown),
            ("corp/sidecar:1.2.0", Release::Unknown),
            ("corp/my-proxy:1.2.0", Release::Unknown),
            ("corp/mirrored-istio-proxyv2:1.6.8", Release::Istio(6)),
            ("corp/istio-proxy:1.17.2", Release::Istio(17)),
            ("corp/proxyv2-distroless:1.20.0", Release::Istio(20)),
            ("proxy:0.x", Release::Unknown),
            (
                "h:5000/istio/proxyv2:1.8.6-distroless@sha256:ab",
                Release::Istio(8),
            ),
            ("proxyv2:1.6-alpha.abc", Release::Istio(6)),
            ("pintle-envoy:1.4.0", Release::Ours),
            ("h/pintle-envoy", Release::Ours),
            ("proxyv2:latest", Release::Unknown),
            ("proxyv2", Release::Unknown),
            ("proxyv2:1.x", Release::Unknown),
            ("proxyv2:1.2rc", Release::Unknown),
            ("proxyv2:21.4.1", Release::Unknown),
            ("proxyv2:1.99999999999", Release::Unknown),
            ("1.4.10/proxyv2", Release::Unknown),
            ("", Release::Unknown),
        ];
        for (image, wanted) in rows {
            assert_eq!(Release::of_image(image), wanted, "{image}");
        }
    }

    #[test]
    fn an_agent_gets_what_it_understands() {
        let agents = |is_fragment, brackets| AgentSettings {
            probers: None,
            add_labels: None,
            is_fragment,
            brackets,
        };
        let rows = [
            (
                agents(true, false),
                Release::Istio(3),
                Probers::Legacy,
                Labels::None,
            ),
            (
                agents(true, false),
                Release::Istio(4),
                Probers::Legacy,
                Labels::TlsMode,
            ),
            (
                agents(true, true),
                Release::Istio(5),
                Probers::WithoutStartup,
                Labels::All,
            ),
            (
                agents(true, false),
                Release::Istio(8),
                Probers::CurrentHttp,
                Labels::All,
            ),
            (
                agents(true, false),
                Release::Unknown,
                Probers::CurrentHttp,
                Labels::All,
            ),
            (
                agents(true, true),
                Release::Unknown,
                Probers::Legacy,
                Labels::None,
            ),
            (
                agents(true, true),
                Release::Ours,
                Probers::Current,
                Labels::None,
            ),
            (
                agents(false, false),
                Release::Istio(9),
                Probers::Http,
                Labels::None,
            ),
            (
                agents(false, false),
                Release::Unknown,
                Probers::Current,
                Labels::None,
            ),
        ];
        for (agents, release, probers, labels) in rows {
            assert_eq!(
                (agents.probers(release), agents.labels(release)),
                (probers, labels),
                "{agents:?} {release:?}"
            );
        }
    }

    /// By pilot/cmd/pilot-agent/status/server.go of each release.
    #[test]
    fn the_release_decides_on_probes() {
        let silent = AgentSettings {
            probers: None,
            add_labels: None,
            is_fragment: false,
            brackets: false,
        };
        let rows = [
            (4, Probers::Legacy),
            (5, Probers::WithoutStartup),
            (6, Probers::WithoutStartup),
            (7, Probers::CurrentHttp),
            (8, Probers::CurrentHttp),
            (9, Probers::Http),
            (11, Probers::Http),
            (12, Probers::TcpSocket),
            (13, Probers::Grpc),
            (24, Probers::Grpc),
            (25, Probers::Current),
        ];
        for (minor, probers) in rows {
            assert_eq!(silent.probers(Release::Istio(minor)), probers, "1.{minor}");
        }
    }

    #[test]
    fn settings_of_the_configuration_win() {
        let silent = AgentSettings {
            probers: None,
            add_labels: None,
            is_fragment: true,
            brackets: true,
        };
        let configured = AgentSettings {
            probers: Some(Probers::Current),
            add_labels: Some(true),
            ..silent
        };
        assert_eq!(configured.probers(Release::Istio(1)), Probers::Current);
        assert_eq!(configured.labels(Release::Istio(1)), Labels::All);
        assert!(silent.guesses(Release::Unknown));
        assert!(!configured.guesses(Release::Unknown));
        let overlay = AgentSettings {
            is_fragment: false,
            ..silent
        };
        assert!(overlay.guesses(Release::Unknown));
    }
}
