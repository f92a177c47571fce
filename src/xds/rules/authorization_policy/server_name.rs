//! A decision by the server name alone, which no policy of a user is behind.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::config::rbac::v3::{Permission, Policy, permission, rbac};
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use super::{everything, message};
use crate::cluster_names::BY_SERVER_NAME;

/// Builds the filter that closes connections whose server name is no cluster which TLS is led to by its server name.
pub(crate) fn by_server_name() -> Filter {
    let matcher = StringMatcher {
        match_pattern: Some(MatchPattern::Prefix(BY_SERVER_NAME.to_owned())),
        ..StringMatcher::default()
    };
    let permission = Permission {
        rule: Some(permission::Rule::RequestedServerName(matcher)),
    };
    let policy = Policy {
        permissions: vec![permission],
        ..everything()
    };
    message::tcp(message::Rbac {
        action: rbac::Action::Allow.into(),
        policies: BTreeMap::from([("server-name".to_owned(), policy)]),
    })
}
