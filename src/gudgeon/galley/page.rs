//! The page for a browser: first the objects that are not served, with reasons; then the served ones.

use std::fmt::Write as _;
use std::time::Duration;

use api::config::Finding;
use api::counted;
use mcp::collections::Group;

use super::admin_state::AdminState;
use super::configz;
use super::engine::GalleyEngine;
use super::peers;
use super::state_snapshot::{Publish, StateSnapshot};
use crate::cli::VERSION;
use crate::html::{self, Bar, ROWS, escaped};
use crate::log;
use crate::tls::expiry;

/// The whole page.
pub(super) fn draw(admin: &AdminState) -> String {
    let mut page = String::with_capacity(16 << 10);
    html::head(&mut page, "gudgeon galley", "");
    sections(&mut page, admin);
    expiry::draw(&mut page);
    page.push_str("</body></html>\n");
    page
}

/// Renders the sections from the role's heading on, without the parts that roles share.
pub(super) fn sections(page: &mut String, admin: &AdminState) {
    let state = match admin.readiness.why_not_ready() {
        None => "<span class=\"good\">ready</span>".to_owned(),
        Some(why) => format!("<span class=\"bad\">not ready: {}</span>", escaped(&why)),
    };
    // Writing to a string cannot fail, here and below.
    let _written = writeln!(
        page,
        "<h1>gudgeon galley {VERSION}: {state}</h1><p>{} &middot; <a href=\"{}/configz\">all of this</a> as JSON</p>",
        log::stamp(std::time::SystemTime::now()),
        admin.base
    );
    for line in admin.readiness.optional_messages() {
        let _written = writeln!(page, "<p class=\"bad\">{}</p>", escaped(&line));
    }
    if let Some(engine) = &admin.engine {
        let current = engine.state_snapshot();
        refused(page, &current);
        warned(page, &current);
        timeline(page, engine, &current);
        collections(page, &current, admin.base);
        peers::draw(page, &admin.peers.stream_statuses());
        session(page, engine, &current);
    }
    admin.files.draw(page);
    if let Some(webhook) = &admin.webhook {
        webhook.draw(page);
    }
}

fn describe_findings<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> String {
    let mut text = String::new();
    for finding in findings {
        if !text.is_empty() {
            text.push_str("<br>");
        }
        if !finding.path.is_empty() {
            let _written = write!(text, "<code>{}</code>: ", escaped(&finding.path));
        }
        text.push_str(&escaped(&finding.message));
    }
    text
}

fn refused(page: &mut String, current: &StateSnapshot) {
    let count = current.refused().count();
    if count == 0 {
        page.push_str("<h2>Nothing is refused</h2>\n");
        return;
    }
    let _written = writeln!(
        page,
        "<h2>Not served as it is written: {count}</h2><table><tr><th>where<th>what<th>state<th>why</tr>"
    );
    for one in current.refused().take(ROWS) {
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{}<br>{}<td class=\"bad\">{}<td>{}</tr>",
            escaped(&one.origin.to_string()),
            escaped(one.id.collection),
            escaped(&one.id.name),
            one.serving.as_str(),
            describe_findings(&*one.findings)
        );
    }
    html::more(page, count);
    page.push_str("</table>\n");
}

fn warned(page: &mut String, current: &StateSnapshot) {
    let count = current.warned().count();
    if count == 0 {
        return;
    }
    let _written = writeln!(
        page,
        "<h2>Warnings: {count}</h2><table><tr><th>where<th>what<th>why</tr>"
    );
    for one in current.warned().take(ROWS) {
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{}<br>{}<td>{}</tr>",
            escaped(&one.origin.to_string()),
            escaped(one.id.collection),
            escaped(&one.id.name),
            describe_findings(one.warnings.iter().chain(&*one.notes))
        );
    }
    html::more(page, count);
    page.push_str("</table>\n");
}

fn timeline(page: &mut String, engine: &GalleyEngine, current: &StateSnapshot) {
    let now = engine.clock.now();
    page.push_str("<h2>Publishes of the last hour</h2>");
    let bars = current.publishes.iter().map(|publish| Bar {
        age: now.saturating_sub(publish.at),
        height: match publish.group {
            Group::Default => 75,
            Group::SyntheticServiceEntry => 40,
        },
        color: match publish.group {
            Group::Default => "some",
            Group::SyntheticServiceEntry => "good",
        },
        words: described(engine, publish),
    });
    let meanings = [
        ("some", "configuration"),
        ("good", "entries made of services"),
    ];
    html::timeline(page, "publishes by time", &meanings, bars);
}

fn described(engine: &GalleyEngine, publish: &Publish) -> String {
    format!(
        "{} {}: {}, the first has waited for {:.3} s",
        log::stamp(engine.clock.wall(publish.at)),
        publish.group.as_str(),
        counted(publish.changes, "change"),
        publish.waited.as_secs_f64()
    )
}

fn collections(page: &mut String, current: &StateSnapshot, base: &str) {
    let listed = || {
        let published = current.published.iter();
        let all = published.flat_map(|published| published.snapshot.collections());
        all.filter(|one| configz::is_listed(one))
    };
    let (all, empty) = (
        listed().count(),
        listed().filter(|one| one.members().is_empty()).count(),
    );
    page.push_str("<h2>Collections</h2>");
    let columns = [
        "collection",
        "resources",
        "bytes",
        "version",
        "effect in gudgeon discovery",
    ];
    let message = (all == empty).then_some("All are empty.");
    html::table(page, &columns, message, |page| {
        for one in listed().filter(|one| !one.members().is_empty()) {
            let name = escaped(one.name());
            let effect = configz::effect(one).unwrap_or("-");
            let _written = writeln!(
                page,
                "<tr><td><a href=\"{base}/configz?collection={name}\">{name}</a><td>{}<td>{}<td><code>{}</code><td{}>{}</tr>",
                one.members().len(),
                one.bytes(),
                one.version(),
                if effect == "none" {
                    " class=\"bad\""
                } else {
                    ""
                },
                effect
            );
        }
    });
    if empty > 0 && empty < all {
        let _written = writeln!(page, "<p>and {empty} that are empty</p>");
    }
}

fn session(page: &mut String, engine: &GalleyEngine, current: &StateSnapshot) {
    let time = |at: Duration| log::stamp(engine.clock.wall(at));
    let session = &current.session;
    let _written = writeln!(
        page,
        "<h2>Session {}</h2><p>{} since {}: {}. Source: {}, {}</p>",
        session.number,
        session.state.as_str(),
        time(session.since),
        session.reason,
        engine.settings.source,
        match (&current.stale, current.complete) {
            (Some((since, why)), _) => format!(
                "<span class=\"bad\">stale since {}: {}</span>",
                time(*since),
                escaped(why)
            ),
            (None, true) => "<span class=\"good\">synced</span>".to_owned(),
            (None, false) => "full state not received".to_owned(),
        }
    );
    for published in &current.published {
        let _written = writeln!(
            page,
            "<p>Snapshot {}: {}, {}</p>",
            published.snapshot.group().as_str(),
            published.snapshot.version(),
            time(published.at)
        );
    }
}
