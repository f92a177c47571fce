//! Lists all objects of a kind once, for commands that look at a cluster and end.

use kube::core::Request;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde_json::Value;

use api::config::document::{LIMITS, count_values};

use super::connect::{Cluster, REQUEST};
use super::failure::{Action, Cause, Failure};
use super::page_progress::PageProgress;
use crate::kind::Resource;

/// The bytes of all objects of one list.
const MAX_BYTES: usize = 256 << 20;

/// The objects of a page: a page of large objects still fits into an answer.
const PAGE: u32 = 200;

/// The bytes that a value counts for at least.
const MIN_VALUE_BYTES: usize = 16;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListPage {
    metadata: ListMetadata,
    /// Servers before 1.22 write null for metadata of no objects.
    items: Option<Vec<Value>>,
}

/// A page without the fields that nothing reads.
struct TrimmedPage {
    items: Vec<Value>,
    /// The token of the next page; empty after the last one.
    next: String,
    /// The approximate bytes of the items in memory.
    bytes: usize,
}

impl TrimmedPage {
    fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        let ListPage { metadata, items } = serde_json::from_slice(text)?;
        let items: Vec<_> = items.into_iter().flatten().map(trimmed).collect();
        Ok(Self {
            next: metadata.token,
            bytes: items.iter().map(bytes).sum(),
            items,
        })
    }
}

/// The bounds of a whole list.
#[derive(Clone, Copy, Debug)]
struct ListLimits {
    objects: usize,
    bytes: usize,
}

fn bytes(object: &Value) -> usize {
    let text = object.to_string();
    let count = count_values(&text).map_or(LIMITS.nodes, |count| count.values);
    text.len().max(count.saturating_mul(MIN_VALUE_BYTES))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    #[serde(rename = "continue")]
    token: String,
}

/// Removes the fields that nothing reads.
fn trimmed(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object
        .pointer_mut("/metadata")
        .and_then(Value::as_object_mut)
    {
        metadata.remove("managedFields");
    }
    object
}

/// The part of each object that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedPart {
    Whole,
    /// The server sends the metadata alone.
    Metadata,
}

impl Cluster {
    /// Returns the objects of a kind in all namespaces; `None` if the server does not have the kind. More than `max` objects, or
    /// than 256 MiB of them, are an error.
    ///
    /// # Errors
    /// The request failed.
    pub async fn list_all(
        &self,
        resource: Resource,
        part: ListedPart,
        max: usize,
    ) -> Result<Option<Vec<Value>>, Failure> {
        let limits = ListLimits {
            objects: max,
            bytes: MAX_BYTES,
        };
        self.list_within(resource, part, limits).await
    }

    /// As [`Self::list_all`], within other limits.
    async fn list_within(
        &self,
        resource: Resource,
        part: ListedPart,
        limits: ListLimits,
    ) -> Result<Option<Vec<Value>>, Failure> {
        let action = Action {
            verb: "list",
            resource: resource.to_string(),
            name: None,
        };
        let failure = |cause| self.failure(&action, cause);
        let mut all = Vec::new();
        let mut bytes = 0_usize;
        let mut progress = PageProgress::new();
        loop {
            let params = ListParams {
                limit: Some(PAGE),
                continue_token: progress.token(),
                ..ListParams::default()
            };
            let request = Request::new(resource.path(None));
            let request = match part {
                ListedPart::Metadata => request.list_metadata(&params),
                ListedPart::Whole => request.list(&params),
            };
            let exchange = self.exchange(&action, REQUEST);
            let page = match exchange.read(request, TrimmedPage::read).await {
                Ok(page) => page,
                Err(failure) if failure.code() == Some(404) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            let count = page.items.len();
            all.extend(page.items);
            bytes = bytes.saturating_add(page.bytes);
            if all.len() > limits.objects {
                let message = format!("there are more than {} objects", limits.objects);
                return Err(failure(Cause::Malformed(message)));
            }
            if bytes > limits.bytes {
                let message = format!("all objects exceed {} MiB", limits.bytes >> 20);
                return Err(failure(Cause::Malformed(message)));
            }
            if page.next.is_empty() {
                return Ok(Some(all));
            }
            progress.go_on(count, PAGE, page.next).map_err(failure)?;
        }
    }

    /// The namespace of the kubeconfig's context, or of the pod.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.client.default_namespace()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::fake::{Fake, Lie};

    #[test]
    fn unread_fields_are_dropped() {
        let object = json!({"metadata": {"name": "a", "managedFields": [{}]}, "spec": {"b": 1}, "status": {"c": 1}});
        assert_eq!(
            trimmed(object),
            json!({"metadata": {"name": "a"}, "spec": {"b": 1}})
        );
        assert_eq!(trimmed(json!("a")), json!("a"));
    }

    /// Pages without an end, of nothing or of the same; an honest list is read to its end.
    #[tokio::test]
    async fn a_list_without_an_end_is_a_failure() {
        const KIND: &str = "mutatingwebhookconfigurations";
        let resource = Resource {
            group: "admissionregistration.k8s.io",
            version: "v1",
            name: KIND,
        };
        let fake = Fake::start().await;
        for at in 0..250 {
            fake.put(json!({"metadata": {"name": format!("t{at}")}}));
        }
        let cluster = fake.cluster();
        let all = cluster
            .list_all(resource, ListedPart::Whole, 1_000)
            .await
            .unwrap();
        assert_eq!(all.unwrap().len(), 250);
        for (lie, ending) in [
            (
                Lie::Pages(0),
                "a list has no end, in pages that are nearly empty",
            ),
            (Lie::SamePage, "a list goes on where it was"),
        ] {
            fake.lies("list", KIND, Some(lie));
            let asked = fake.request_count(KIND);
            let failed = cluster
                .list_all(resource, ListedPart::Whole, 1_000)
                .await
                .unwrap_err();
            assert!(failed.to_string().ends_with(ending), "{failed}");
            assert!(fake.request_count(KIND) - asked < 150);
        }
        fake.lies("list", KIND, None);
        let failed = cluster
            .list_all(resource, ListedPart::Whole, 249)
            .await
            .unwrap_err();
        let ending = "there are more than 249 objects";
        assert!(failed.to_string().ends_with(ending), "{failed}");
    }

    #[tokio::test]
    async fn all_pages_together_have_a_bound_of_bytes() {
        let resource = Resource {
            group: "admissionregistration.k8s.io",
            version: "v1",
            name: "mutatingwebhookconfigurations",
        };
        let fake = Fake::start().await;
        let text = "x".repeat(70_000);
        for at in 0..100 {
            fake.put(json!({"metadata": {"name": format!("t{at}")}, "spec": text}));
        }
        let limits = ListLimits {
            objects: 2_000,
            bytes: 4 << 20,
        };
        let failed = fake
            .cluster()
            .list_within(resource, ListedPart::Whole, limits)
            .await;
        let failed = failed.unwrap_err().to_string();
        assert!(failed.ends_with("all objects exceed 4 MiB"), "{failed}");
    }

    #[test]
    fn small_values_count_for_what_they_take() {
        assert_eq!(bytes(&json!({"a": "x".repeat(100)})), 108);
        assert_eq!(bytes(&json!([0, 1, [], {}])), 5 * MIN_VALUE_BYTES);
    }

    #[test]
    fn a_list_of_nothing_may_be_null() {
        for text in [r#"{"items": null, "metadata": {}}"#, r#"{"metadata": {}}"#] {
            let page: ListPage = serde_json::from_str(text).unwrap();
            assert!(page.items.is_none() && page.metadata.token.is_empty());
        }
    }
}
