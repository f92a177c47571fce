//! The page for a browser: one file, no script, rendered anew for each request.

use std::fmt::Write as _;
use std::time::SystemTime;

use serde_json::Value;

use super::decision::{InjectionDecision, InjectionDecisions, InjectionOutcome, MINUTES};
use crate::admission::micros;
use crate::cli::VERSION;
use crate::html::{self, escaped};
use crate::log;
use crate::tls::expiry;

/// The content of the page.
#[derive(Debug)]
pub(crate) struct PageContent<'a> {
    pub(crate) now: SystemTime,
    pub(crate) why_not: Option<String>,
    /// The document of `/debug/config`.
    pub(crate) config: &'a Value,
    pub(crate) decisions: &'a InjectionDecisions,
}

/// Style beyond that of all pages.
pub(crate) const STYLE: &str = ":root{--injected:#2a8f5b;--skipped:#8a8f98;--failed:#c8412f}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.injected{color:var(--injected)}.skipped{color:var(--skipped)}.failed{color:var(--failed)}
svg{height:9rem}
";

/// The whole page.
pub(crate) fn draw(content: &PageContent<'_>) -> String {
    let mut page = String::with_capacity(16 << 10);
    html::head(&mut page, "gudgeon injector", STYLE);
    sections(&mut page, content);
    expiry::draw(&mut page);
    page.push_str("</body></html>\n");
    page
}

/// Renders the sections from the role's heading on, without the parts that roles share.
pub(crate) fn sections(page: &mut String, content: &PageContent<'_>) {
    let state = match &content.why_not {
        None => "<span class=\"injected\">ready</span>".to_owned(),
        Some(why) => format!("<span class=\"bad\">not ready: {}</span>", escaped(why)),
    };
    // Writing to a string cannot fail, here and below.
    let _written = writeln!(
        page,
        "<h1>gudgeon injector {VERSION}: {state}</h1><p>{} &middot; <a href=\"/debug/inject\">decisions</a> and \
         <a href=\"/debug/config\">configuration</a> as JSON, <a href=\"/metrics\">metrics</a></p>",
        log::stamp(content.now)
    );
    hour(page, content);
    decisions(page, content.decisions);
    files(page, content.config);
    templates(page, content.config);
    certificates(page, content.config);
}

fn hour(page: &mut String, content: &PageContent<'_>) {
    const HEIGHT: u64 = 100;
    const STEP: usize = 10;
    let hour = content.decisions.hour(content.now);
    let max = hour
        .iter()
        .map(|minute| minute.iter().sum())
        .max()
        .unwrap_or(0);
    page.push_str("<h2>Decisions of the last hour, by minute</h2>");
    if max == 0 {
        page.push_str("<p>None.</p>\n");
        return;
    }
    let _written = write!(
        page,
        "<div class=\"axis\">up to {max} in a minute</div><svg viewBox=\"0 0 {} 112\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"decisions by minute\"><line x1=\"0\" y1=\"100.5\" x2=\"{}\" \
         y2=\"100.5\" stroke=\"currentColor\" stroke-opacity=\".3\"/>",
        MINUTES * STEP,
        MINUTES * STEP
    );
    html::ticks(page, MINUTES * STEP, 100);
    for (at, minute) in hour.iter().enumerate() {
        let mut top = HEIGHT;
        for (count, outcome) in minute.iter().zip([
            InjectionOutcome::Injected,
            InjectionOutcome::Skipped,
            InjectionOutcome::Failed,
        ]) {
            if *count == 0 {
                continue;
            }
            // Even a single event must be visible.
            let height = (count * HEIGHT / max).max(1).min(top);
            top -= height;
            let name = outcome.as_str();
            let _written = write!(
                page,
                "<rect x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{height}\" fill=\"var(--{name})\"><title>{} min ago: {count} \
                 {name}</title></rect>",
                at * STEP + 1,
                STEP - 2,
                MINUTES - 1 - at
            );
        }
    }
    page.push_str("</svg>\n");
    html::axis(page);
    let meanings = [
        ("injected", "injected"),
        ("skipped", "skipped"),
        ("failed", "failed"),
    ];
    html::legend(page, &meanings);
}

fn files(page: &mut String, config: &Value) {
    page.push_str("<h2>Files</h2>");
    let files = items(config, "files");
    let columns = ["flag", "path", "since", "sha256", "state"];
    let none = "None is read: template, policy, mesh and certificate are the built-in ones.";
    let empty = files.is_empty().then_some(none);
    html::table(page, &columns, empty, |page| {
        files.iter().for_each(|one| file(page, one));
    });
}

fn file(page: &mut String, file: &Value) {
    let error = file.get("error").and_then(Value::as_str);
    let state = match error {
        None => "<td class=\"injected\">in use".to_owned(),
        Some(cause) => format!(
            "<td class=\"bad\">broken, the last good one is in use: {}",
            escaped(cause)
        ),
    };
    let hash = api::text::cut(text(file, "sha256"), 12);
    let _written = writeln!(
        page,
        "<tr><td>--{}<td><code>{}</code><td>{}<td><code>{}</code>{state}</tr>",
        escaped(text(file, "flag")),
        escaped(text(file, "path")),
        escaped(text(file, "loaded")),
        escaped(hash)
    );
}

