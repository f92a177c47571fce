//! The objects that are generated of Ingresses, validated like a user's, and the findings about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::{Finding, ServedInstead};
use mcp::objects;
use mcp::snapshot::Resource;
use sources::Revision;
use sources::catalogue::{CoreKind, EntryId, Origin, Refused, Warned};
use transform::ingress::{self, Generated};

/// Origins of the Ingresses, by name, as the source reports them.
pub(super) type Origins = BTreeMap<Arc<str>, Origin>;

/// A generated object, with its last valid version and its findings.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) object: Generated,
    /// The last valid version: it stays while the present one is invalid, so that proxies keep it.
    pub(super) served: Option<Arc<Resource>>,
    /// Findings about the present version.
    errors: Arc<[Finding]>,
}

impl Checked {
    /// Validates a generated object like a user's. `before`: the version that is served.
    pub(super) fn new(object: Generated, before: Option<Arc<Resource>>) -> Self {
        let (valid, findings) = object.object();
        let errors: Vec<Finding> = findings.into_iter().filter(Finding::is_error).collect();
        let good = valid.filter(|_| errors.is_empty());
        let served = match good {
            Some(good) => Some(Arc::new(objects::resource(&good, object.create_time))),
            None => before,
        };
        Self {
            object,
            served,
            errors: errors.into(),
        }
    }

    /// Returns the report about an object that is not valid, with the origin of its first Ingress.
    pub(super) fn refused(&self, id: &EntryId, origins: &Origins) -> Option<Refused> {
        (!self.errors.is_empty()).then(|| Refused {
            id: id.clone(),
            origin: origin(origins, &self.object.of.to_string()),
            serving: match self.served {
                Some(_) => ServedInstead::Old,
                None => ServedInstead::Nothing,
            },
            findings: Arc::clone(&self.errors),
            written: None,
            revision: Revision::default(),
        })
    }
}

/// Returns the origin of an Ingress.
fn origin(origins: &Origins, ingress: &str) -> Origin {
    origins.get(ingress).cloned().unwrap_or_default()
}

/// The finding at the first Ingress of a generated object that is not served, because a user's has its name.
pub(super) fn shadowed_finding(object: &Generated, id: &EntryId) -> ingress::Finding {
    let kind = id.kind();
    ingress::Finding {
        ingress: object.of.clone(),
        path: String::new(),
        message: format!(
            "the {kind} that is made of it is not served: the {kind} {} has its name",
            id.name
        ),
    }
}

/// The report about a part of an Ingress that is not served.
pub(super) fn warned(finding: &ingress::Finding, origins: &Origins) -> Warned {
    let name = finding.ingress.to_string();
    Warned {
        origin: origin(origins, &name),
        id: EntryId {
            collection: CoreKind::Ingress.collection(),
            name: name.into(),
        },
        warnings: [Finding::warning(&*finding.path, &*finding.message)].into(),
        notes: Arc::default(),
        is_accepted: true,
    }
}
