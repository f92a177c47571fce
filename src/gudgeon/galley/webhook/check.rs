//! Validates one object: collects all its errors in its author's words. Pure.

use api::config::{self, Finding, Kind, Object};
use api::networking::has_errors;
use api::redact::redact_quoted;
use api::text::cut;
use serde_json::Value;

use crate::admission::{AdmissionRequest, AdmissionResponse, Cause, DecodeError};
use crate::named_files::put_namespace;
use crate::secrets;

/// Bytes of the whole message.
const MESSAGE_BYTES: usize = 4 << 10;
/// Bytes of one cause.
const CAUSE_BYTES: usize = 1 << 10;
/// Bytes of one warning, within the API server's limit.
const WARNING_BYTES: usize = 250;
/// Bytes of all warnings: the API server silently drops those beyond.
const WARNINGS_BYTES: usize = 4 << 10;

/// Bytes reserved for `; … and N more`.
const MORE: usize = 32;

/// Validates an object and returns its findings.
pub(super) type Check = fn(&Value) -> (Option<Object>, Vec<Finding>);

/// The kinds that a path validates: all, or one of the two sets of old releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidatedKinds {
    All,
    Pilot,
    Mixer,
}

impl ValidatedKinds {
    pub(super) fn of(path: &str) -> Option<Self> {
        match path {
            "/validate" => Some(Self::All),
            "/admitpilot" => Some(Self::Pilot),
            "/admitmixer" => Some(Self::Mixer),
            _ => None,
        }
    }

    fn takes(self, kind: &Kind) -> bool {
        const OF_MIXER: [&str; 6] = [
            "rule",
            "handler",
            "instance",
            "attributemanifest",
            "adapter",
            "template",
        ];
        // The kinds that Mixer's adapters and templates had before have no check.
        let is_mixers = kind.group == "config.istio.io"
            && (OF_MIXER.contains(&kind.kind) || kind.check == config::Check::Unused);
        match self {
            Self::All => true,
            Self::Pilot => !is_mixers,
            Self::Mixer => is_mixers,
        }
    }
}

/// The reasons for a refusal or an error, by the values of the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    UnsupportedOperation,
    Undecodable,
    UnknownType,
    /// Fields.
    Conversion,
    /// Rules.
    Invalid,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::UnsupportedOperation => "unsupported_operation",
            Self::Undecodable => "yaml_decode_error",
            Self::UnknownType => "unknown_type",
            Self::Conversion => "crd_conversion_error",
            Self::Invalid => "invalid_resource",
        }
    }
}

#[derive(Debug)]
pub(super) struct ValidationOutcome {
    pub(super) response: AdmissionResponse,
    pub(super) warnings: Vec<String>,
    /// `None`: the object is valid.
    pub(super) reason: Option<Reason>,
    /// The reasons for a refusal, as operators may read them.
    pub(super) log_message: String,
}

impl ValidationOutcome {
    pub(super) const fn is_allowed(&self) -> bool {
        !matches!(self.response, AdmissionResponse::Refused { .. })
    }

    fn passed(reason: Option<Reason>) -> Self {
        Self {
            response: AdmissionResponse::Unchanged,
            warnings: Vec::new(),
            reason,
            log_message: String::new(),
        }
    }

    /// Refuses an object that cannot be decoded.
    fn undecodable(message: &str) -> Self {
        let response = AdmissionResponse::Refused {
            code: 400,
            message: cut(message, MESSAGE_BYTES).to_owned(),
            causes: Vec::new(),
        };
        Self {
            response,
            warnings: Vec::new(),
            reason: Some(Reason::Undecodable),
            log_message: redact_quoted(message),
        }
    }

    fn refused(code: u16, reason: Reason, errors: &[Finding]) -> Self {
        let message = message(errors);
        let response = AdmissionResponse::Refused {
            code,
            message: message.clone(),
            causes: errors.iter().map(cause).collect(),
        };
        Self {
            response,
            warnings: Vec::new(),
            reason: Some(reason),
            log_message: message,
        }
    }
}

