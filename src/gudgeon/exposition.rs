//! Metrics in the requested format: Prometheus' text, or `OpenMetrics`.
//!
//! Names are the same in both, since dashboards and alerts depend on them. pilot-discovery's counters do not end in
//! `_total`, and in `OpenMetrics` all counters do: there they have the type unknown, as Prometheus' own client for Go writes
//! them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;

use hyper::header::{ACCEPT, HeaderMap};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::cli::{REVISION, VERSION};

/// Gauges that labels tell apart.
pub(crate) type GaugeFamily<const LABELS: usize> = Family<[(&'static str, String); LABELS], Gauge>;

/// The formats that clients read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExpositionFormat {
    #[default]
    Text,
    OpenMetrics,
}

impl ExpositionFormat {
    /// Chooses `OpenMetrics` for a client that names it and prefers no other; text for all others, even if they accept
    /// neither.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Self {
        let ranges = headers.get_all(ACCEPT).into_iter();
        let ranges = ranges.filter_map(|value| value.to_str().ok());
        let (mut text, mut open) = (0, 0);
        for range in ranges.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut known) = (1000, true);
            for part in parts {
                let (name, value) = part.split_once('=').unwrap_or((part, ""));
                match &*name.trim().to_ascii_lowercase() {
                    "q" => weight = thousandths(value.trim()),
                    "version" => known = value.trim().trim_matches('"').starts_with(['0', '1']),
                    _ => {}
                }
            }
            match &*kind {
                "application/openmetrics-text" if known => open = weight.max(open),
                "text/plain" => text = weight.max(text),
                _ => {}
            }
        }
        if open > 0 && open >= text {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// An answer in this format is another one than that in the other.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Text => "/metrics",
            Self::OpenMetrics => "/metrics openmetrics",
        }
    }

    /// Renders all metrics. Counters of the originals are registered by their whole name, gudgeon's without their `_total`.
    pub(crate) fn text(self, registry: &Registry) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _written = encode(&mut text, registry);
        self.rewritten(&text)
    }

    /// Rewrites the encoder's text, which gives each counter a `_total`, also those that have one.
    fn rewritten(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut family = String::new();
        let mut help = String::new();
        let mut original = false;
        for line in text.lines() {
            if line == "# EOF" || line.starts_with("# UNIT ") {
                continue;
            }
            if let Some(rest) = line.strip_prefix("# HELP ") {
                rest.clone_into(&mut help);
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
                original = kind == "counter" && !name.starts_with("gudgeon_");
                let description = help.strip_prefix(name).unwrap_or_default();
                self.head(&mut out, name, kind, description);
                name.clone_into(&mut family);
                continue;
            }
            let sample = line
                .strip_prefix(family.as_str())
                .and_then(|rest| rest.strip_prefix("_total"))
                .filter(|_| original);
            match sample {
                Some(rest) => {
                    out.push_str(&family);
                    out.push_str(rest);
                }
                None => out.push_str(line),
            }
            out.push('\n');
        }
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    /// Writes the HELP and TYPE lines of a metric family.
    fn head(self, out: &mut String, name: &str, kind: &str, description: &str) {
        let is_ours = name.starts_with("gudgeon_");
        let (name, more, kind) = match self {
            _ if kind != "counter" => (name, "", kind),
            Self::Text if is_ours => (name, "_total", kind),
            Self::OpenMetrics if is_ours => (name, "", kind),
            Self::Text => (name, "", kind),
            Self::OpenMetrics => match name.strip_suffix("_total") {
                Some(name) => (name, "", kind),
                None => (name, "", "unknown"),
            },
        };
        let _written = write!(
            out,
            "# HELP {name}{more}{description}\n# TYPE {name}{more} {kind}\n"
        );
    }
}

