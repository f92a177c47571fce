//! The golden file, strings that would break HTML, and stories that would break a drawing.

use proptest::prelude::*;

use super::*;
use crate::status::stories::{Story, golden};
use crate::supervisor::{Event, ExitStatus, Signal};

fn page(story: &Story) -> String {
    String::from_utf8(render(&story.view())).unwrap()
}

/// Panics unless every element is closed, in order, and every attribute is quoted.
fn check_tags(html: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open = Vec::new();
    let mut rest = html;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').unwrap();
        rest = after;
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        assert!(!tag.contains('<'), "<{tag}>");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        if name == "style" && !tag.starts_with('/') {
            let end = rest.find("</style").unwrap();
            rest = &rest[end..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

fn bars(page: &str) -> usize {
    page.matches("<g class=\"bar\"").count()
}

#[test]
fn a_story_is_told_as_in_the_golden_file() {
    let made = page(&Story::full());
    check_tags(&made);
    golden("page.html", made.as_bytes());
}

#[test]
fn every_life_has_a_bar_and_a_sentence() {
    let made = page(&Story::full());
    assert_eq!(bars(&made), 6);
    assert_eq!(made.matches("<li>").count(), 6);
    assert_eq!(
        made.matches("<use href=\"#kx\"").count(),
        3 + 1,
        "with the legend's"
    );
    assert_eq!(made.matches("a failure").count(), 2 * 3);
    assert_eq!(made.matches("runs for").count(), 2);
}

#[test]
fn it_loads_nothing_and_runs_nothing() {
    let made = page(&Story::full());
    for word in [
        "<script", "src=", "http:", "https:", "@import", "<link", "onload",
    ] {
        assert!(!made.contains(word), "{word}");
    }
}

#[test]
fn no_argument_of_a_companion_is_told() {
    assert!(!page(&Story::full()).contains("secret"));
}

#[test]
fn an_agent_that_has_just_begun_has_a_page() {
    let mut story = Story::new(&[]);
    story.expiry = None;
    let made = page(&story);
    check_tags(&made);
    assert_eq!(bars(&made), 1);
    assert!(made.contains("not ready"));
    assert!(!made.contains("Companions"));
    assert!(!made.contains("Certificate"));
}

#[test]
fn without_a_proxy_it_says_so() {
    let mut story = Story::new(&[]);
    story.live(100, 0);
    story.exited(20_000, 0, ExitStatus::Code(1));
    let made = page(&story);
    assert!(made.contains("No proxy runs."));
    assert!(
        made.contains("another epoch is wanted: a crash, next try in 0.2s"),
        "{made}"
    );
}

#[test]
fn an_expired_certificate_is_said() {
    let mut story = Story::new(&[]);
    story.expiry = Some(1_700_000_000);
    assert!(page(&story).contains("valid until 2023-11-14 22:13:20 UTC, <b>which is over</b>"));
}

#[test]
fn strings_are_text_whatever_they_say() {
    let hostile = "</td><script>alert(\"1\")</script>&amp;'\u{0}\u{1b}\u{7f}@@é";
    let mut story = Story::new(&[hostile]);
    story.node = hostile.to_owned();
    let made = page(&story);
    check_tags(&made);
    let shown = "&lt;/td&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;amp;'\u{fffd}\u{fffd}\u{fffd}@@é";
    assert_eq!(made.matches(shown).count(), 2, "{made}");
}

#[test]
fn a_page_has_a_limit() {
    let command = "&".repeat(4096);
    let mut story = Story::new(&[command.as_str(); 8]);
    story.node = "\"".repeat(100_000);
    story.live(100, 0);
    for turn in 1..60 {
        let at = u64::from(turn) * 200_000;
        story.event(at, &Event::Signalled(Signal::Hangup));
        story.live(at + 300, turn);
        story.exited(at + 60_000, turn - 1, ExitStatus::Signal(9));
    }
    let made = page(&story);
    check_tags(&made);
    assert_eq!(bars(&made), 32);
    assert!(made.len() < 40_000, "{} bytes", made.len());
}

#[test]
fn the_axis_has_a_few_ticks_whatever_its_length() {
    for seconds in [
        0,
        1,
        7,
        59,
        61,
        3600,
        86_399,
        1_000_000,
        40_000_000,
        4_000_000_000,
    ] {
        let from = Duration::from_millis(1_795_217_766_292);
        let axis = Axis::new(from, from + Duration::from_secs(seconds));
        let mut drawn = Buffer::new(Escape::Html, TEXT, 0);
        axis.draw(&mut drawn, ROW);
        let drawn = String::from_utf8(drawn.into_bytes()).unwrap();
        let ticks = drawn.matches("<text").count();
        let fewest = usize::from(seconds > 1);
        assert!(
            (fewest..=TICKS).contains(&ticks),
            "{ticks} ticks in {seconds} s"
        );
        assert_eq!(axis.x(from), LEFT);
        assert!(axis.x(from + Duration::from_secs(u64::from(u32::MAX) * 9)) <= LEFT + WIDTH);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_string_breaks_the_page(node in prop::collection::vec(any::<char>(), 0..300), command in "[<>&\"'/@ a-z\\x00-\\x1f]{0,40}") {
        let mut story = Story::new(&[&command]);
        story.node = node.iter().collect();
        check_tags(&page(&story));
    }

    #[test]
    fn no_order_of_events_breaks_the_page(steps in prop::collection::vec((0..5u8, 0..30_000u64), 0..40)) {
        let mut story = Story::new(&["x"]);
        let mut at = 0;
        for (step, later) in steps {
            at += later;
            let newest = story.view().snapshot.newest.map(|process| process.epoch.0);
            match (step, newest) {
                (0, Some(epoch)) => story.exited(at, epoch, ExitStatus::Code(1)),
                (1 | 2, Some(epoch)) => story.live(at, epoch),
                (3, _) => story.event(at, &Event::Signalled(Signal::Hangup)),
                _ => story.until(at),
            }
            check_tags(&page(&story));
        }
    }
}
