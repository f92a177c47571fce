//! One message laid over another, as proto JSON: scalars and lists replace, messages merge, maps merge by key, and of a
//! group only the newer field stays.
//!
//! JSON and not the types, because only text knows that a zero was written.

use serde_json::{Map, Value as Json};

use crate::schema::{FieldKind, Message, Shape};

/// Both in canonical spelling, as `read` and the types write it.
pub(crate) fn lay(
    message: &'static Message,
    under: &mut Map<String, Json>,
    over: Map<String, Json>,
) {
    for (name, value) in over {
        let Some(field) = message.field(&name) else {
            continue;
        };
        if field.oneof.is_some() {
            for other in message.fields {
                if other.oneof == field.oneof && other.json != field.json {
                    under.remove(other.json);
                }
            }
        }
        match (field.shape, field.kind, under.get_mut(&name), value) {
            (
                Shape::One,
                FieldKind::Message(inner),
                Some(Json::Object(under)),
                Json::Object(over),
            ) => {
                lay(inner, under, over);
            }
            (Shape::Map(_), _, Some(Json::Object(under)), Json::Object(over)) => under.extend(over),
            (_, _, _, value) => {
                under.insert(name, value);
            }
        }
    }
}
