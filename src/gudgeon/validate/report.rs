//! The report: a line for each finding and a summary, or all of it as JSON.

use std::io::Write as _;

use api::config::Finding;
use api::config::document::Part;
use serde_json::{Value, json};

use crate::analyze::Located;
use crate::cli::ReportFormat;
use crate::named_files::UnreadFile;
use crate::secrets::redact_finding;

/// The subject of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Subject {
    /// Identifies the object, as far as its text allows.
    pub(super) fn of(value: &Value) -> Self {
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            _ => String::new(),
        };
        let metadata = |name| {
            text(
                value
                    .get("metadata")
                    .and_then(|metadata| metadata.get(name)),
            )
        };
        Self {
            kind: text(value.get("kind")),
            namespace: metadata("namespace"),
            name: metadata("name"),
        }
    }

    /// `NS/NAME`, or the name alone.
    pub(super) fn full_name(&self) -> String {
        match self.namespace.is_empty() {
            true => self.name.clone(),
            false => format!("{}/{}", self.namespace, self.name),
        }
    }

    /// `KIND NS/NAME`, on one line.
    fn printable(&self) -> String {
        let part = |text: &str| match text.is_empty() {
            true => "?".to_owned(),
            false => text.escape_debug().take(MAX_NAME_CHARS).collect(),
        };
        let (kind, name) = (part(&self.kind), part(&self.name));
        match self.namespace.is_empty() {
            true => format!("{kind} {name}"),
            false => format!("{kind} {}/{name}", part(&self.namespace)),
        }
    }
}

/// Characters of a name that are shown.
const MAX_NAME_CHARS: usize = 256;

/// The counts of all findings.
#[derive(Debug)]
pub(super) struct Report {
    format: ReportFormat,
    /// The rows of the JSON output, which is one value.
    rows: Vec<Value>,
    valid: usize,
    invalid: usize,
    warnings: usize,
    skipped: usize,
    /// Documents from which no object could be read.
    unreadable: usize,
    /// Errors in what objects say of each other.
    wrong: usize,
}

impl Report {
    pub(super) fn new(format: ReportFormat) -> Self {
        Self {
            format,
            rows: Vec::new(),
            valid: 0,
            invalid: 0,
            warnings: 0,
            skipped: 0,
            unreadable: 0,
            wrong: 0,
        }
    }

    /// Reports an object with its findings, redacted: a log of CI has more readers than the file.
    pub(super) fn object(
        &mut self,
        file: &str,
        part: &Part<'_>,
        subject: &Subject,
        findings: &[Finding],
    ) {
        for finding in findings.iter().map(redact_finding) {
            let line = part.line(&finding.path);
            self.warnings += usize::from(!finding.is_error());
            self.row(file, line, subject, &finding);
            if self.format == ReportFormat::Text {
                let warning = if finding.is_error() { "" } else { "warning: " };
                let place = match finding.path.as_str() {
                    "" => String::new(),
                    path => format!("{path}: "),
                };
                let subject = subject.printable();
                print_line(&format!(
                    "{file}:{line}: {subject}: {warning}{place}{}",
                    finding.message
                ));
            }
        }
        if findings.iter().any(Finding::is_error) {
            self.invalid += 1;
        } else {
            self.valid += 1;
        }
    }

    pub(super) fn skipped(&mut self) {
        self.skipped += 1;
    }

    /// Text that is no YAML from a line on, and may be another program's: told, for whoever meant it to be validated.
    pub(super) fn skipped_text(&mut self, file: &str, line: usize, cause: &str) {
        self.skipped();
        print_line(&format!("{file}:{line}: skipped: {cause}"));
    }

    /// Text that is no YAML from a line on.
    pub(super) fn malformed(&mut self, file: &str, line: usize, cause: &str) {
        self.unreadable += 1;
        self.row(file, line, &Subject::default(), &Finding::error("", cause));
        if self.format == ReportFormat::Text {
            print_line(&format!("{file}:{line}: {cause}"));
        }
    }

    pub(super) fn unread(&mut self, unread: &UnreadFile) {
        self.unreadable += 1;
        let UnreadFile { name, cause } = unread;
        let message = format!("cannot read {name}: {cause}");
        let finding = Finding::error("", &message);
        self.row(name, 0, &Subject::default(), &finding);
        if self.format == ReportFormat::Text {
            print_line(&message);
        }
    }

    /// Adds a finding about a reference to another object. Findings about one object alone have been told already.
    pub(super) fn reference(&mut self, found: &Located) {
        if found.is_of_one() {
            return;
        }
        self.warnings += usize::from(!found.is_error());
        self.wrong += usize::from(found.is_error());
        let subject = Subject {
            kind: found.kind.clone(),
            namespace: found.namespace.clone(),
            name: found.name.clone(),
        };
        let message = format!("[{}] {}", found.code(), found.text);
        let finding = match found.is_error() {
            true => Finding::error(&found.path, &message),
            false => Finding::warning(&found.path, &message),
        };
        self.row(&found.file, found.line, &subject, &finding);
        if self.format == ReportFormat::Text {
            let (file, line, subject) = (&found.file, found.line, subject.printable());
            print_line(&format!("{file}:{line}: {subject}: {finding}"));
        }
    }

    fn row(&mut self, file: &str, line: usize, subject: &Subject, finding: &Finding) {
        if self.format == ReportFormat::Json {
            self.rows.push(json!({
                "file": file,
                "line": line,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "severity": if finding.is_error() { "error" } else { "warning" },
                "path": finding.path,
                "message": finding.message,
            }));
        }
    }

    /// Renders the report for stdout. The words of the last line are the same for every count: scripts read it.
    pub(super) fn answer(&self) -> String {
        match self.format {
            ReportFormat::Json => {
                let rows = serde_json::to_string_pretty(&self.rows);
                rows.unwrap_or_default() + "\n"
            }
            ReportFormat::Text => format!(
                "{} objects, {} valid, {} invalid, {} warnings, {} skipped\n",
                self.valid + self.invalid + self.skipped,
                self.valid,
                self.invalid,
                self.warnings,
                self.skipped
            ),
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.invalid == 0 && self.unreadable == 0 && self.wrong == 0
    }
}

fn print_line(line: &str) {
    // If stderr is closed, nobody can read the line.
    let _written = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named_files::NamedFile;
    use crate::validate::source_file::SourceFile;

    #[test]
    fn no_secret_is_reported() {
        let file = NamedFile {
            name: "a.yaml".to_owned(),
            text: "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: a, namespace: n}\n\
                   spec: {jwtRules: [{issuer: i, jwksUri: 'https://a:x/k?access_token=S3CRET'}]}\n"
                .to_owned(),
            below: false,
        };
        let mut source_file = SourceFile::new(None, Report::new(ReportFormat::Json));
        source_file.read(&file);
        let answer = source_file.report.answer();
        assert!(answer.contains("https://a:x/k?access_token=…"), "{answer}");
        assert!(!answer.contains("S3CRET"), "{answer}");
    }
}
