//! Objects that claim the same, by who sees them: the rivals of each are found without looking at every other one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::inventory::{Item, texts};

/// Objects that a message names; it counts the others.
const NAMED: usize = 3;

/// Namespaces that see an object; `None`: all.
fn audience(item: &Item) -> Option<BTreeSet<String>> {
    let to = texts(&item.body, "/exportTo");
    if to.is_empty() || to.iter().any(|one| one == "*") {
        return None;
    }
    let own = |one: String| match one.as_str() {
        "." => item.namespace.clone(),
        _ => one,
    };
    Some(to.into_iter().map(own).filter(|one| one != "~").collect())
}

/// Objects that claim the same, in order.
#[derive(Default)]
pub(super) struct Claimants<'a> {
    /// Objects that any namespace sees.
    visible: Vec<&'a Item>,
    /// Objects that all namespaces see.
    everywhere: Vec<&'a Item>,
    /// The rest, by the namespaces that see them.
    by_namespace: BTreeMap<String, Vec<&'a Item>>,
}

impl<'a> Claimants<'a> {
    /// Adds an object; they come in order.
    pub(super) fn push(&mut self, item: &'a Item) {
        let Some(namespaces) = audience(item) else {
            self.visible.push(item);
            self.everywhere.push(item);
            return;
        };
        if !namespaces.is_empty() {
            self.visible.push(item);
        }
        for namespace in namespaces {
            self.by_namespace.entry(namespace).or_default().push(item);
        }
    }

    /// Returns the objects that one namespace sees along with this one, in lists that may overlap.
    fn visible_with(&self, item: &Item) -> Vec<&[&'a Item]> {
        let Some(namespaces) = audience(item) else {
            return vec![&self.visible];
        };
        if namespaces.is_empty() {
            return Vec::new();
        }
        let of_namespaces = namespaces
            .iter()
            .filter_map(|namespace| self.by_namespace.get(namespace));
        std::iter::once(&self.everywhere)
            .chain(of_namespaces)
            .map(Vec::as_slice)
            .collect()
    }

    /// The first object that one namespace sees along with this one.
    pub(super) fn rival(&self, item: &Item) -> Option<&'a Item> {
        let lists = self.visible_with(item);
        let first = lists.iter().filter_map(|list| {
            let mut others = list.iter().filter(|other| other.number != item.number);
            others.next().copied()
        });
        first.min_by_key(|other| other.number)
    }

    /// All objects that one namespace sees along with this one; `None`: there is none.
    pub(super) fn rivals(&self, item: &Item) -> Option<Named<'a>> {
        let lists = self.visible_with(item);
        let mut named: BTreeMap<usize, &Item> = BTreeMap::new();
        for list in &lists {
            let others = list.iter().filter(|other| other.number != item.number);
            // One more shows that there are others.
            let others = others.take(NAMED.saturating_add(1));
            named.extend(others.map(|other| (other.number, *other)));
        }
        // Each list but the first has the object itself.
        let lengths = lists.iter().map(|list| list.len());
        let (longest, all) = lengths
            .clone()
            .skip(1)
            .fold((0, 0), |(longest, all), length| {
                (longest.max(length), length.saturating_add(all))
            });
        let first = lengths.clone().next().unwrap_or_default();
        let min = first.saturating_add(longest).saturating_sub(1);
        let is_exact = longest == all || named.len() <= NAMED;
        let count = match named.len() <= NAMED {
            true => named.len(),
            false => min.max(named.len()),
        };
        (count > 0).then(|| Named {
            items: named.into_values().take(NAMED).collect(),
            count,
            is_exact,
        })
    }
}

/// The first of many objects, and their number.
pub(super) struct Named<'a> {
    items: Vec<&'a Item>,
    pub(super) count: usize,
    /// False: there are as many or more.
    is_exact: bool,
}

impl<'a> Named<'a> {
    pub(super) fn of(all: &[&'a Item]) -> Self {
        Self {
            items: all.iter().take(NAMED).copied().collect(),
            count: all.len(),
            is_exact: true,
        }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.items.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(to, "{comma}{}/{}", item.namespace, item.name)?;
        }
        match (self.count.saturating_sub(self.items.len()), self.is_exact) {
            (0, _) => Ok(()),
            (more, true) => write!(to, " and {more} more"),
            (more, false) => write!(to, " and at least {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items(audiences: &[&[&str]]) -> Vec<Item> {
        let item = |(number, to): (usize, &&[&str])| Item {
            number,
            group: String::new(),
            kind: "VirtualService".to_owned(),
            namespace: "n".to_owned(),
            name: number.to_string(),
            body: json!({"exportTo": to}),
            annotations: json!({}),
        };
        audiences.iter().enumerate().map(item).collect()
    }

    fn rivals_of(items: &[Item]) -> Vec<String> {
        let mut all = Claimants::default();
        items.iter().for_each(|item| all.push(item));
        let rivals = items.iter().map(|item| {
            let first = all.rival(item).map(|first| first.number);
            let rivals = all.rivals(item);
            let named = rivals.as_ref().and_then(|named| named.items.first());
            assert_eq!(first, named.map(|first| first.number));
            rivals.map_or_else(String::new, |named| named.to_string())
        });
        rivals.collect()
    }

    #[test]
    fn rivals_are_those_that_a_namespace_sees_too() {
        let of_all = items(&[&[], &["*"], &["."], &["a"], &["~"]]);
        assert_eq!(
            rivals_of(&of_all),
            ["n/1, n/2, n/3", "n/0, n/2, n/3", "n/0, n/1", "n/0, n/1", ""]
        );
        let apart = items(&[&["."], &["a"], &["b", "c"], &["c"], &["a", "b", "n"]]);
        assert_eq!(
            rivals_of(&apart),
            ["n/4", "n/4", "n/3, n/4", "n/2", "n/0, n/1, n/2"]
        );
    }

    #[test]
    fn a_few_rivals_are_named_and_the_others_counted() {
        let many = items(&[&[][..]; 5_000]);
        let all = rivals_of(&many);
        assert_eq!(all[0], "n/1, n/2, n/3 and 4996 more");
        assert_eq!(all[4_999], "n/0, n/1, n/2 and 4996 more");
        let mut mixed = vec![&[][..]; 2];
        mixed.extend([&["a"][..]; 5]);
        assert_eq!(rivals_of(&items(&mixed))[6], "n/0, n/1, n/2 and 3 more");
        let several = items(&[&["a", "b"][..]; 6]);
        assert_eq!(rivals_of(&several)[0], "n/1, n/2, n/3 and at least 2 more");
    }
}
