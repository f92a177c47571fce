//! The subscriptions of one stream by type: to a set, where a response has all that there is, or by name.

use std::sync::Arc;

use super::named_subscription::NamedSubscription;
use super::sent_resources::SentResources;
use super::set_subscription::SetSubscription;
use crate::resource_names::{NameList, ResourceNames};
use crate::view::{Resource, Type};

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    pub(super) clusters: SetSubscription,
    pub(super) endpoints: NamedSubscription,
    pub(super) listeners: SetSubscription,
    pub(super) routes: NamedSubscription,
    pub(super) secrets: NamedSubscription,
}

/// The subscription to one type.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subscription<'a> {
    Set(&'a SetSubscription),
    Named(&'a NamedSubscription),
}

impl Subscriptions {
    pub(super) fn of(&self, kind: Type) -> Subscription<'_> {
        match kind {
            Type::Cluster => Subscription::Set(&self.clusters),
            Type::Endpoint => Subscription::Named(&self.endpoints),
            Type::Listener => Subscription::Set(&self.listeners),
            Type::Route => Subscription::Named(&self.routes),
            Type::Secret => Subscription::Named(&self.secrets),
        }
    }

    pub(super) fn named(&self, kind: Type) -> Option<&NamedSubscription> {
        match self.of(kind) {
            Subscription::Named(subscription) => Some(subscription),
            Subscription::Set(_) => None,
        }
    }

    pub(super) fn named_mut(&mut self, kind: Type) -> Option<&mut NamedSubscription> {
        match kind {
            Type::Endpoint => Some(&mut self.endpoints),
            Type::Route => Some(&mut self.routes),
            Type::Secret => Some(&mut self.secrets),
            Type::Cluster | Type::Listener => None,
        }
    }

    pub(super) fn set_mut(&mut self, kind: Type) -> Option<&mut SetSubscription> {
        match kind {
            Type::Cluster => Some(&mut self.clusters),
            Type::Listener => Some(&mut self.listeners),
            Type::Endpoint | Type::Route | Type::Secret => None,
        }
    }

    /// The list of a subscription that has this name.
    pub(super) fn list_with(&self, name: &str) -> Option<Arc<dyn NameList>> {
        let mut all = [&self.endpoints, &self.routes, &self.secrets].into_iter();
        all.find_map(|named| named.list_with(name))
    }
}

impl<'a> Subscription<'a> {
    /// The number of names.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Set(subscription) => subscription.names().len(),
            Self::Named(subscription) => subscription.len(),
        }
    }

    pub(super) fn names(self) -> Vec<Arc<str>> {
        match self {
            Self::Set(subscription) => subscription.names().to_vec(),
            Self::Named(subscription) => subscription.names().cloned().collect(),
        }
    }

    /// The same in the form of a request.
    pub(super) fn resource_names(self) -> ResourceNames {
        match self {
            Self::Set(subscription) => subscription.names().iter().collect(),
            Self::Named(subscription) => subscription.names().collect(),
        }
    }

    pub(super) fn is_wildcard(self) -> bool {
        match self {
            Self::Set(subscription) => subscription.is_wildcard(),
            Self::Named(_) => false,
        }
    }

    /// The resource of this name that the client was sent last, and has not lost since.
    pub(super) fn sent(self, name: &str) -> Option<&'a Arc<Resource>> {
        match self {
            Self::Set(subscription) => subscription.sent().get(name),
            Self::Named(subscription) => subscription.sent(name),
        }
    }

    /// The client has this resource, or is to have it, as far as anybody knows.
    pub(super) fn expects(self, name: &str) -> bool {
        match self {
            Self::Set(subscription) => subscription.sent().get(name).is_some(),
            Self::Named(subscription) => subscription.expects(name),
        }
    }

    /// The resources that the client was sent and should still have. Resources that it came with may have a version and no body.
    pub(super) fn resources(self) -> SentResources {
        match self {
            Self::Set(subscription) => SentResources::of_set(subscription.sent()),
            Self::Named(subscription) => subscription.resources(),
        }
    }
}
