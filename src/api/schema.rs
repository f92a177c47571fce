//! Tables of messages and their fields, generated from the `.proto` files.
//!
//! Text is read by them (`config`), laid over other text by them (`overlay`), and the wire is read and written by them
//! (`wire`).

/// A message.
#[derive(Debug)]
pub struct Message {
    /// With its package: `istio.mesh.v1alpha1.MeshConfig`.
    pub name: &'static str,
    /// By their numbers.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Debug)]
pub struct Field {
    /// As the `.proto` file writes it: `drain_duration`.
    pub name: &'static str,
    /// In JSON: `drainDuration`.
    pub json: &'static str,
    /// In Go: `DrainDuration`.
    pub go: &'static str,
    /// On the wire.
    pub number: u32,
    pub shape: Shape,
    pub kind: FieldKind,
    /// The group of which one field can be set.
    pub oneof: Option<&'static str>,
    /// A scalar that is on the wire even with its default.
    pub presence: bool,
    /// Only releases up to 1.5 had it.
    pub deprecated: bool,
}

/// The cardinality of a field: single, repeated or a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    One,
    List,
    /// The field's kind is that of the values.
    Map(Key),
}

/// The type of a map's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    String,
    Uint32,
}

/// The type of a field's value.
#[derive(Clone, Copy, Debug)]
pub enum FieldKind {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Float,
    Double,
    Enum(&'static Enum),
    Message(&'static Message),
    Duration,
    Timestamp,
    /// A scalar that can be absent.
    Wrapper(&'static Self),
    /// Any object.
    Struct,
    /// A message that names its type: in messages that have no text.
    Any,
}

/// An enumeration.
#[derive(Debug)]
pub struct Enum {
    pub name: &'static str,
    /// Names and numbers; the first is the default.
    pub values: &'static [(&'static str, i32)],
}

/// A message that has a Rust type besides its table.
pub trait Typed: prost::Message + Clone + Default {
    const MESSAGE: &'static Message;
}

impl Message {
    /// The field of this name, in either spelling.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|field| field.json == name || field.name == name)
    }
}

impl Enum {
    /// The name of a number.
    #[must_use]
    pub fn name_of(&self, number: i32) -> Option<&'static str> {
        self.values
            .iter()
            .find(|(_, known)| *known == number)
            .map(|(name, _)| *name)
    }
}

include!(concat!(env!("OUT_DIR"), "/schema.rs"));