/// Merges several documents. A family in more than one of them appears once, with all their samples; of two samples of one
/// name and labels the first counts, but of those about files the one that says what is wrong.
pub(crate) fn merged(
    documents: impl IntoIterator<Item = String>,
    format: ExpositionFormat,
) -> String {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut families: Vec<MergedFamily> = Vec::new();
    for document in documents {
        let mut place = None;
        let mut head = String::new();
        for line in document.lines().filter(|line| *line != "# EOF") {
            if line.starts_with("# HELP ") {
                line.clone_into(&mut head);
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap_or_default();
                place = Some(*places.entry(name.to_owned()).or_insert_with(|| {
                    families.push(MergedFamily {
                        head: format!("{head}\n{line}\n"),
                        samples: Vec::new(),
                        names: HashMap::new(),
                    });
                    families.len().saturating_sub(1)
                }));
                continue;
            }
            let family = place.and_then(|place| families.get_mut(place));
            let name = line.rsplit_once(' ').map_or(line, |(name, _)| name);
            if let Some(family) = family {
                family.add(name, line);
            }
        }
    }
    let mut out = String::new();
    for family in families {
        out.push_str(&family.head);
        for sample in family.samples {
            out.push_str(&sample);
            out.push('\n');
        }
    }
    if format == ExpositionFormat::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

struct MergedFamily {
    /// `# HELP` and `# TYPE`.
    head: String,
    samples: Vec<String>,
    /// Places of the samples, by their names and labels.
    names: HashMap<String, usize>,
}

impl MergedFamily {
    /// Adds a sample, or merges it into one of the same name and labels.
    fn add(&mut self, name: &str, line: &str) {
        match self.names.entry(name.to_owned()) {
            Entry::Vacant(free) => {
                free.insert(self.samples.len());
                self.samples.push(line.to_owned());
            }
            Entry::Occupied(place) => {
                let sample = self.samples.get_mut(*place.get());
                if let Some(sample) = sample.filter(|sample| is_worse(name, line, sample)) {
                    line.clone_into(sample);
                }
            }
        }
    }
}

/// Returns true if a sample about a file says more of what is wrong than another role's about the same file: a file is valid where all
/// roles use it.
fn is_worse(name: &str, line: &str, sample: &str) -> bool {
    let value = |line: &str| {
        let value = line.rsplit_once(' ').map(|(_, value)| value);
        value.and_then(|value| value.parse::<f64>().ok())
    };
    match (value(line), value(sample)) {
        (Some(value), Some(sample)) if name.starts_with("gudgeon_config_valid") => value < sample,
        (Some(value), Some(sample)) if name.starts_with("gudgeon_config_reloads") => value > sample,
        _ => false,
    }
}

/// A quality, as `0.75`, in thousandths; any other text is 0.
fn thousandths(quality: &str) -> u32 {
    let quality: f32 = quality.parse().unwrap_or_default();
    let quality = quality.clamp(0.0, 1.0) * 1000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and 1000"
    )]
    let whole = quality.round() as u32;
    whole
}

/// Raises a counter to a count that is kept elsewhere.
pub(crate) fn up_to(counter: &Counter, count: u64) {
    counter.inc_by(count.saturating_sub(counter.get()));
}

