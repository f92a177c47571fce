//! The page for a browser: proxies and whether they are in sync, services, pushes, and what was left out. One file, no
//! script, drawn anew for each look.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use api::config::{self, Effect};
use api::counted;
use api::model::TriggerReason;
use sources::aggregate::Registries;
use sources::contribution::SyncState;
use xds::node::clipped;
use xds::view::Type;

use super::clusters::{messages, objects};
use super::endpoints_by_port::EndpointsByPort;
use super::streams::{MAX_RULES, sorted};
use super::unserved::Unserved;
use crate::cli::VERSION;
use crate::discovery::hub::Hub;
use crate::discovery::push_record::Pushed;
use crate::discovery::readiness;
use crate::discovery::session::Session;
use crate::discovery::sources::Sources;
use crate::html::{self, Bar, ROWS, escaped};
use crate::log;
use crate::tls::expiry;

/// The whole page.
pub(super) fn draw(hub: &Hub, sources: &Sources) -> String {
    let mut page = String::with_capacity(16 << 10);
    html::head(&mut page, "gudgeon discovery", "");
    sections(&mut page, hub, sources);
    expiry::draw(&mut page);
    page.push_str("</body></html>\n");
    page
}

/// Renders the sections from the role's heading on, without the parts that roles share.
pub(in crate::discovery) fn sections(page: &mut String, hub: &Hub, sources: &Sources) {
    let (class, state) = match readiness::readiness(hub) {
        Ok(state) if state == "ok" => ("good", "ready".to_owned()),
        Ok(state) => ("good", state),
        Err(why) => ("bad", format!("not ready: {why}")),
    };
    // Writing to a string cannot fail, here and below.
    let _written = writeln!(
        page,
        "<h1>gudgeon discovery {VERSION}: <span class=\"{class}\">{}</span></h1><p>{} &middot; <a href=\"/debug/syncz\">streams</a>, \
         <a href=\"/debug/registryz\">services</a>, <a href=\"/debug/endpointz\">endpoints</a>, \
         <a href=\"/debug/configz\">configuration</a> as JSON, <a href=\"/metrics\">metrics</a></p>",
        escaped(&state),
        log::stamp(hub.clock.wall(hub.clock.now()))
    );
    hub.files.draw(page);
    rules(page, hub);
    timeline(page, hub);
    proxies(page, hub);
    refused(page, hub);
    services(page, hub);
    write_reports(page, hub, sources);
    jwks(page, hub);
    if let Some(mcp_sources) = sources.mcp_sources() {
        mcp_sources.draw(page);
    }
    source_table(page, hub);
}

/// Configuration by kind, and what each kind changes.
fn rules(page: &mut String, hub: &Hub) {
    let all = hub.facts.rules();
    if all.kinds().next().is_none() && all.unread().next().is_none() {
        return;
    }
    page.push_str(
        "<h2>Configuration</h2><table><tr><th>kind<th>objects<th>effect in this release</tr>\n",
    );
    for (kind, count) in all.kinds() {
        let class = match kind.effect {
            Effect::None => "bad",
            Effect::Enforced { .. } | Effect::Read => "good",
        };
        let effect = match kind.effect {
            Effect::Enforced { without: [], .. } | Effect::Read | Effect::None => {
                kind.effect.as_str().to_owned()
            }
            Effect::Enforced { without, .. } => format!("enforced, but for {}", without.join(", ")),
        };
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{count}<td class=\"{class}\">{effect}</tr>",
            kind.kind
        );
    }
    for (kind, count) in all.unread() {
        let _written = writeln!(
            page,
            "<tr><td>{kind}<td>{count}<td class=\"bad\">{}</tr>",
            Effect::None.as_str()
        );
    }
    page.push_str("</table>\n");
}

fn timeline(page: &mut String, hub: &Hub) {
    let now = hub.clock.now();
    let pushes = hub.pushes.all();
    page.push_str("<h2>Pushes of the last hour</h2>");
    let bars = pushes.iter().map(|push| {
        let (height, color) = if push.full {
            (75, "some")
        } else {
            (40, "good")
        };
        Bar {
            age: now.saturating_sub(push.at),
            height,
            color,
            words: described(hub, push),
        }
    });
    let meanings = [
        ("some", "full: every resource was looked at"),
        ("good", "endpoints only"),
    ];
    html::timeline(page, "pushes by time", &meanings, bars);
    let empty = pushes.is_empty().then_some("No push yet.");
    let columns = ["push", "reasons", "waited", "made in", "streams"];
    html::table(page, &columns, empty, |page| {
        for push in pushes.iter().rev().take(10) {
            let _written = writeln!(
                page,
                "<tr><td>{} {}<td>{}<td>{:.3} s<td>{:.1} ms<td>{}</tr>",
                log::stamp(hub.clock.wall(push.at)),
                if push.full { "full" } else { "endpoints" },
                reasons(push),
                push.waited.as_secs_f64(),
                push.build_time.as_secs_f64() * 1000.0,
                push.streams
            );
        }
    });
}

