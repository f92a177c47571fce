//! One object as the protocol carries it, encoded once for all sinks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::google::protobuf::{Any, Timestamp};
use api::well_known::LAST_APPLIED;
use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::message;
use crate::version::Version;

/// The field number of `resources` in a response.
const RESOURCES: u32 = 3;

/// The parts of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// `NAMESPACE/NAME`, or `NAME` for a cluster-scoped object.
    pub name: String,
    pub create_time: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub type_url: String,
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    pub name: Arc<str>,
    pub version: Version,
    framed: Bytes,
}

impl Resource {
    pub fn new(origin: Origin) -> Self {
        let name: Arc<str> = origin.name.into();
        let mut annotations = origin.annotations;
        // kubectl's copy of the whole object would double every resource.
        annotations.remove(LAST_APPLIED);
        let mut resource = message::Resource {
            metadata: Some(message::Metadata {
                labels: origin.labels,
                annotations,
                ..message::Metadata::default()
            }),
            body: Some(Any {
                type_url: origin.type_url,
                value: origin.body,
            }),
        };
        // Before name and time are set: replicas agree on content, wherever and whenever it was written.
        let version = content(&resource);
        if let Some(metadata) = &mut resource.metadata {
            metadata.name = name.to_string();
            metadata.create_time = origin.create_time;
            metadata.version = version.to_string();
        }
        Self {
            name,
            version,
            framed: framed(&resource),
        }
    }

    /// Decodes the message again, for pages.
    pub fn message(&self) -> message::Resource {
        // The bytes were encoded by [`Self::new`].
        let read = message::Resources::decode(self.framed.clone()).unwrap_or_default();
        read.resources.into_iter().next().unwrap_or_default()
    }

    /// Returns the encoded element of a response's list: key, length and message.
    pub fn framed(&self) -> &Bytes {
        &self.framed
    }
}

/// Returns the version of a resource's content, without name and creation time.
pub(crate) fn content(resource: &message::Resource) -> Version {
    let metadata = resource.metadata.as_ref();
    let content = message::Resource {
        metadata: Some(message::Metadata {
            labels: metadata.map_or_else(BTreeMap::new, |metadata| metadata.labels.clone()),
            annotations: metadata
                .map_or_else(BTreeMap::new, |metadata| metadata.annotations.clone()),
            ..message::Metadata::default()
        }),
        body: resource.body.clone(),
    };
    Version::of(&content.encode_to_vec())
}

fn framed(resource: &message::Resource) -> Bytes {
    let length = resource.encoded_len();
    // Room for the key's byte and the length's varint.
    let mut bytes = BytesMut::with_capacity(length + 8);
    encode_key(RESOURCES, WireType::LengthDelimited, &mut bytes);
    encode_varint(length as u64, &mut bytes);
    bytes.put_slice(&resource.encode_to_vec());
    bytes.freeze()
}

impl fmt::Debug for Resource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}@{}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            name: "n/a".to_owned(),
            type_url: "type.googleapis.com/t".to_owned(),
            body: Bytes::from_static(b"body"),
            labels: [("l".to_owned(), "1".to_owned())].into(),
            ..Origin::default()
        }
    }

    #[test]
    fn a_version_is_what_is_said_and_not_when_or_by_which_name() {
        let version = Resource::new(origin()).version;
        let mut renamed = origin();
        renamed.name = "n/b".to_owned();
        renamed.create_time = Some(Timestamp {
            seconds: 1,
            nanos: 0,
        });
        renamed
            .annotations
            .insert(LAST_APPLIED.to_owned(), "{}".to_owned());
        assert_eq!(Resource::new(renamed).version, version);
        let changes: [fn(&mut Origin); 4] = [
            |origin| origin.body = Bytes::from_static(b"other"),
            |origin| origin.type_url.push('x'),
            |origin| origin.labels.clear(),
            |origin| {
                origin.annotations.insert("a".to_owned(), String::new());
            },
        ];
        for change in changes {
            let mut other = origin();
            change(&mut other);
            assert_ne!(Resource::new(other).version, version);
        }
    }

    #[test]
    fn a_framed_resource_is_an_element_of_a_response() {
        let resource = Resource::new(origin());
        let response = message::Resources::decode(resource.framed().clone()).unwrap();
        let [read] = &response.resources[..] else {
            panic!("{response:?}")
        };
        let metadata = read.metadata.as_ref().unwrap();
        assert_eq!(metadata.name, "n/a");
        assert_eq!(metadata.version, resource.version.to_string());
        assert_eq!(metadata.labels["l"], "1");
        assert_eq!(content(read), resource.version);
        assert_eq!(*read, resource.message());
    }
}
