//! Finds unknown numbers of enumerations, which only the wire can have: text has names. Rules do not see such a number, and a
//! reader of names takes it for the default.

use serde_json::Value as Json;

use super::fields::Walker;
use super::scalars;
use crate::schema::{Field, FieldKind, Message, Shape};

impl Walker {
    /// Reports each number that its enumeration lacks, and makes it `null`, as every unreadable value.
    pub(super) fn refuse_unknown_numbers(&mut self, message: &'static Message, value: &mut Json) {
        let Json::Object(fields) = value else {
            return;
        };
        for (name, value) in fields {
            if let Some(field) = message.field(name) {
                let length = self.path.enter(field.json);
                self.numbers_of_field(field, value);
                self.path.back(length);
            }
        }
    }

    fn numbers_of_field(&mut self, field: &Field, value: &mut Json) {
        match (field.shape, value) {
            (Shape::One, value) => self.numbers_of_value(field.kind, value),
            (Shape::List, Json::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    let length = self.path.enter_item(at);
                    self.numbers_of_value(field.kind, item);
                    self.path.back(length);
                }
            }
            (Shape::Map(_), Json::Object(entries)) => {
                for (key, entry) in entries {
                    let length = self.path.enter(key);
                    self.numbers_of_value(field.kind, entry);
                    self.path.back(length);
                }
            }
            (Shape::List | Shape::Map(_), _) => {}
        }
    }

    fn numbers_of_value(&mut self, kind: FieldKind, value: &mut Json) {
        if let FieldKind::Message(message) = kind {
            self.refuse_unknown_numbers(message, value);
        } else if matches!(kind, FieldKind::Enum(_))
            && value.is_number()
            && let Err(message) = scalars::read(kind, value)
        {
            self.error(message);
            *value = Json::Null;
        }
    }
}
