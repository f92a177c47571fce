//! The data of a template: `.ObjectMeta`, `.Spec`, `.MeshConfig` and the rest, under Go's names.

mod mesh;
mod owner;
mod pod;
mod proxy;

use std::collections::BTreeMap;

use gotmpl::{TemplateError, Value};
use serde_json::Value as Json;

use crate::value::{ObjectValue, first, object, session};

pub(crate) use mesh::{GO_DURATION, absent, message};
pub(crate) use owner::Owner;
pub(crate) use pod::{part, part_of};
pub(crate) use proxy::{Proxy, proxy_config};

/// The root of a template's data: fields that are values already.
struct Root(BTreeMap<&'static str, Value>);

impl ObjectValue for Root {
    fn walk(&self, names: &[Value]) -> Result<(Value, usize), TemplateError> {
        let name = first(names);
        match self.0.get(name) {
            Some(value) => Ok((value.clone(), 1)),
            None => Err(unknown(name, "SidecarTemplateData")),
        }
    }

    fn json(&self) -> Result<Json, TemplateError> {
        Ok(Json::Null)
    }
}

pub(crate) fn root(fields: BTreeMap<&'static str, Value>) -> Value {
    object(Root(fields))
}

/// An object of a few fields that are known now.
pub(crate) fn record(name: &'static str, fields: BTreeMap<&'static str, Value>) -> Value {
    object(Record { name, fields })
}

struct Record {
    name: &'static str,
    fields: BTreeMap<&'static str, Value>,
}

impl ObjectValue for Record {
    fn walk(&self, names: &[Value]) -> Result<(Value, usize), TemplateError> {
        let name = first(names);
        self.fields
            .get(name)
            .map(|value| (value.clone(), 1))
            .ok_or_else(|| unknown(name, self.name))
    }

    fn json(&self) -> Result<Json, TemplateError> {
        let plain = self.fields.iter().filter_map(|(name, value)| match value {
            Value::String(text) => Some(((*name).to_owned(), Json::from(text.as_ref()))),
            _ => None,
        });
        Ok(Json::Object(plain.collect()))
    }
}

fn unknown(name: &str, kind: &str) -> TemplateError {
    session::note_unknown_field();
    TemplateError::Exec(format!("can't evaluate field {name} in type {kind}"))
}
