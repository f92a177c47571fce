//! An AdmissionReview: read with bounds, as far as it can be read, and answered in its own version.
//!
//! The answer's `uid` has to be the request's even when the request is broken half-way, so fields are taken as they come.

use std::fmt;

use api::config::MAX_BYTES;
use api::text::cut;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::group::{Group, group};
use super::object;

/// The length of one warning that the API server shows.
const WARNING_BYTES: usize = 256;

/// The field that marks an object as being deleted.
const DELETION: &str = "/metadata/deletionTimestamp";

/// Limits and strictness of decoding a review.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    /// Texts, numbers, lists and objects at most: each takes many times its bytes once it is read.
    pub(crate) values: usize,
    /// Bytes of memory for one review while it is decided.
    pub(crate) memory: usize,
    /// Validates the whole object: a duplicate key in it is an error. Other parts of the review are skipped, at any size and
    /// depth: the old object must not block the update that repairs it. A review without an object to validate needs none.
    /// An object that is larger than configuration may be is not parsed: as a tree it would take a hundred times as much.
    pub(crate) strict: bool,
}

impl ReadOptions {
    /// Checks that an object is within the limits.
    fn takes(&self, text: &str) -> Result<(), DecodeError> {
        if self.strict && object::compact_len(text) > MAX_BYTES {
            return Err(DecodeError::TooLarge);
        }
        object::bounded(text.as_bytes(), self.values)
            .and_then(|amount| amount.fits(self.memory))
            .map_err(DecodeError::Unreadable)
    }
}

/// Errors of a review that is not an answerable request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    Unreadable(String),
    /// Valid JSON, but not an AdmissionReview.
    Another(String),
    /// The object is larger than configuration may be.
    TooLarge,
}

impl DecodeError {
    /// Returns the cause without its context.
    pub(crate) fn cause(&self) -> &str {
        match self {
            Self::Unreadable(cause) | Self::Another(cause) => cause,
            Self::TooLarge => "object is too large",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read review: {}", self.cause())
    }
}

/// The request of an AdmissionReview.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AdmissionRequest {
    api_version: String,
    kind: String,
    has_request: bool,
    /// The error of an object that was not decoded, except for its `deletionTimestamp`.
    excess: Option<DecodeError>,
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) dry_run: bool,
    pub(crate) operation: String,
    pub(crate) sub_resource: String,
    pub(crate) object_kind: Group,
    pub(crate) resource: Group,
    pub(crate) object: Value,
}

/// The response to an AdmissionReview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionResponse {
    Unchanged,
    Patch(Vec<u8>),
    Refused {
        code: u16,
        message: String,
        causes: Vec<Cause>,
    },
}

/// The problem of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Empty: with the object as a whole.
    pub(crate) field: String,
    pub(crate) message: String,
}

impl AdmissionRequest {
    /// Decodes a review; the fields decoded before an error are kept.
    pub(crate) fn read(bytes: &[u8], options: ReadOptions) -> (Self, Result<(), DecodeError>) {
        let mut this = Self::default();
        let whole = match options.strict {
            true => Ok(()),
            false => object::bounded(bytes, options.values)
                .and_then(|amount| amount.fits(options.memory)),
        };
        // The answer needs the `uid` even of a review that is too large.
        let filled = this.fill(bytes, options);
        let read = whole
            .map_err(DecodeError::Unreadable)
            .and_then(|()| filled.map_err(|cause| DecodeError::Unreadable(cause.to_string())))
            .and_then(|()| this.check().map_err(DecodeError::Another))
            .and_then(|()| match &this.excess {
                Some(excess) if !this.skips_validation() => Err(excess.clone()),
                Some(_) | None => Ok(()),
            });
        (this, read)
    }