fn templates(page: &mut String, config: &Value) {
    let _written = writeln!(
        page,
        "<h2>Templates</h2><p>Policy {}, revision {}</p><table><tr><th>name<th>version</tr>",
        escaped(text(config, "policy")),
        escaped(text(config, "revision"))
    );
    for template in items(config, "templates") {
        let _written = writeln!(
            page,
            "<tr><td>{}<td><code>{}</code></tr>",
            escaped(text(template, "name")),
            escaped(text(template, "version"))
        );
    }
    page.push_str("</table>\n");
}

fn certificates(page: &mut String, config: &Value) {
    let nothing = Value::Null;
    let tls = config.get("tls").unwrap_or(&nothing);
    let names: Vec<String> = items(tls, "names")
        .iter()
        .filter_map(Value::as_str)
        .map(escaped)
        .collect();
    let own = tls.get("selfSigned").and_then(Value::as_bool) == Some(true);
    let _written = writeln!(
        page,
        "<h2>Certificate</h2><p>{}until {}, for {}</p>",
        if own { "Self-signed, " } else { "" },
        escaped(text(tls, "notAfter")),
        names.join(", ")
    );
    let bundles = items(config, "caBundle");
    if bundles.is_empty() {
        return;
    }
    page.push_str("<table><tr><th>webhook configuration<th>entries<th>state</tr>\n");
    for bundle in bundles {
        let entries: Vec<String> = items(bundle, "entries")
            .iter()
            .filter_map(Value::as_str)
            .map(escaped)
            .collect();
        let error = text(bundle, "error");
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{}<td{}>{} {}</tr>",
            escaped(text(bundle, "config")),
            entries.join("<br>"),
            if error.is_empty() {
                ""
            } else {
                " class=\"bad\""
            },
            escaped(text(bundle, "state")),
            escaped(error)
        );
    }
    page.push_str("</table>\n");
}

fn decisions(page: &mut String, decisions: &InjectionDecisions) {
    page.push_str("<h2>Last decisions</h2>");
    let columns = [
        "time",
        "pod",
        "owner",
        "decision",
        "reason",
        "operations",
        "bytes",
        "&micro;s",
        "",
    ];
    let none = "No review yet.";
    let empty = decisions.newest().next().is_none().then_some(none);
    html::table(page, &columns, empty, |page| {
        decisions.newest().for_each(|decision| row(page, decision));
    });
}

fn row(page: &mut String, decision: &InjectionDecision) {
    let outcome = decision.outcome.as_str();
    let mut details: Vec<String> = Vec::new();
    if decision.dry_run {
        details.push("dry run".to_owned());
    }
    if decision.native {
        details.push("native sidecar".to_owned());
    }
    details.extend(decision.warnings.iter().map(|warning| escaped(warning)));
    if !decision.message.is_empty() {
        details.push(escaped(&decision.message));
    }
    let _written = writeln!(
        page,
        "<tr><td>{}<td>{}/{}<td>{}<td class=\"{outcome}\">{outcome}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td>{}\
         </tr>",
        log::stamp(decision.time),
        escaped(&decision.namespace),
        escaped(&decision.name),
        escaped(&decision.owner),
        escaped(decision.reason),
        decision.operations,
        decision.bytes,
        micros(decision.took),
        details.join("<br>")
    );
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_escapes_text_from_outside() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let mut decisions = InjectionDecisions::default();
        decisions.add(InjectionDecision {
            time: now,
            uid: "u".into(),
            namespace: "<script>".into(),
            name: "a\"b".into(),
            owner: "Deployment web".into(),
            outcome: InjectionOutcome::Failed,
            reason: "template",
            templates: Vec::new(),
            version: String::new(),
            native: true,
            dry_run: true,
            operations: 0,
            bytes: 0,
            took: Duration::from_micros(7),
            warnings: vec!["<b>".into()],
            message: "it's & so".into(),
        });
        let config = json!({
            "policy": "enabled", "revision": "", "templates": [{"name": "<i>", "version": "ab"}],
            "files": [{"flag": "injectConfig", "path": "/x", "sha256": "0123456789abcdef", "loaded": "t", "valid": false,
                "error": "line 3: <"}],
            "caBundle": [{"config": "c", "entries": ["e"], "state": "waiting", "error": "403"}],
            "tls": {"notAfter": "z", "names": ["a.example"], "selfSigned": true},
        });
        let page = draw(&PageContent {
            now,
            why_not: Some("draining".into()),
            config: &config,
            decisions: &decisions,
        });
        for content in [
            "not ready: draining",
            "&lt;script&gt;/a&quot;b",
            "it&#39;s &amp; so",
            "&lt;i&gt;",
            "line 3: &lt;",
            "fill=\"var(--failed)\"><title>0 min ago: 1 failed",
            "0123456789ab<",
            "dry run<br>native sidecar<br>&lt;b&gt;",
            "Self-signed, until z, for a.example",
            "waiting 403",
        ] {
            assert!(page.contains(content), "{content}\n{page}");
        }
        assert!(!page.contains("<script") && !page.contains("<i>") && !page.contains("<b>"));
    }
}
