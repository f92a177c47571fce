//! What messages exist and what fields they have: tables that are generated from the `.proto` files.
//!
//! Text is read by them (`read`), laid over other text by them (`overlay`), and templates look their fields up here.

/// A message.
#[derive(Debug)]
pub struct Message {
    /// With its package: `istio.mesh.v1alpha1.MeshConfig`.
    pub name: &'static str,
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
    pub shape: Shape,
    pub kind: Kind,
    /// The group of which one field can be set.
    pub oneof: Option<&'static str>,
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    One,
    List,
    /// By strings; the field's kind is that of the values.
    Map,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
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
    /// Anything.
    Json,
}

/// An enumeration.
#[derive(Debug)]
pub struct Enum {
    pub name: &'static str,
    /// Names and numbers; the first is the default.
    pub values: &'static [(&'static str, i32)],
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
