//! Values of templates, and the budget of the rendering that makes them.

pub(crate) mod object;
pub(crate) mod session;

pub(crate) use object::{
    ObjectValue, charged_of_json, copied, first, object, of_json, strings_of_json,
};

/// Selects the functions' meanings: `toJson` is of a string map in fragments, and Sprig's in overlays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Fragment,
    Overlay,
}
