//! Redacts the secrets that findings and log lines quote.

use std::borrow::Cow;
use std::sync::Arc;

use api::config::Finding;
use api::redact::{Quotation, REDACTED, map_quoted};
use api::url::{quotation_without_credentials, starts_with_scheme};
use sources::catalogue::ConfigReport;

use super::{is_holder, is_secret, normalized, redact_url_parameters};

/// The kinds of paths, each of which hides more of the quotations behind it than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathKind {
    /// Quotations are no secrets, but for those in URLs.
    Plain,
    /// Quotations are URLs that may carry a user or a password.
    KeysUrl,
    /// Quotations are values of a condition, which are compared with headers and claims that may be secret.
    Condition,
    /// Quotations may be secrets.
    Secret,
}

impl PathKind {
    fn of(path: &str) -> Self {
        let names = path.split(['.', '[', ']', '"']);
        let is_secret_name = |name: String| name == "jwks" || is_secret(&name);
        if names.clone().next_back().is_some_and(is_holder)
            || names.clone().map(normalized).any(is_secret_name)
        {
            return Self::Secret;
        }
        let is_values = |name: String| matches!(name.as_str(), "values" | "notvalues");
        if path.contains(".when[") && names.map(normalized).any(is_values) {
            return Self::Condition;
        }
        match path.ends_with("jwksUri") {
            true => Self::KeysUrl,
            false => Self::Plain,
        }
    }

    /// The kind of the paths in a text of findings, `PATH: MESSAGE; PATH: MESSAGE`, with or without a file and an object in
    /// front.
    fn of_text(text: &str) -> Self {
        let parts = text.split(": ").flat_map(|part| part.split("; "));
        let paths = parts.filter(|part| part.starts_with("spec") && !part.contains(' '));
        paths.map(Self::of).max().unwrap_or(Self::Plain)
    }

    fn redact(self, text: &str) -> String {
        if self == Self::Plain && !text.contains("://") && !text.contains('@') {
            return text.to_owned();
        }
        map_quoted(text, |quotation| match self {
            _ if is_suggestion(quotation) => quotation.inner.into(),
            Self::Plain => redact_url(quotation.inner),
            Self::KeysUrl => redact_keys_url(quotation.inner),
            Self::Condition if has_prescribed_form(quotation) => quotation.inner.into(),
            Self::Condition | Self::Secret => REDACTED.into(),
        })
    }
}

/// Returns true for a name that gudgeon suggests: it is out of a table and not out of the object.
fn is_suggestion(quotation: Quotation<'_>) -> bool {
    quotation.before.ends_with("did you mean ")
}

/// Returns true for a value that must be an address or a port by the key of its condition: neither is a secret.
fn has_prescribed_form(quotation: Quotation<'_>) -> bool {
    quotation.after.starts_with(" is not an IP address or CIDR")
        || quotation.before.ends_with("port ") && quotation.after.starts_with(" is not in 0..65535")
}

/// Redacts the secrets in a quotation, if it is a URL.
fn redact_url(quoted: &str) -> Cow<'_, str> {
    match quotation_without_credentials(quoted) {
        // Only the text of a URL is written anew.
        Cow::Borrowed(text) => text.into(),
        Cow::Owned(url) => redact_url_parameters(&url).into(),
    }
}

/// Redacts the secrets in a quotation that should be a URL: without a scheme, all before its last `@` may be one.
fn redact_keys_url(quoted: &str) -> Cow<'_, str> {
    if starts_with_scheme(quoted) {
        return redact_url(quoted);
    }
    match quoted.rsplit_once('@') {
        Some((_, behind)) => redact_url_parameters(&format!("{REDACTED}@{behind}")).into(),
        // The `@` may be in the part that was cut.
        None if quoted.ends_with(REDACTED) => REDACTED.into(),
        None => redact_url_parameters(quoted).into(),
    }
}

/// Redacts a finding: its path, or one that its message begins with, tells which quotations may be secrets.
pub(crate) fn redact_finding(finding: &Finding) -> Finding {
    let kind = PathKind::of(&finding.path).max(PathKind::of_text(&finding.message));
    let mut redacted = finding.clone();
    redacted.message = kind.redact(&finding.message);
    redacted
}

/// Redacts the report of a source.
pub(crate) fn redact_report(report: &ConfigReport) -> ConfigReport {
    let hide = |all: &Arc<[Finding]>| all.iter().map(redact_finding).collect();
    let mut redacted = report.clone();
    for one in &mut redacted.refused {
        one.findings = hide(&one.findings);
    }
    for one in &mut redacted.warned {
        one.warnings = hide(&one.warnings);
        one.notes = hide(&one.notes);
    }
    redacted
}

/// Redacts findings that are rendered as a text; the secrets in URLs without a path, too.
pub(crate) fn redact_text(text: &str) -> String {
    PathKind::of_text(text).redact(text)
}
