//! Values that filters leave beside a request, and what is asked of them.

use envoy_types::pb::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment};
use envoy_types::pb::envoy::r#type::matcher::v3::value_matcher;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListMatcher, StringMatcher, ValueMatcher, list_matcher,
};

/// Keys below each other.
pub(crate) fn path(keys: &[&str]) -> Vec<PathSegment> {
    let segments = keys.iter().map(|key| PathSegment {
        segment: Some(path_segment::Segment::Key((*key).to_owned())),
    });
    segments.collect()
}

pub(crate) fn text(matcher: StringMatcher) -> ValueMatcher {
    ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::StringMatch(matcher)),
    }
}

/// A list with such a value in it.
pub(crate) fn list_with(value: ValueMatcher) -> ValueMatcher {
    let one = list_matcher::MatchPattern::OneOf(Box::new(value));
    ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(
            ListMatcher {
                match_pattern: Some(one),
            },
        ))),
    }
}
