//! The shares of localities, and those that take over: of a DestinationRule, and of the mesh.

use std::collections::HashMap;

use super::cursor::Cursor;
use super::predicates as is;
use crate::finding::quoted;

/// Region, zone, subzone: deeper there is nothing.
const MAX_LEVELS: usize = 3;

pub(super) fn check(at: &Cursor<'_>) {
    at.apart("distribute", "failover");
    let by_place = [
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.istio.io/subzone",
    ];
    let fixed = at
        .get("failoverPriority")
        .texts()
        // An entry may have a value: `topology.kubernetes.io/zone=a`.
        .any(|label| by_place.contains(&label.split('=').next().unwrap_or(label)));
    if fixed && at.has("failover") {
        at.fail("failover and failoverPriority exclude each other");
    }
    let distribute = at.get("distribute");
    let from: Vec<_> = distribute.items().map(|one| one.get("from")).collect();
    let from: Vec<_> = from.iter().map(|at| (at.text(), at)).collect();
    localities(&from, true);
    for one in distribute.items() {
        let to = one.get("to");
        let entries = to.sorted_entries();
        let shares: Vec<_> = entries.iter().map(|(name, at)| (*name, at)).collect();
        localities(&shares, false);
        let mut sum = 0i64;
        for (_, weight) in &entries {
            weight.check(is::within(weight.number(), 1, 100));
            sum = sum.saturating_add(weight.number());
        }
        // A weight that cannot be read might make the sum.
        if sum != 100 && to.is_readable() {
            to.fail(format!("weights add up to {sum}, not 100"));
        }
    }
    for one in at.get("failover").items() {
        failover(&one);
    }
}

fn failover(one: &Cursor<'_>) {
    let (from, to) = (one.get("from"), one.get("to"));
    for region in [&from, &to] {
        if region.text().contains(['/', '*']) {
            region.fail("no / and no * in a region");
        }
    }
    if from.text() == to.text() && one.is_readable() {
        one.fail("from and to are the same");
    }
}

/// The places of one list or map: `*` stands last, in the list and in a place, no part is empty, none covers another. Keys of
/// a map have no order: the wire may have another one than the text.
fn localities(list: &[(&str, &Cursor<'_>)], is_ordered: bool) {
    const STAR: &str = "\"*\" only once and last";
    const PARTIAL_STAR: &str = "\"*\" stands for a whole part";
    let mut whole: HashMap<&str, &str> = HashMap::new();
    let mut above: HashMap<&str, &str> = HashMap::new();
    let mut stars = 0;
    for (index, (name, at)) in list.iter().enumerate() {
        if *name == "*" {
            stars += 1;
            if stars > 1 || is_ordered && index + 1 < list.len() {
                at.fail(STAR);
            }
            continue;
        }
        if name.split('/').any(str::is_empty) {
            at.fail(format!("{} has an empty part", quoted(name)));
            continue;
        }
        // `a/*` is all of `a`.
        let own = name.strip_suffix("/*").unwrap_or(name);
        if own.contains('*') {
            let is_part = own.split('/').any(|part| part == "*");
            at.fail(if is_part { STAR } else { PARTIAL_STAR });
            continue;
        }
        let parents = own.match_indices('/').map(|(at, _)| own.get(..at));
        let parents: Vec<&str> = parents.flatten().take(MAX_LEVELS).collect();
        // An earlier place above this one, or the same; else one below it.
        let other = parents
            .iter()
            .chain([&own])
            .find_map(|place| whole.get(place));
        if let Some(other) = other.or_else(|| above.get(own)) {
            at.fail(format!("overlaps with {}", quoted(other)));
        }
        whole.entry(own).or_insert(name);
        for parent in parents {
            above.entry(parent).or_insert(name);
        }
    }
}
