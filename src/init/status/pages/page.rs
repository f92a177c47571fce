//! GET `/`: one page for a browser, with a timeline of the epochs. Pure.
//!
//! It needs no script and loads nothing; it is drawn anew every 5 s. The timeline tells its parts by pattern and shape as
//! well as by colour (Okabe and Ito's), has a tooltip for every epoch, and the same again in words below it.
//!
//! Its size has a limit: 32 events and 32 epochs are kept, 8 companions are allowed, strings are cut.

#![forbid(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use super::text::{Buffer, Escape, Span, Words, state_name};
use crate::history::Life;
use crate::log::Utc;
use crate::status::view::View;
use crate::supervisor::{AgentState, Reason};

/// Characters of a string (a node id, a companion's command). Chosen: two lines of a wide screen.
const TEXT: usize = 240;
/// Bytes reserved for a page, and for each event or process in it, so that it does not grow by doubling. Chosen.
const ROOM: usize = 7 * 1024;
const ROOM_EACH: usize = 512;

/// The timeline, in units of its drawing: where time begins, how wide it is, how high a row is.
const LEFT: u64 = 110;
const WIDTH: u64 = 590;
const ROW: u64 = 20;
/// Ticks of the axis; more would touch each other.
const TICKS: usize = 8;
/// Seconds between two ticks, to choose from; the last is for a timeline of years.
const STEPS: [u64; 24] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
    172_800, 432_000, 864_000, 2_592_000, 8_640_000, 86_400_000,
];

