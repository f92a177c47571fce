//! Metrics in the older of Prometheus' two formats.

use std::fmt::Write as _;

use prometheus_client::metrics::counter::Counter;

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A counter of what is counted elsewhere.
pub(crate) fn up_to(counter: &Counter, count: u64) {
    counter.inc_by(count.saturating_sub(counter.get()));
}

/// The older format out of the newer one: counters of the original lose their `_total`, the others' descriptions get it.
pub(crate) fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut family = String::new();
    let mut help = String::new();
    let mut counter = false;
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
            counter = kind == "counter" && !name.starts_with("gudgeon_");
            let shown = if kind == "counter" && !counter {
                "_total"
            } else {
                ""
            };
            let words = help.strip_prefix(name).unwrap_or_default();
            let _written = write!(
                out,
                "# HELP {name}{shown}{words}\n# TYPE {name}{shown} {kind}\n"
            );
            name.clone_into(&mut family);
            continue;
        }
        let sample = line
            .strip_prefix(family.as_str())
            .and_then(|rest| rest.strip_prefix("_total"))
            .filter(|_| counter);
        match sample {
            Some(rest) => {
                out.push_str(&family);
                out.push_str(rest);
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}