/// The request's object gets its request's namespace, where it has none.
pub(super) fn validate(
    request: &mut AdmissionRequest,
    read: Result<(), DecodeError>,
    scope: ValidatedKinds,
    check: Check,
) -> ValidationOutcome {
    match read {
        Ok(()) => {}
        Err(DecodeError::TooLarge) => {
            let error = Finding::error("", DecodeError::TooLarge.cause());
            return ValidationOutcome::refused(422, Reason::Undecodable, &[error]);
        }
        Err(error) => {
            let message = format!("could not decode body: {}", error.cause());
            return ValidationOutcome::undecodable(&message);
        }
    }
    // As in Galley an unknown operation is allowed, and counts as failed.
    if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return ValidationOutcome::passed(Some(Reason::UnsupportedOperation));
    }
    // `status` is the only subresource of these kinds, and a write to it changes no spec.
    if !request.sub_resource.is_empty() {
        return ValidationOutcome::passed(None);
    }
    if request.object.is_null() {
        return ValidationOutcome::undecodable("the request has no object");
    }
    let deletion = request.object.pointer("/metadata/deletionTimestamp");
    if deletion.is_some_and(|time| !time.is_null()) {
        // Its finalizers are removed by updates: refusing one would keep the object for ever.
        return ValidationOutcome::passed(None);
    }
    if !request.namespace.is_empty() {
        put_namespace(&mut request.object, &request.namespace);
    }
    let object = &request.object;
    let (kind, findings) = match elsewhere(object, scope) {
        Some(finding) => (None, vec![finding]),
        None => {
            let (checked, mut findings) = check(object);
            if let Some(object) = &checked
                && !has_errors(&findings)
            {
                findings.extend(config::notes_of(object));
            }
            (checked.map(|object| object.kind), findings)
        }
    };
    // Logs of CI and of the API server have more readers than the object.
    let mut findings: Vec<_> = findings.iter().map(secrets::redact_finding).collect();
    let warnings = response_warnings(&findings);
    findings.retain(Finding::is_error);
    let mut outcome = match findings.first() {
        None => ValidationOutcome::passed(None),
        Some(first) => {
            let is_unknown = kind.is_none() && matches!(first.path.as_str(), "kind" | "apiVersion");
            let code = if is_unknown { 400 } else { 422 };
            let reason = match kind {
                None if is_unknown => Reason::UnknownType,
                None => Reason::Undecodable,
                // Reading alone finds errors of fields; the others are broken rules.
                Some(_) if has_errors(&config::read(object).1) => Reason::Conversion,
                Some(_) => Reason::Invalid,
            };
            ValidationOutcome::refused(code, reason, &findings)
        }
    };
    outcome.warnings = warnings;
    outcome
}

/// Adds words to the message of a refusal, at the cost of its last errors where it is long.
pub(super) fn add_words(outcome: &mut ValidationOutcome, text: &str) {
    if let AdmissionResponse::Refused { message, .. } = &mut outcome.response {
        let room = MESSAGE_BYTES.saturating_sub(text.len() + 2);
        *message = format!("{}; {text}", cut(message, room));
    }
}

/// A kind that is known, and asked about at another path.
fn elsewhere(object: &Value, scope: ValidatedKinds) -> Option<Finding> {
    let text = |name| object.get(name).and_then(Value::as_str);
    let (version, name) = (text("apiVersion")?, text("kind")?);
    let kind = config::kind(version, name).ok()?;
    let message = format!("unrecognized type {version} {name}");
    (!scope.takes(kind)).then(|| Finding::error("kind", message))
}

/// Joins the errors in one line: as many as fit, and the number of the others.
fn message(errors: &[Finding]) -> String {
    const BEGIN: &str = "configuration is invalid: ";
    let mut message = String::from(BEGIN);
    for (at, error) in errors.iter().enumerate() {
        let text = error.to_string();
        let separator = if at == 0 { "" } else { "; " };
        // The first error is always shown, if need be cut.
        if at > 0 && message.len() + text.len() + separator.len() + MORE > MESSAGE_BYTES {
            let more: usize = errors.iter().skip(at).map(Finding::count).sum();
            message.push_str(&format!("; … and {more} more"));
            break;
        }
        message.push_str(separator);
        message.push_str(cut(&text, MESSAGE_BYTES - BEGIN.len() - MORE));
    }
    message
}

fn cause(error: &Finding) -> Cause {
    Cause {
        field: cut(&error.path, CAUSE_BYTES).to_owned(),
        message: cut(&error.message, CAUSE_BYTES).to_owned(),
    }
}

fn response_warnings(findings: &[Finding]) -> Vec<String> {
    let warnings = findings.iter().filter(|finding| !finding.is_error());
    let mut rendered: Vec<String> = warnings
        .clone()
        .map(|warning| {
            let text = match warning.path.as_str() {
                // A warning about a kind names it.
                "" | "kind" => warning.message.clone(),
                path => format!("{path}: {}", warning.message),
            };
            cut(&text, WARNING_BYTES).to_owned()
        })
        .collect();
    if rendered.iter().map(String::len).sum::<usize>() > WARNINGS_BYTES {
        let mut bytes = MORE;
        let fit = rendered.iter().take_while(|warning| {
            bytes += warning.len();
            bytes <= WARNINGS_BYTES
        });
        let fit = fit.count();
        let more: usize = warnings.skip(fit).map(Finding::count).sum();
        rendered.truncate(fit);
        rendered.push(format!("… and {more} more"));
    }
    rendered
}

#[cfg(test)]
mod tests;
