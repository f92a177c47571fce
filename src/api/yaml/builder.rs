//! Events of the parser into a tree, paid for before anything is kept.

use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{Event, ScalarStyle, Span, Tag};

use super::{
    Limits, Malformed, MalformedKind, Node, ResolvedScalar, Scalar, Tags, Value, malformed,
};

/// The cause where a document has more levels than may be.
pub(super) const TOO_DEEP: &str = "nested too deeply";

/// A node with the cost of a copy.
#[derive(Clone)]
pub(super) struct BuiltNode {
    pub(super) node: Node,
    cost: Cost,
}

#[derive(Clone, Copy, Default)]
struct Account {
    nodes: usize,
    bytes: usize,
}

impl Account {
    fn add(&mut self, cost: Cost) {
        self.nodes = self.nodes.saturating_add(cost.nodes);
        self.bytes = self.bytes.saturating_add(cost.bytes);
    }
}

#[derive(Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    /// Bytes of text.
    bytes: usize,
    /// Lists and objects within each other.
    levels: usize,
}

/// A list or an object whose end has not come yet.
struct Open {
    line: usize,
    anchor: usize,
    cost: Cost,
    parts: Parts,
}

enum Parts {
    List(Vec<Node>),
    Map {
        entries: Vec<(String, Node)>,
        known: BTreeSet<String>,
        /// Waiting for its value.
        key: Option<MappingKey>,
        /// Values of `<<`.
        merged: Vec<Node>,
    },
}

enum MappingKey {
    Name(String),
    /// `<<`: the entries of other maps, where this one lacks them.
    Merge,
}

/// The way that a document's own list `items` is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListItems {
    WithRoot,
    /// By [`Builder::item`], as they come.
    OneByOne,
}

pub(super) struct Builder {
    limits: Limits,
    tags: Tags,
    open: Vec<Open>,
    anchors: BTreeMap<usize, BuiltNode>,
    /// True once an anchor was read: any later scalar may be a part of it.
    anchored: bool,
    items: ListItems,
    item: Option<Node>,
    /// All nodes and bytes so far, against the limits.
    account: Account,
    /// The part of it that copies for aliases cost: they stay from item to item.
    alias_account: Account,
    pub(super) root: Option<BuiltNode>,
}