const HEAD: &str = r##"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="refresh" content="5"><meta http-equiv="Content-Security-Policy" content="default-src 'none';style-src 'unsafe-inline'">
<title>pintle</title><style>
:root{color-scheme:light dark;--l:#d4d4d4;--m:#595959;--c:#f5f5f5}
@media(prefers-color-scheme:dark){:root{--l:#444;--m:#adadad;--c:#222}}
body{font:15px/1.45 system-ui,sans-serif;max-width:60em;margin:0 auto;padding:1em}
h1{font-size:1.5em;margin:0}h2{font-size:1.1em;margin:1.6em 0 .4em}p{margin:.3em 0}
h1 span{font-size:.6em;color:#000;padding:.2em .7em;border-radius:1em;vertical-align:middle}
.ok{background:#009e73}.no{background:#e69f00}.m,th,dt{color:var(--m)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15em 1em;margin:0}dd{margin:0;overflow-wrap:anywhere}
.w{overflow-x:auto}table{border-collapse:collapse;width:100%}
th{text-align:left;font-weight:400}th,td{padding:.25em 1em .25em 0;border-top:1px solid var(--l);vertical-align:top}
td:first-child{width:1%}td:not(:last-child){white-space:nowrap}.c td:last-child{overflow-wrap:anywhere}td,svg{font-variant-numeric:tabular-nums}
.a td+td{border-left:4px solid #d55e00;padding-left:.5em}
svg{min-width:620px;width:100%;background:var(--c);border-radius:6px;font-size:12px}
text{fill:currentColor}.t{stroke:var(--l)}.s{fill:url(#ps)}.l{fill:#009e73}.d{fill:url(#pd)}
</style></head><body>
"##;

/// The shapes of the drawing, and its legend.
const DEFINITIONS: &str = r##"<defs>
<pattern id="ps" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0H6V6H0Z" fill="#e69f00"/><path d="M1 0V6" stroke="#000" stroke-width="2"/></pattern>
<pattern id="pd" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 0H6V6H0Z" fill="#56b4e9"/><circle cx="3" cy="3" r="1.3"/></pattern>
<path id="kb" d="M0 0V16" stroke="currentColor" stroke-width="2"/>
<path id="kl" d="M0 3L5 8L0 13L-5 8Z" fill="#fff" stroke="#000"/>
<path id="ke" d="M-4 4H4V12H-4Z" fill="#000" stroke="#fff"/>
<path id="kx" d="M-5 3L5 13M5 3L-5 13" stroke="#d55e00" stroke-width="3.5"/>
<path id="kr" d="M0 2L8 8L0 14Z" fill="#0072b2" stroke="#fff"/></defs>
<g transform="translate(8,6)"><use href="#kb" x="2"/><text x="10" y="12">start</text>
<path class="s" d="M60 2H84V14H60Z"/><text x="90" y="12">starting</text><use href="#kl" x="160"/><text x="171" y="12">LIVE</text>
<path class="l" d="M222 2H246V14H222Z"/><text x="252" y="12">serves</text>
<path class="d" d="M312 2H336V14H312Z"/><text x="342" y="12">drains</text>
<use href="#ke" x="404"/><text x="414" y="12">ended</text><use href="#kx" x="476"/><text x="488" y="12">failed</text>
<use href="#kr" x="546"/><text x="560" y="12">runs now</text></g>
"##;

/// The page.
#[must_use]
// Seldom, and not to be mixed with what is not.
#[inline(never)]
pub(crate) fn render(view: &View<'_>) -> Vec<u8> {
    let many = view.history.events().count() + view.history.lives().count();
    let mut page = Buffer::new(Escape::Html, TEXT, ROOM + many * ROOM_EACH);
    page.raw(HEAD);
    now(&mut page, view);
    epochs(&mut page, view);
    companions(&mut page, view);
    timeline(&mut page, view);
    events(&mut page, view);
    page.raw("<p class=\"m\"><a href=\"status\">JSON</a> · <a href=\"metrics\">metrics</a> · <a href=\"healthz/ready\">readiness</a></p>\n</body></html>\n");
    page.into_bytes()
}

/// The agent as a whole.
fn now(page: &mut Buffer, view: &View<'_>) {
    let snapshot = &view.snapshot;
    let ready = view.readiness.is_ready();
    let class = |good| if good { "ok" } else { "no" };
    page.fill(
        "<h1>pintle @ <span class=\"@\">@</span> <span class=\"@\">@</span></h1>\n<p class=\"m\">@</p>\n<p class=\"m\">up @, drawn @ UTC</p>\n<h2>Now</h2>\n<dl><dt>Readiness</dt><dd>@</dd>\n",
        &[
            &env!("CARGO_PKG_VERSION"),
            &class(snapshot.state == AgentState::Live),
            &snapshot.state.name(),
            &class(ready),
            &if ready { "✔ ready" } else { "✘ not ready" },
            &view.node,
            &Span(view.age_of(view.started)),
            &Stamp(view.wall),
            &view.readiness,
        ],
    );
    page.fill("<dt>Configuration</dt><dd>@", &[&snapshot.desired]);
    if let Some(changed) = view.changed {
        let ago = Span(view.age_of(changed));
        page.fill(
            ", changed @ UTC, @ ago",
            &[&Stamp(view.wall_of(changed)), &ago],
        );
    }
    let (left, of) = snapshot.retry_budget;
    page.fill(
        "</dd>\n<dt>Crash restarts</dt><dd>@ of @ left",
        &[&left, &of],
    );
    if let Some(reason) = snapshot.next {
        page.fill("; another epoch is wanted: @", &[&why(reason)]);
    }
    if let Some(at) = snapshot.next_try {
        let left = Span(at.saturating_duration_since(view.now));
        page.fill(", next try in @", &[&left]);
    }
    let counters = view.counters;
    let started = counters.epochs_started.iter().sum::<u64>();
    page.fill(
        "</dd>\n<dt>Since the start</dt><dd>@ epochs, @ failed, @ configurations given up, @ refused</dd>\n",
        &[&started, &counters.epochs_failed, &counters.given_up, &counters.refused],
    );
    if let Some(expiry) = view.certificate_expiry.map(Duration::from_secs) {
        let stamp = Utc(expiry).to_string();
        let (year, _) = stamp.split_once('-').unwrap_or_default();
        page.fill(
            "<dt>Certificate</dt><dd>valid until @-@ UTC, ",
            &[&year, &Stamp(expiry)],
        );
        match expiry.checked_sub(view.wall) {
            Some(left) => page.fill("@ left", &[&Span(left)]),
            None => page.raw("<b>which is over</b>"),
        }
        page.raw("</dd>\n");
    }
    page.fill("<dt>Envoy’s admin</dt><dd>@</dd></dl>\n", &[&view.admin]);
}

/// The proxy processes that run.
fn epochs(page: &mut Buffer, view: &View<'_>) {
    let snapshot = &view.snapshot;
    if snapshot.newest.or(snapshot.older).is_none() {
        page.raw("<h2>Epochs</h2>\n<p>No proxy runs.</p>\n");
        return;
    }
    page.raw("<h2>Epochs</h2>\n<div class=\"w\"><table><tr><th>epoch</th><th>pid</th><th>state</th><th>age</th><th>why</th><th>configuration</th></tr>\n");
    for process in snapshot.newest.into_iter().chain(snapshot.older) {
        page.fill(
            "<tr><td>@</td><td>@</td><td>@</td><td>@</td><td>@</td><td>@</td></tr>\n",
            &[
                &process.epoch.0,
                &Known(view.pid(process.epoch)),
                &state_name(process.state),
                &Span(view.age_of(process.started)),
                &why(process.reason),
                &process.configuration,
            ],
        );
    }
    page.raw("</table></div>\n");
}

fn companions(page: &mut Buffer, view: &View<'_>) {
    if view.snapshot.companions.is_empty() {
        return;
    }
    page.raw("<h2>Companions</h2>\n<div class=\"w\"><table class=\"c\"><tr><th>pid</th><th>state</th><th>restarts</th><th>command</th></tr>\n");
    for companion in view.snapshot.companions {
        page.fill(
            "<tr><td>@</td><td>@</td><td>@</td><td>@</td></tr>\n",
            &[
                &Known(view.companion_pid(companion.id)),
                &companion.state.name(),
                &companion.restarts,
                &view.companion_program(companion.id),
            ],
        );
    }
    page.raw("</table></div>\n");
}

fn events(page: &mut Buffer, view: &View<'_>) {
    page.raw("<h2>Last events</h2>\n<table><tr><th>UTC</th><th>what, newest first</th></tr>\n");
    for (at, what) in view.history.events().rev() {
        let words = Words(what);
        let class = if words.is_warning() { "a" } else { "" };
        page.fill(
            "<tr class=\"@\"><td>@</td><td>@</td></tr>\n",
            &[&class, &Stamp(view.wall_of(*at)), &words],
        );
    }
    page.raw("</table>\n");
}

/// A row for every life, the oldest on top, over one axis.
fn timeline(page: &mut Buffer, view: &View<'_>) {
    let Some(first) = view.history.lives().next() else {
        return;
    };
    let axis = Axis::new(view.wall_of(first.started), view.wall);
    let rows = view.history.lives().map(|_| ROW).sum::<u64>();
    page.fill(
        "<h2>Timeline</h2>\n<div class=\"w\"><svg viewBox=\"0 0 740 @\" role=\"img\" aria-labelledby=\"tt\"><title id=\"tt\">The last epochs from @ to @ UTC, one bar each; below it the same in words</title>\n",
        &[&(rows + 2 * ROW + 14), &Stamp(axis.from), &Stamp(view.wall)],
    );
    page.raw(DEFINITIONS);
    axis.draw(page, rows);
    let mut y = ROW + 10;
    for life in view.history.lives() {
        bar(page, view, &axis, (life, y));
        y += ROW;
    }
    page.raw(
        "</svg></div>\n<details><summary>The timeline in words (times in UTC)</summary><ol>\n",
    );
    for life in view.history.lives() {
        page.fill("<li>@</li>\n", &[&Sentence { life, view }]);
    }
    page.raw("</ol></details>\n");
}

/// One life as a bar: its parts, then its marks upon them.
fn bar(page: &mut Buffer, view: &View<'_>, axis: &Axis, (life, y): (&Life, u64)) {
    let x = |at: Instant| axis.x(view.wall_of(at));
    let end = life.ended.map_or(view.now, |(at, _)| at);
    page.fill(
        "<g class=\"bar\" transform=\"translate(0,@)\"><title>@</title><text x=\"8\" y=\"12\">epoch @ @</text>\n",
        &[&y, &Sentence { life, view }, &life.epoch.0, &life.reason.name()],
    );
    let parts = [
        ("s", Some(life.started), life.live),
        ("l", life.live, life.draining),
        ("d", life.draining, None),
    ];
    for (class, from, to) in parts {
        if let Some(from) = from {
            let (from, to) = (x(from), x(to.unwrap_or(end)));
            // A part that is too short to be seen is seen all the same.
            let width = to.saturating_sub(from).max(1);
            page.fill(
                "<rect class=\"@\" x=\"@\" y=\"2\" width=\"@\" height=\"12\"/>",
                &[&class, &from, &width],
            );
        }
    }
    let how = match life.ended {
        Some(_) if life.failed => "kx",
        Some(_) => "ke",
        None => "kr",
    };
    let marks = [
        ("kb", Some(life.started)),
        ("kl", life.live),
        (how, Some(end)),
    ];
    for (shape, at) in marks {
        if let Some(at) = at {
            page.fill("<use href=\"#@\" x=\"@\"/>", &[&shape, &x(at)]);
        }
    }
    page.raw("</g>\n");
}

/// Time from left to right.
struct Axis {
    /// Since 1970.
    from: Duration,
    to: Duration,
}

impl Axis {
    fn new(from: Duration, to: Duration) -> Self {
        Self { from, to }
    }

    fn x(&self, at: Duration) -> u64 {
        let span = millis(self.to.saturating_sub(self.from)).max(1);
        let after = millis(at.saturating_sub(self.from)).min(span);
        LEFT + after.saturating_mul(WIDTH) / span
    }

    /// Ticks at round times of UTC.
    fn draw(&self, page: &mut Buffer, rows: u64) {
        let span = self.to.saturating_sub(self.from).as_secs();
        let max = u64::try_from(TICKS - 2).unwrap_or(1);
        let fitting = STEPS.into_iter().find(|step| span / step <= max);
        let step = fitting.unwrap_or(86_400_000);
        let mut at = self.from.as_secs().div_ceil(step).saturating_mul(step);
        for _ in 0..TICKS {
            if at > self.to.as_secs() {
                break;
            }
            let wall = Duration::from_secs(at);
            let stamp = Utc(wall).to_string();
            // A day at midnight; seconds where they matter.
            let label = match step {
                _ if at % 86_400 == 0 => stamp.get(5..10),
                0..60 => stamp.get(11..19),
                _ => stamp.get(11..16),
            };
            let (x, label) = (self.x(wall), label.unwrap_or(""));
            page.fill(
                "<path class=\"t\" d=\"M@ 28V@\"/><text x=\"@\" y=\"@\" text-anchor=\"middle\">@</text>\n",
                &[&x, &(rows + 34), &x, &(rows + 48), &label],
            );
            at = at.saturating_add(step);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1000);
    whole.saturating_add(duration.subsec_millis().into())
}

/// A moment for a person: `11-20 23:36:06`; the year is that of the page.
struct Stamp(Duration);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stamp = Utc(self.0).to_string();
        for part in [stamp.get(5..10), Some(" "), stamp.get(11..19)] {
            f.write_str(part.unwrap_or(""))?;
        }
        Ok(())
    }
}

/// A pid, or that there is none.
struct Known(Option<i32>);

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => pid.fmt(f),
            None => f.write_str("–"),
        }
    }
}

/// A life in words.
struct Sentence<'a> {
    life: &'a Life,
    view: &'a View<'a>,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Life {
            epoch,
            pid,
            reason,
            started,
            ..
        } = *self.life;
        let after = |at: Instant| Span(at.saturating_duration_since(started));
        let stamp = Stamp(self.view.wall_of(started));
        let reason = why(reason);
        write!(f, "{epoch}, pid {pid}, started {stamp}: {reason}")?;
        if let Some(at) = self.life.live {
            write!(f, ", LIVE after {}", after(at))?;
        }
        if let Some(at) = self.life.draining {
            write!(f, ", handed over after {}", after(at))?;
        }
        match self.life.ended {
            Some((at, how)) => write!(f, ", {how} after {}", after(at))?,
            None => write!(f, ", runs for {}", after(self.view.now))?,
        }
        f.write_str(if self.life.failed { ", a failure" } else { "" })
    }
}

const fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Start => "the agent’s start",
        Reason::Change => "a changed configuration",
        Reason::Crash => "a crash",
        Reason::Signal => "SIGHUP",
        Reason::Rescan => "a change that only the rescan found",
    }
}

#[cfg(test)]
mod tests;
