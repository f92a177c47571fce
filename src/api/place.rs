//! Where in a text a path is: what is judged after reading has no lines any more.

use crate::yaml::{Node, Value};

/// The line of the value at a path such as `endpoints[0].address`, as far down as the tree goes.
pub(crate) fn line_of(node: &Node, path: &str) -> usize {
    let mut at = node;
    for part in path.split(['.', '[']) {
        let next = match &at.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(name, _)| same_field(name, part))
                .map(|(_, node)| node),
            Value::List(items) => part
                .strip_suffix(']')
                .and_then(|index| index.parse::<usize>().ok())
                .and_then(|index| items.get(index)),
            Value::Scalar(_) => None,
        };
        let Some(next) = next else {
            break;
        };
        at = next;
    }
    at.line
}

/// `workload_selector` is `workloadSelector`.
fn same_field(given: &str, json: &str) -> bool {
    let letters = |text: &str| -> String {
        text.chars()
            .filter(|letter| *letter != '_')
            .flat_map(char::to_lowercase)
            .collect()
    };
    given == json || letters(given) == letters(json)
}