fn reasons(push: &Pushed) -> String {
    let reasons: Vec<_> = push.reasons.iter().map(TriggerReason::as_str).collect();
    reasons.join(", ")
}

fn described(hub: &Hub, push: &Pushed) -> String {
    let what = if push.full { "full" } else { "endpoints" };
    let at = log::stamp(hub.clock.wall(push.at));
    let streams = counted(push.streams, "stream");
    format!("{at} {what}: {} to {streams}", reasons(push))
}

fn proxies(page: &mut String, hub: &Hub) {
    let sessions = sorted(hub);
    let streams = counted(sessions.len(), "stream");
    let _written = writeln!(page, "<h2>Proxies: {streams}</h2>");
    let empty = sessions.is_empty().then_some("No proxy is connected.");
    let columns = [
        "proxy",
        "peer",
        "since",
        "clusters",
        "endpoints",
        "listeners",
        "routes",
        "secrets",
        "refused",
    ];
    html::table(page, &columns, empty, |page| {
        for session in sessions.iter().take(ROWS) {
            proxy(page, hub, session);
        }
        html::more(page, sessions.len());
    });
}

fn proxy(page: &mut String, hub: &Hub, session: &Session) {
    let snapshot = hub.snapshot();
    let is_plain = snapshot.is_some_and(|snapshot| snapshot.is_plain(&session.node));
    let _written = write!(
        page,
        "<tr><td>{}{}<td>{}<td>{}",
        escaped(clipped(&session.node.id)),
        if is_plain {
            " <span class=\"bad\">no certificates: without mutual TLS</span>"
        } else {
            ""
        },
        session.peer,
        log::stamp(hub.clock.wall(session.connected))
    );
    let mut refusals = String::new();
    session.with_stream(|stream| {
        for kind in Type::ALL {
            let cell = match stream.status(kind) {
                None => "<td>-".to_owned(),
                Some(status) if status.nack.is_some() => "<td class=\"bad\">refused".to_owned(),
                Some(status) if status.sent == status.acked => {
                    "<td class=\"good\">in sync".to_owned()
                }
                Some(_) => "<td>sent".to_owned(),
            };
            page.push_str(&cell);
            if let Some(nack) = stream.status(kind).and_then(|status| status.nack) {
                let rules = match stream.nacked_rules_text(kind, MAX_RULES) {
                    rules if rules.is_empty() => rules,
                    rules => format!("({rules}) "),
                };
                let _written = write!(
                    refusals,
                    "{}: {} {}",
                    kind.as_str(),
                    escaped(clipped(&nack.message)),
                    escaped(&rules)
                );
            }
        }
    });
    let _written = writeln!(page, "<td class=\"bad\">{refusals}</tr>");
}

/// Clients that were sent away.
fn refused(page: &mut String, hub: &Hub) {
    let all = hub.refused.newest();
    if all.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Streams refused recently</h2><table><tr><th>at<th>peer<th>reason<th>why</tr>\n",
    );
    for stream in all {
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{}<td>{}<td class=\"bad\">{}</tr>",
            log::stamp(hub.clock.wall(stream.at)),
            stream.peer,
            stream.reason.as_str(),
            escaped(&stream.message)
        );
    }
    page.push_str("</table>\n");
}

fn services(page: &mut String, hub: &Hub) {
    let Some(snapshot) = hub.snapshot() else {
        return;
    };
    let world = snapshot.world();
    let _written = writeln!(page, "<h2>Services: {}</h2>", world.services.len());
    let none = "No snapshot yet: see the sources below.";
    let empty = world.services.is_empty().then_some(none);
    let columns = [
        "name",
        "from",
        "ports",
        "addresses",
        "resolution",
        "endpoints",
    ];
    html::table(page, &columns, empty, |page| {
        for service in world.services.values().take(ROWS) {
            let ports: Vec<_> = service
                .ports
                .iter()
                .map(|port| format!("{} {}", port.number, port.protocol))
                .collect();
            let addresses: Vec<_> = service
                .addresses
                .values()
                .flatten()
                .map(ToString::to_string)
                .collect();
            let endpoints = EndpointsByPort::new(world, service);
            let why = Unserved::new(world, service, &endpoints);
            let unserved = service.ports.iter().filter_map(|port| {
                let reason = why.reason(port)?;
                Some(format!("{}: {reason}", port.number))
            });
            let unserved: Vec<_> = unserved.collect();
            let _written = writeln!(
                page,
                "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{} <span class=\"bad\">{}</span></tr>",
                escaped(&service.key.hostname),
                service.registry.as_str(),
                escaped(&ports.join(", ")),
                addresses.join(", "),
                service.resolution.as_str(),
                world.endpoints_of(&service.key).count(),
                escaped(&unserved.join("; "))
            );
        }
        html::more(page, world.services.len());
    });
}

