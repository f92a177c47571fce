//! Go's text/template with the functions that Istio's templates use, within bounds.

mod calls;
mod field;
pub(crate) mod functions;
mod output_marks;
mod rewrite;
mod syntax;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use gotmpl::parse::Parser;
use gotmpl::{TemplateError, Value};
use sha2::{Digest as _, Sha256};

pub(crate) use crate::value::Dialect;
use crate::value::session::MAX_OUTPUT;
use crate::value::{object, session};
use output_marks::{Marks, NewMarks};

/// The sha256 of the templates of a configuration; several texts are joined by a newline.
pub(crate) fn version(texts: &[&str]) -> String {
    functions::hex(&Sha256::digest(texts.join("\n")))
}

/// Left and right delimiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delimiters {
    pub(crate) left: String,
    pub(crate) right: String,
}

impl Delimiters {
    #[must_use]
    pub(crate) fn new(left: &str, right: &str) -> Self {
        Self {
            left: left.to_owned(),
            right: right.to_owned(),
        }
    }
}

/// A template that is not one, or that went wrong: name, line and cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) cause: String,
    /// The template names a field that neither pod nor mesh has: it fails for every pod that comes there.
    pub(crate) is_unknown_field: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "template {}, line {}: {}",
            self.name, self.line, self.cause
        )
    }
}

impl std::error::Error for Failure {}

/// The data of a rendering.
#[derive(Debug, Clone)]
pub(crate) struct Data {
    pub(crate) root: Value,
    /// The variables of `env`.
    pub(crate) environment: Arc<BTreeMap<String, String>>,
}

/// A parsed template.
pub(crate) struct Template {
    name: String,
    /// The source; the version is its hash.
    text: String,
    dialect: Dialect,
    delimiters: Delimiters,
    engine: gotmpl::Template,
    /// The marks in the engine's trees.
    marks: Marks,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Bytes that a template prints, or less.
const USUAL: usize = 8 << 10;

/// A byte of a template's text becomes about as many of its tree.
const TREE_BYTES: usize = 32;

/// The name under which the whole of a template's text runs.
const MAIN: &str = " main";

impl Template {
    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// The text has a syntax error or an undefined name; the error has its line.
    pub(crate) fn parse(
        name: &str,
        text: &str,
        dialect: Dialect,
        delimiters: &Delimiters,
    ) -> Result<Self, Failure> {
        let failure = |line, cause| Failure {
            name: name.to_owned(),
            line,
            cause,
            is_unknown_field: false,
        };
        let broken = |error: TemplateError| {
            let (line, cause) = position(&error);
            failure(line, cause)
        };
        let plain = syntax::without_comments(text, delimiters);
        syntax::balanced(name, &plain, delimiters)?;
        let parser =
            Parser::with_name(None, &plain, &delimiters.left, &delimiters.right).map_err(broken)?;
        let (main, definitions) = parser.parse().map_err(broken)?;
        let mut names = BTreeSet::new();
        for define in &definitions {
            // A block may be empty and defined again; two bodies of one name are a mistake.
            if !names.insert(define.name.to_string()) && !define.body.is_empty_tree() {
                return Err(failure(
                    define.pos.line,
                    format!("template {:?} is defined twice", define.name.as_str()),
                ));
            }
        }
        let used = RefCell::new(BTreeSet::new());
        let marks = RefCell::new(NewMarks::default());
        let rewriter = rewrite::Rewriter {
            functions: &|name| {
                let known = functions::is_known(name, dialect);
                if known {
                    used.borrow_mut().insert(name.to_owned());
                }
                known
            },
            templates: &|name| names.contains(name),
            marks: &marks,
        };
        let unknown = |unknown: rewrite::Unknown| failure(unknown.line, unknown.message);
        let mut engine = gotmpl::Template::new(name);
        for define in definitions {
            let empty = define.body.is_empty_tree();
            let (name, body) = rewriter.definition(define).map_err(unknown)?;
            if !(empty && engine.lookup(&name).is_some()) {
                engine = engine.add_parse_tree(&name, body);
            }
        }
        engine = engine.add_parse_tree(MAIN, rewriter.list(main).map_err(unknown)?);
        // The engine looks each call up by name, and finds it sooner among few.
        engine = engine.funcs(functions::of(dialect, &used.into_inner()));
        Ok(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            dialect,
            delimiters: delimiters.clone(),
            engine,
            marks: marks.into_inner().into(),
        })
    }

    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub(crate) fn delimiters(&self) -> &Delimiters {
        &self.delimiters
    }

