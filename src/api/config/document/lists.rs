//! Lists of Kubernetes, whose items are objects: `List` of any, and `VirtualServiceList` of its kind.
//!
//! kubectl writes `kind: List` below the items, so that a text is looked over before its lists come apart. An item then has
//! an account of its own, and a cluster's whole configuration in one List is read in the memory of its largest object.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::kinds;
use crate::yaml::{
    self, Documents, Limits, Malformed, MalformedKind, Node, Outline, Piece, Scalar, Value,
};

/// The type of a list's items that do not state their own; empty for a `List`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ItemType {
    api_version: String,
    kind: String,
}

impl ItemType {
    /// Returns `None` for a kind whose name is no list's. Another kind may end in `List`, too: `has_items` tells.
    pub(super) fn of(api_version: &str, kind: &str, has_items: bool) -> Option<Self> {
        if (api_version, kind) == ("v1", "List") {
            return Some(Self::default());
        }
        let (kind, is_ours) = match kind.strip_suffix("List") {
            None | Some("") => return None,
            Some(item) => {
                let group = api_version.split_once('/').map_or("", |(group, _)| group);
                (item, kinds::named(group, item).is_some())
            }
        };
        let says_its_group = !api_version.is_empty();
        (is_ours || (has_items && says_its_group)).then(|| Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Gives an item the apiVersion and kind of its list, as the API server's clients do.
    pub(super) fn complete(&self, item: &mut Node) {
        let line = item.line;
        let Value::Map(entries) = &mut item.value else {
            return;
        };
        for (key, text) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            if !text.is_empty() && !entries.iter().any(|(known, _)| known == key) {
                let scalar = Scalar {
                    text: text.clone(),
                    plain: false,
                };
                let node = Node {
                    line,
                    begin: None,
                    value: Value::Scalar(scalar),
                };
                entries.insert(0, (key.to_owned(), node));
            }
        }
    }
}

/// Returns the items of a list; `None` for a node that is no list.
///
/// # Errors
///
/// A list without items: after a typing error in `items` the list would pass for an object of an unknown kind.
pub(super) fn items(node: &Node) -> Result<Option<(ItemType, &[Node])>, Malformed> {
    let text = |name: &str| match field(node, name).map(|node| &node.value) {
        Some(Value::Scalar(scalar)) => scalar.text.as_str(),
        Some(Value::List(_) | Value::Map(_)) | None => "",
    };
    let items = field(node, "items");
    let is_list =
        items.is_some_and(|items| matches!(items.value, Value::List(_)) || items.is_null());
    let Some(of) = ItemType::of(text("apiVersion"), text("kind"), is_list) else {
        return Ok(None);
    };
    let wrong = |line, cause: &str| {
        Err(Malformed {
            line,
            cause: format!("items: {cause}"),
            kind: MalformedKind::Other,
        })
    };
    match items {
        None => wrong(node.line, "is required"),
        Some(Node {
            value: Value::List(all),
            ..
        }) => Ok(Some((of, all))),
        Some(none) if none.is_null() => Ok(Some((of, &[]))),
        Some(other) => wrong(other.line, "expected a list"),
    }
}

/// Each list within, with its items completed.
pub(super) fn complete(node: &mut Node) -> Result<(), Malformed> {
    let Some((of, _)) = items(node)? else {
        return Ok(());
    };
    let Value::Map(entries) = &mut node.value else {
        return Ok(());
    };
    let items = entries.iter_mut().find(|(name, _)| name == "items");
    if let Some((
        _,
        Node {
            value: Value::List(all),
            ..
        },
    )) = items
    {
        for item in all {
            of.complete(item);
            complete(item)?;
        }
    }
    Ok(())
}

pub(super) fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, node)| node),
        Value::List(_) | Value::Scalar(_) => None,
    }
}

/// The objects of a text of YAML: documents, and in their places the items of those that are lists.
pub(super) struct DocumentObjects<'a> {
    documents: Documents<'a>,
    lists: BTreeMap<usize, ItemType>,
    /// The first document that is no YAML: it is not read, whether it is a list or not.
    broken: Option<(usize, Malformed)>,
}

impl<'a> DocumentObjects<'a> {
    pub(super) fn new(text: &'a str, limits: Limits) -> Self {
        let (mut lists, mut broken) = (BTreeMap::new(), None);
        // Most texts have no list, and need not be parsed twice.
        let may_have_some = text.contains("List") && text.contains("items");
        if may_have_some && text.len() <= limits.bytes {
            for (at, outline) in yaml::outlines(text, limits).enumerate() {
                match outline {
                    Ok(outline) => lists.extend(list(&outline).map(|of| (at, of))),
                    Err(malformed) => broken = Some((at, malformed)),
                }
            }
        }
        let split: BTreeSet<usize> = lists.keys().copied().collect();
        Self {
            documents: yaml::documents(text, limits).split(split),
            lists,
            broken,
        }
    }

    fn read(&self, piece: Piece) -> Result<Node, Malformed> {
        let mut node = piece.node;
        if let Some(of) = self.lists.get(&piece.document).filter(|_| piece.is_item) {
            of.complete(&mut node);
        }
        complete(&mut node)?;
        Ok(node)
    }
}

/// A list whose items can come one by one.
fn list(outline: &Outline) -> Option<ItemType> {
    let Outline {
        api_version,
        kind,
        has_items,
    } = outline;
    ItemType::of(api_version, kind, *has_items).filter(|_| *has_items)
}

impl Iterator for DocumentObjects<'_> {
    type Item = Result<Node, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let behind = self.documents.behind();
            if self.broken.as_ref().is_some_and(|(at, _)| *at == behind) {
                return self.broken.take().map(|(_, malformed)| Err(malformed));
            }
            let piece = match self.documents.piece()? {
                Ok(piece) => piece,
                Err(malformed) => {
                    let is_list = self.lists.contains_key(&self.documents.behind());
                    return Some(Err(divisible(malformed, is_list)));
                }
            };
            // Blank ones are left out.
            if piece.is_item || !piece.node.is_null() {
                return Some(self.read(piece));
            }
        }
    }
}

/// Adds the remedy to an error about a limit.
pub(super) fn divisible(malformed: Malformed, is_list: bool) -> Malformed {
    let remedy = match malformed.kind {
        MalformedKind::TooManyValues if is_list => " in one item of a list",
        MalformedKind::TooManyValues => {
            " in one document: split it into several, with `---` between them"
        }
        MalformedKind::Other if malformed.line == 0 => ": split it into several files",
        MalformedKind::Other => return malformed,
    };
    Malformed {
        cause: malformed.cause + remedy,
        ..malformed
    }
}