impl Builder {
    pub(super) fn new(limits: Limits, tags: Tags, items: ListItems) -> Self {
        Self {
            limits,
            tags,
            open: Vec::new(),
            anchors: BTreeMap::new(),
            anchored: false,
            items,
            item: None,
            account: Account::default(),
            alias_account: Account::default(),
            root: None,
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "of the stream, or presentation: there may be more of it"
    )]
    pub(super) fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Malformed> {
        let line = span.start.line();
        match event {
            Event::Alias(anchor) => {
                let Some(cost) = self.anchors.get(&anchor).map(|built| built.cost) else {
                    return Err(malformed(line, "an alias inside its own anchor"));
                };
                self.pay(line, cost)?;
                match self.anchors.get(&anchor).cloned() {
                    Some(built) => self.place(built, line),
                    None => Ok(()),
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.check_tag(
                    line,
                    tag.as_deref(),
                    &["str", "null", "bool", "int", "float"],
                )?;
                let cost = Cost {
                    nodes: 1,
                    bytes: text.len(),
                    levels: 0,
                };
                self.pay(line, cost)?;
                let scalar = Scalar {
                    text: text.into_owned(),
                    plain: is_plain(style, tag.as_deref()),
                };
                if self.tags == Tags::Core {
                    fits(line, &scalar, tag.as_deref())?;
                }
                self.anchored |= anchor != 0;
                let begin = span.start.byte_offset();
                let node = Node {
                    line,
                    begin: begin.filter(|_| !self.anchored),
                    value: Value::Scalar(scalar),
                };
                self.finish(BuiltNode { node, cost }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(line, tag.as_deref(), &["seq"])?;
                self.begin(line, anchor, Parts::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(line, tag.as_deref(), &["map"])?;
                let parts = Parts::Map {
                    entries: Vec::new(),
                    known: BTreeSet::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.begin(line, anchor, parts)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Ok(()),
        }
    }

    /// Refuses a tag that is not of the core, if no other may stand in the text.
    fn check_tag(&self, line: usize, tag: Option<&Tag>, core: &[&str]) -> Result<(), Malformed> {
        let is_core = |tag: &Tag| tag.core_suffix().is_some_and(|name| core.contains(&name));
        match tag {
            Some(tag) if self.tags == Tags::Core && !is_core(tag) => {
                let name = format!("{}{}", tag.original_handle(), tag.suffix());
                Err(malformed(line, format!("cannot use the tag {name:?}")))
            }
            _ => Ok(()),
        }
    }

    /// Takes an item that is whole. The next one has an account of its own.
    pub(super) fn item(&mut self) -> Option<Node> {
        let item = self.item.take()?;
        // Copies for aliases outlive the item.
        self.account = self.alias_account;
        Some(item)
    }

    /// Charges a value to the limits before it is stored.
    fn pay(&mut self, line: usize, cost: Cost) -> Result<(), Malformed> {
        self.account.add(cost);
        if self.account.nodes > self.limits.nodes {
            return Err(Malformed {
                kind: MalformedKind::TooManyValues,
                ..malformed(line, self.limits.too_many())
            });
        }
        // Without aliases a text has hardly more bytes than its source.
        let max = self.limits.bytes.saturating_mul(2);
        if self.account.bytes > max {
            return Err(malformed(line, format!("more than {max} bytes of text")));
        }
        if self.open.len().saturating_add(cost.levels) > self.limits.depth {
            return Err(malformed(line, TOO_DEEP));
        }
        Ok(())
    }

    fn begin(&mut self, line: usize, anchor: usize, parts: Parts) -> Result<(), Malformed> {
        let cost = Cost {
            nodes: 1,
            bytes: 0,
            levels: 1,
        };
        self.pay(line, cost)?;
        self.anchored |= anchor != 0;
        self.open.push(Open {
            line,
            anchor,
            cost,
            parts,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Malformed> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.parts {
            Parts::List(items) => Value::List(items),
            Parts::Map {
                mut entries,
                known: mut names,
                merged,
                ..
            } => {
                // After the map's own entries, which count wherever `<<` stands.
                for node in merged {
                    merge(node, &mut entries, &mut names)?;
                }
                Value::Map(entries)
            }
        };
        let node = Node {
            line: open.line,
            begin: None,
            value,
        };
        let built = BuiltNode {
            node,
            cost: open.cost,
        };
        self.finish(built, open.anchor)
    }

    fn finish(&mut self, built: BuiltNode, anchor: usize) -> Result<(), Malformed> {
        let line = built.node.line;
        if anchor != 0 {
            // A copy waits for its aliases.
            self.pay(line, built.cost)?;
            self.alias_account.add(built.cost);
            self.anchors.insert(anchor, built.clone());
        }
        self.place(built, line)
    }

    /// Returns true inside the document's own list `items`, so that the next value is one of them.
    fn is_in_items(&self) -> bool {
        let [Open { parts: root, .. }, Open { parts, .. }] = self.open.as_slice() else {
            return false;
        };
        let is_items = |key: &MappingKey| matches!(key, MappingKey::Name(name) if name == "items");
        matches!(parts, Parts::List(_))
            && matches!(root, Parts::Map { key: Some(key), .. } if is_items(key))
    }

    /// `line`: where it stands, which for an alias is not where it was written.
    fn place(&mut self, built: BuiltNode, line: usize) -> Result<(), Malformed> {
        // The item is handed out, so the list stays empty.
        if self.items == ListItems::OneByOne && self.is_in_items() {
            self.item = Some(built.node);
            return Ok(());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(built);
            return Ok(());
        };
        open.cost.nodes = open.cost.nodes.saturating_add(built.cost.nodes);
        open.cost.bytes = open.cost.bytes.saturating_add(built.cost.bytes);
        open.cost.levels = open.cost.levels.max(built.cost.levels.saturating_add(1));
        match &mut open.parts {
            Parts::List(items) => items.push(built.node),
            Parts::Map {
                entries,
                known: names,
                key,
                merged,
            } => match key.take() {
                None => *key = Some(name(built.node, names)?),
                Some(MappingKey::Merge) => merged.push(Node { line, ..built.node }),
                Some(MappingKey::Name(name)) => entries.push((name, built.node)),
            },
        }
        Ok(())
    }
}

/// A key that is new.
fn name(node: Node, names: &mut BTreeSet<String>) -> Result<MappingKey, Malformed> {
    let Value::Scalar(scalar) = node.value else {
        return Err(malformed(node.line, "a key that is a list or an object"));
    };
    if scalar.plain && scalar.text == "<<" {
        return Ok(MappingKey::Merge);
    }
    if !names.insert(scalar.text.clone()) {
        return Err(malformed(
            node.line,
            format!("the key {:?} twice", scalar.text),
        ));
    }
    Ok(MappingKey::Name(scalar.text))
}

fn merge(
    node: Node,
    entries: &mut Vec<(String, Node)>,
    keys: &mut BTreeSet<String>,
) -> Result<(), Malformed> {
    match node.value {
        Value::Map(other) => {
            for (key, value) in other {
                // Of several merged maps the earlier counts.
                if keys.insert(key.clone()) {
                    entries.push((key, value));
                }
            }
            Ok(())
        }
        Value::List(others) => others
            .into_iter()
            .try_for_each(|other| merge_one(other, entries, keys)),
        Value::Scalar(_) => Err(malformed(node.line, "`<<` wants an object")),
    }
}

/// An element of `<<: [*a, *b]`.
fn merge_one(
    node: Node,
    entries: &mut Vec<(String, Node)>,
    keys: &mut BTreeSet<String>,
) -> Result<(), Malformed> {
    match node.value {
        Value::Map(_) => merge(node, entries, keys),
        Value::List(_) | Value::Scalar(_) => Err(malformed(node.line, "`<<` wants an object")),
    }
}

/// Returns true if a scalar may be something else than text.
fn is_plain(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match tag.and_then(Tag::core_suffix) {
        Some("str" | "binary") => false,
        Some("null" | "bool" | "int" | "float") => true,
        _ => matches!(style, ScalarStyle::Plain),
    }
}

/// `!!int x` is nothing.
fn fits(line: usize, scalar: &Scalar, tag: Option<&Tag>) -> Result<(), Malformed> {
    let resolved = scalar.resolve();
    let fits = match tag.and_then(Tag::core_suffix) {
        Some("null") => resolved == ResolvedScalar::Null,
        Some("bool") => scalar.boolean().is_some(),
        Some("int") => matches!(resolved, ResolvedScalar::Int(_)),
        Some("float") => matches!(resolved, ResolvedScalar::Int(_) | ResolvedScalar::Float(_)),
        _ => true,
    };
    if fits {
        Ok(())
    } else {
        Err(malformed(line, format!("{scalar} does not match its tag")))
    }
}