    /// Returns the output of the template.
    ///
    /// # Errors
    ///
    /// An action fails, or the output or its cost exceeds a limit; the error has its line.
    pub(crate) fn render(&self, data: &Data) -> Result<String, Failure> {
        let delimiters = (
            Arc::from(self.delimiters.left.as_str()),
            Arc::from(self.delimiters.right.as_str()),
        );
        let mut state =
            session::Session::new(Arc::clone(&data.environment), data.root.clone(), delimiters);
        state.dialect = Some(self.dialect);
        let guard = session::begin(state);
        let mut output = Output::of(&self.marks);
        let done = self
            .engine
            .execute_template_fmt(&mut output, MAIN, &data.root);
        // The session has the line, and ends with its guard.
        let line = session::line();
        let is_unknown_field = session::has_unknown_field();
        drop(guard);
        let failure = |cause| Failure {
            name: self.name.clone(),
            line,
            cause,
            is_unknown_field,
        };
        match done {
            Ok(()) => Ok(output.text),
            Err(_) if output.full => Err(failure(format!("prints more than {MAX_OUTPUT} bytes"))),
            Err(error) => Err(failure(position(&output.stopped.unwrap_or(error)).1)),
        }
    }

    /// `TEXT` as a template within the rendering that goes on.
    fn render_within(text: &str) -> Result<Value, TemplateError> {
        let (data, delimiters, dialect) = session::with(|session| {
            (
                session.data.clone(),
                session.delimiters.clone(),
                session.dialect,
            )
        })?;
        let (Some(data), Some(dialect)) = (data, dialect) else {
            return Err(TemplateError::Exec(
                "render: no rendering is going on".to_owned(),
            ));
        };
        // A text may render itself: the depth is bounded as that of named templates.
        session::enter()?;
        session::charge_bytes(text.len().saturating_mul(16))?;
        session::charge_allocated(text.len().saturating_mul(TREE_BYTES))?;
        let delimiters = Delimiters::new(&delimiters.0, &delimiters.1);
        let template = Self::parse("render", text, dialect, &delimiters)
            .map_err(|failure| TemplateError::Exec(failure.to_string()))?;
        let mut output = Output::of(&template.marks);
        let done = template
            .engine
            .execute_template_fmt(&mut output, MAIN, &data);
        done.map_err(|error| output.stopped.take().unwrap_or(error))?;
        // After an error nothing leaves: the whole rendering ends, and its session with it.
        session::leave()?;
        Ok(Value::from(output.text))
    }
}

/// Text with an end.
struct Output<'a> {
    text: String,
    full: bool,
    marks: &'a Marks,
    /// The error with which a mark ended it.
    stopped: Option<TemplateError>,
}

impl<'a> Output<'a> {
    fn of(marks: &'a Marks) -> Self {
        Self {
            text: String::with_capacity(USUAL),
            full: false,
            marks,
            stopped: None,
        }
    }
}

impl fmt::Write for Output<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(line) = self.marks.line(text) {
            return session::at(line).map_err(|error| {
                self.stopped = Some(error);
                fmt::Error
            });
        }
        if self.text.len() + text.len() > MAX_OUTPUT {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// The line of an error, where it has one, and its cause.
fn position(error: &TemplateError) -> (usize, String) {
    match error {
        TemplateError::Parse { line, message, .. } | TemplateError::Lex { line, message, .. } => {
            (*line, message.clone())
        }
        TemplateError::Exec(message) => (session::line(), message.clone()),
        other => (session::line(), other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40,000 actions took seconds: the mark of each was put into a sorted list by itself.
    #[test]
    fn a_template_is_parsed_in_time_by_its_length() {
        let parts = [
            "{{ 1 }}",
            "text {{ .ObjectMeta.Name }}\n",
            "{{ $a := printf `%s` `b` | quote }}",
            "{{ if .Spec }}{{ else if .Values }}{{ end }}",
            "{{ range .Spec.Containers }}{{ . }}{{ end }}",
            "{{- /* no */ -}}",
        ];
        let delimiters = Delimiters::new("{{", "}}");
        for part in parts {
            let parse = |count: usize| {
                let text = part.repeat(count);
                let delimiters = &delimiters;
                move || {
                    let parsed = Template::parse("t", &text, Dialect::Overlay, delimiters);
                    assert!(parsed.is_ok(), "{part}: {parsed:?}");
                }
            };
            crate::growth::assert_linear(32, parse(1_250), parse(40_000));
        }
    }
}