    /// Skipped values take no memory, and kept ones are bounded before they are read.
    fn fill(&mut self, bytes: &[u8], options: ReadOptions) -> Result<(), serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        ReviewSeed(self, options).deserialize(&mut reader)?;
        reader.end()
    }

    /// Decodes the object. If it is beyond the limits, only its deletion is known.
    fn take(&mut self, text: &str, options: ReadOptions) -> Result<(), serde_json::Error> {
        // One that was written before it goes first: there is never room for two.
        (self.object, self.excess) = (Value::Null, None);
        if let Err(excess) = options.takes(text) {
            self.excess = Some(excess);
            if object::is_deleted(text)? {
                // The rest of the object is dropped.
                self.object = json!({"metadata": {"deletionTimestamp": true}});
            }
            return Ok(());
        }
        self.object = match options.strict {
            true => object::strict(text)?,
            false => object::value(text)?,
        };
        Ok(())
    }

    /// Returns true if the object is not validated: it is not written, only a subresource of it is, or it is being deleted
    /// and loses its finalizers.
    fn skips_validation(&self) -> bool {
        !matches!(self.operation.as_str(), "CREATE" | "UPDATE")
            || !self.sub_resource.is_empty()
            || self.object.pointer(DELETION).is_some()
    }

    fn check(&self) -> Result<(), String> {
        if self.kind != "AdmissionReview" {
            return Err(format!("kind {:?}: want AdmissionReview", self.kind));
        }
        if !self.version_is_known() {
            return Err(format!(
                "apiVersion {:?}: want admission.k8s.io/v1 or v1beta1",
                self.api_version
            ));
        }
        if !self.has_request {
            return Err("review: no request in it".to_owned());
        }
        Ok(())
    }

    fn version_is_known(&self) -> bool {
        matches!(
            self.api_version.as_str(),
            "admission.k8s.io/v1" | "admission.k8s.io/v1beta1"
        )
    }

    /// Returns the reason for which nothing is injected, by the metric's label.
    pub(crate) fn passes_by(&self) -> Option<&'static str> {
        if !matches!(self.operation.as_str(), "" | "CREATE") {
            Some("operation")
        } else if !self.sub_resource.is_empty()
            || !self.object_kind.is("Pod")
            || !self.resource.is("pods")
        {
            Some("kind")
        } else if self.object.is_null() {
            Some("no object")
        } else {
            None
        }
    }

    /// The review's answer.
    pub(crate) fn answer(&self, decision: &AdmissionResponse, warnings: &[String]) -> Vec<u8> {
        let mut response = Map::new();
        response.insert("uid".to_owned(), json!(self.uid));
        match decision {
            AdmissionResponse::Unchanged => {
                response.insert("allowed".to_owned(), json!(true));
            }
            AdmissionResponse::Patch(patch) => {
                response.insert("allowed".to_owned(), json!(true));
                response.insert("patchType".to_owned(), json!("JSONPatch"));
                response.insert("patch".to_owned(), json!(STANDARD.encode(patch)));
            }
            AdmissionResponse::Refused {
                code,
                message,
                causes,
            } => {
                let reason = match *code {
                    422 => "Invalid",
                    ..500 => "BadRequest",
                    500.. => "InternalError",
                };
                response.insert("allowed".to_owned(), json!(false));
                let mut status = json!({"message": message, "reason": reason, "code": code});
                if let Some(status) = status.as_object_mut().filter(|_| !causes.is_empty()) {
                    let causes = causes.iter().map(Cause::json).collect();
                    status.insert("details".to_owned(), self.details(causes));
                }
                response.insert("status".to_owned(), status);
            }
        }
        // Since Kubernetes 1.19 both versions have them; an older API server skips a field that it does not know.
        if !warnings.is_empty() {
            let clipped: Vec<&str> = warnings
                .iter()
                .map(|text| cut(text, WARNING_BYTES))
                .collect();
            response.insert("warnings".to_owned(), json!(clipped));
        }
        let version = if self.version_is_known() {
            self.api_version.as_str()
        } else {
            "admission.k8s.io/v1"
        };
        json!({"apiVersion": version, "kind": "AdmissionReview", "response": response})
            .to_string()
            .into_bytes()
    }
}

impl Cause {
    fn json(&self) -> Value {
        let mut cause = json!({"reason": "FieldValueInvalid", "message": self.message});
        if let Some(cause) = cause.as_object_mut().filter(|_| !self.field.is_empty()) {
            cause.insert("field".to_owned(), json!(self.field));
        }
        cause
    }
}

/// Text; null is as good as absent.
struct NullableText(String);

impl<'de> Deserialize<'de> for NullableText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::<String>::deserialize(from).map(|text| Self(text.unwrap_or_default()))
    }
}

struct ReviewSeed<'a>(&'a mut AdmissionRequest, ReadOptions);

impl<'de> DeserializeSeed<'de> for ReviewSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReviewSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => self.0.api_version = map.next_value::<NullableText>()?.0,
                "kind" => self.0.kind = map.next_value::<NullableText>()?.0,
                "request" => map.next_value_seed(RequestSeed(self.0, self.1))?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

struct RequestSeed<'a>(&'a mut AdmissionRequest, ReadOptions);

impl<'de> DeserializeSeed<'de> for RequestSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionRequest")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(request, options) = self;
        request.has_request = true;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "uid" => request.uid = map.next_value::<NullableText>()?.0,
                "namespace" => request.namespace = map.next_value::<NullableText>()?.0,
                "name" => request.name = map.next_value::<NullableText>()?.0,
                "operation" => request.operation = map.next_value::<NullableText>()?.0,
                "subResource" => request.sub_resource = map.next_value::<NullableText>()?.0,
                "dryRun" => {
                    request.dry_run = map.next_value::<Option<bool>>()?.unwrap_or_default();
                }
                "kind" | "resource" => {
                    let text = map.next_value::<&RawValue>()?.get();
                    // A value beyond the limits is no kind's name.
                    if object::bounded(text.as_bytes(), options.values).is_ok() {
                        let value = object::value(text).map_err(serde::de::Error::custom)?;
                        match key.as_str() {
                            "kind" => request.object_kind = group(&value, "kind")?,
                            _ => request.resource = group(&value, "resource")?,
                        }
                    }
                }
                "object" => {
                    let text = map.next_value::<&RawValue>()?.get();
                    let taken = request.take(text, options);
                    taken.map_err(serde::de::Error::custom)?;
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
