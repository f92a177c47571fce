//! TypedStructs: messages that name the type of their fields, in place of an Any of that type.

use serde_json::{Map, Value as Json};

use super::{Encoder, delimited};
use crate::finding::{push_key, quoted};
use crate::well_known::TYPE_URL_PREFIX;
use crate::wire::{MAX_DEPTH, WireScalar};

/// Messages that name the type of their fields in a field. Envoy makes that type of it, where it knows the type.
pub(super) const TYPED_STRUCTS: [&str; 2] = ["udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"];

impl Encoder {
    /// Returns the type that a TypedStruct names, and its fields, as Envoy reads them. `None`: the TypedStruct stays as it is written,
    /// so that its errors are reported, or it has a type that Envoy does not know, outside of `typed_config`: extensions may have types
    /// of their own. Envoy does not unpack a TypedStruct within another.
    pub(super) fn typed_struct<'v>(
        &self,
        values: &'v Map<String, Json>,
    ) -> Option<(&'v str, Option<&'v Map<String, Json>>)> {
        let known = ["@type", "type_url", "typeUrl", "value"];
        let url = match (values.get("type_url"), values.get("typeUrl")) {
            (Some(url), None) | (None, Some(url)) => url.as_str()?,
            (Some(_), Some(_)) | (None, None) => return None,
        };
        if !values.keys().all(|key| known.contains(&key.as_str())) {
            return None;
        }
        let fields = match values.get("value") {
            None | Some(Json::Null) => None,
            Some(Json::Object(fields)) => Some(fields),
            Some(_) => return None,
        };
        let type_name = url.rsplit('/').next().unwrap_or(url);
        let configures = ["typed_config", "typedConfig"];
        let configures = configures.iter().any(|field| self.path.ends_with(field));
        let is_meant = match self.resolved(type_name) {
            Some(name) => !TYPED_STRUCTS.contains(&name) && !name.starts_with("google.protobuf."),
            None => configures,
        };
        is_meant.then_some((type_name, fields))
    }

    /// Packs the fields of a [typed struct](TYPED_STRUCTS) as the message whose type it names.
    pub(super) fn packed_struct(
        &mut self,
        written: &str,
        fields: Option<&Map<String, Json>>,
        depth: usize,
        out: &mut Vec<u8>,
    ) {
        let Some(name) = self.resolved(written) else {
            return self.unknown_type("type_url", written);
        };
        let Ok(Some(descriptor)) = self.pool.fields(name) else {
            return self.fail(format!("{} is not a message", quoted(name)));
        };
        // `fields` has no bound, as `message` has.
        if depth > MAX_DEPTH {
            return self.fail("is nested too deeply");
        }
        let mut inner = Vec::new();
        self.below(
            |path| push_key(path, "value"),
            |it| {
                let fields = fields.into_iter().flatten();
                it.fields(name, &descriptor, fields, depth + 1, &mut inner);
            },
        );
        WireScalar::Text(&format!("{TYPE_URL_PREFIX}{name}")).write(Some(1), out);
        delimited(2, &inner, out);
    }
}