/// Registers the version that runs: each role has the same family, so that one rule watches a fleet's versions.
pub(crate) fn register_build(registry: &mut Registry) {
    let info = Family::<[(&'static str, &'static str); 2], Gauge>::default();
    info.get_or_create(&[("version", VERSION), ("revision", REVISION)])
        .set(1);
    registry.register("gudgeon_build_info", "Version and revision, always 1", info);
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn documents_of_several_roles_are_one() {
        let of = |text: &str| text.to_owned();
        let one = "# HELP a Of one\n# TYPE a gauge\na{x=\"1\"} 1\n# HELP b B\n# TYPE b counter\nb 5\n# EOF\n";
        let other = "# HELP a Of another\n# TYPE a gauge\na{x=\"1\"} 2\na{x=\"2 \"} 3\n# HELP c C\n# TYPE c gauge\n# EOF\n";
        let both = "# HELP a Of one\n# TYPE a gauge\na{x=\"1\"} 1\na{x=\"2 \"} 3\n# HELP b B\n# TYPE b counter\nb 5\n# HELP c C\n# TYPE c gauge\n";
        assert_eq!(merged([of(one), of(other)], ExpositionFormat::Text), both);
        let open = merged([of(one), of(other)], ExpositionFormat::OpenMetrics);
        assert_eq!(open, format!("{both}# EOF\n"));
    }

    /// An alert on a file must not depend on the order of the roles.
    #[test]
    fn a_file_is_valid_where_all_roles_use_it() {
        let of = |valid: u8, broken: u8| {
            format!(
                "# HELP gudgeon_config_valid V\n# TYPE gudgeon_config_valid gauge\ngudgeon_config_valid{{file=\"meshConfig\"}} {valid}\n\
                 # HELP gudgeon_config_reloads_total R\n# TYPE gudgeon_config_reloads_total counter\n\
                 gudgeon_config_reloads_total{{file=\"meshConfig\",result=\"broken\"}} {broken}\n"
            )
        };
        for documents in [[of(1, 0), of(0, 2)], [of(0, 2), of(1, 0)]] {
            assert_eq!(merged(documents, ExpositionFormat::Text), of(0, 2));
        }
    }

    #[test]
    fn a_client_that_accepts_open_metrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1";
        for (accept, open) in [
            (&[][..], false),
            (&[""], false),
            (&["*/*"], false),
            (&["text/plain"], false),
            (&["text/html, application/json;q=0.9, */*;q=0.8"], false),
            (&["application/openmetrics-text"], true),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\""], true),
            (&["application/openmetrics-text; version=2.0.0"], false),
            (&["application/openmetrics-text;q=0"], false),
            (&["application/openmetrics-text;q=often"], false),
            (&["application/openmetrics-text, text/plain;q=0.5"], true),
            (
                &["application/openmetrics-text;q=0.4, text/plain;q=0.5"],
                false,
            ),
            (&["text/plain", "application/openmetrics-text"], true),
            (&[prometheus], true),
            (
                &[
                    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
                ],
                false,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            let asked = ExpositionFormat::negotiate(&headers);
            assert_eq!(asked == ExpositionFormat::OpenMetrics, open, "{accept:?}");
        }
    }

    #[test]
    fn names_are_the_same_in_both() {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        counter.inc();
        for name in ["pilot_pushes", "galley_events_total", "gudgeon_panics"] {
            registry.register(name, "What happened", counter.clone());
        }
        registry.register("galley_instances_total", "What is", Gauge::<i64>::default());
        let parts = [
            [
                "pilot_pushes",
                "counter",
                "pilot_pushes",
                "unknown",
                "pilot_pushes 1",
            ],
            [
                "galley_events_total",
                "counter",
                "galley_events",
                "counter",
                "galley_events_total 1",
            ],
            [
                "gudgeon_panics_total",
                "counter",
                "gudgeon_panics",
                "counter",
                "gudgeon_panics_total 1",
            ],
            [
                "galley_instances_total",
                "gauge",
                "galley_instances_total",
                "gauge",
                "galley_instances_total 0",
            ],
        ];
        let (mut text, mut open) = (String::new(), String::new());
        for [in_text, kind, in_open, kind_in_open, sample] in parts {
            let help = if kind == "gauge" {
                "What is."
            } else {
                "What happened."
            };
            for (out, name, kind) in [
                (&mut text, in_text, kind),
                (&mut open, in_open, kind_in_open),
            ] {
                out.push_str(&format!(
                    "# HELP {name} {help}\n# TYPE {name} {kind}\n{sample}\n"
                ));
            }
        }
        assert_eq!(ExpositionFormat::Text.text(&registry), text);
        assert_eq!(
            ExpositionFormat::OpenMetrics.text(&registry),
            open + "# EOF\n"
        );
    }

    #[test]
    fn both_formats_have_the_build() {
        let mut registry = Registry::default();
        register_build(&mut registry);
        for format in [ExpositionFormat::Text, ExpositionFormat::OpenMetrics] {
            let text = format.text(&registry);
            let head = "# HELP gudgeon_build_info Version and revision, always 1.\n# TYPE gudgeon_build_info gauge\n";
            assert!(text.starts_with(head), "{text}");
            let sample =
                format!("gudgeon_build_info{{version=\"{VERSION}\",revision=\"{REVISION}\"}} 1\n");
            assert!(text.contains(&sample), "{text}");
        }
    }
}
