//! Regular expressions as Envoy takes them.

use api::config::regex_size::{MAX_PROGRAM_SIZE, USUAL, program_size};
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, regex_matcher};

use super::wire;

pub(crate) fn matcher(regex: &str) -> RegexMatcher {
    RegexMatcher {
        regex: regex.to_owned(),
        engine_type: (program_size(regex) > USUAL).then(engine),
    }
}

/// Returns true if proxies accept a program of this expression's size.
pub(crate) fn fits(regex: &str) -> bool {
    program_size(regex) <= MAX_PROGRAM_SIZE
}

/// A text as the expression that means it alone.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_punctuation() && !"-_/:@,;=&!#%<>~`'\"".contains(letter) {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted
}

/// Returns the engine for programs that are larger than Envoy takes without a word.
#[allow(
    deprecated,
    reason = "the other way is a setting of each proxy's own bootstrap"
)]
fn engine() -> regex_matcher::EngineType {
    regex_matcher::EngineType::GoogleRe2(regex_matcher::GoogleRe2 {
        max_program_size: wire::number(MAX_PROGRAM_SIZE),
    })
}