/// Lists objects that are not used, or not as they were meant.
fn write_reports(page: &mut String, hub: &Hub, sources: &Sources) {
    let conflicts = hub.snapshot().map(|snapshot| snapshot.conflicts());
    let conflicts = conflicts.unwrap_or_default();
    let mut reports = hub.with_registries(Registries::reports);
    let objects: Vec<_> = sources
        .config_objects(hub)
        .into_iter()
        .filter(|objects| objects.all_findings().next().is_some())
        .collect();
    // A report about an object that has a row of its own is not listed again.
    let read = |objects: &&std::sync::Arc<sources::catalogue::ConfigObject>| {
        config::unread_api(&objects.api_version).is_none()
    };
    let listed: BTreeSet<_> = objects
        .iter()
        .filter(read)
        .map(|objects| (&*objects.kind, &objects.namespace, &objects.name))
        .collect();
    reports.retain(|one| !listed.contains(&(one.kind, &one.namespace, &one.name)));
    let all = conflicts.len() + reports.len() + objects.len();
    if all == 0 {
        return;
    }
    page.push_str(
        "<h2>Left out, or not as it was meant</h2><table><tr><th>what<th>where<th>why</tr>\n",
    );
    let conflicts = conflicts
        .into_iter()
        .map(|conflict| (conflict.key, String::new(), conflict.message));
    let reports = reports.into_iter().map(|report| {
        let what = format!("{} {}/{}", report.kind, report.namespace, report.name);
        (what, String::new(), report.message)
    });
    let (accepted, refused): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|objects| objects.is_accepted);
    let [refused, accepted] = [refused, accepted].map(|objects| {
        objects.into_iter().map(|objects| {
            let what = format!("{} {}/{}", objects.kind, objects.namespace, objects.name);
            let place = objects.origin.to_string();
            (what, place, messages(objects.all_findings()).join("; "))
        })
    });
    // The page has room for a number of rows: refusals come first.
    let rows = refused.chain(conflicts).chain(reports).chain(accepted);
    for (what, place, why) in rows.take(ROWS) {
        let _written = writeln!(
            page,
            "<tr><td>{}<td>{}<td>{}</tr>",
            escaped(&what),
            escaped(&place),
            escaped(&why)
        );
    }
    html::more(page, all);
    page.push_str("</table>\n");
}

/// Lists the places that issuers' keys are fetched from.
fn jwks(page: &mut String, hub: &Hub) {
    let rows = hub.jwks.rows();
    if rows.is_empty() {
        return;
    }
    page.push_str("<h2>Keys of issuers</h2><table><tr><th>from<th>keys<th>fetched<th>error</tr>\n");
    for row in rows.iter().take(ROWS) {
        let keys = row.keys.map_or_else(
            || "<td class=\"bad\">none: tokens are refused".to_owned(),
            |keys| format!("<td>{keys}"),
        );
        let at = row.fetched.map(|at| log::stamp(hub.clock.wall(at)));
        let _written = writeln!(
            page,
            "<tr><td>{}{keys}<td>{}<td class=\"bad\">{}</tr>",
            escaped(&row.origin),
            at.unwrap_or_default(),
            escaped(row.error.as_deref().unwrap_or_default())
        );
    }
    html::more(page, rows.len());
    page.push_str("</table>\n");
}

fn source_table(page: &mut String, hub: &Hub) {
    page.push_str("<h2>Sources</h2><table><tr><th>source<th>state<th>objects</tr>\n");
    for status in hub.source_statuses() {
        let state = match &status.sync_state {
            SyncState::Syncing => "<td>syncing".to_owned(),
            SyncState::Synced => "<td class=\"good\">synced".to_owned(),
            SyncState::Stale { error } => format!("<td class=\"bad\">stale: {}", escaped(error)),
        };
        let fact = hub.facts.of(&status.source);
        let unreadable = fact.and_then(|fact| fact.unreadable);
        let unreadable = unreadable.map(|text| escaped(&text)).unwrap_or_default();
        let objects: Vec<_> = objects(hub, &status)
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let _written = writeln!(
            page,
            "<tr><td>{}{state} <span class=\"bad\">{unreadable}</span><td>{}</tr>",
            escaped(&status.source.to_string()),
            objects.join(", ")
        );
    }
    page.push_str("</table>\n");
}
