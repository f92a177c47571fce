//! Inputs through the engine: the documents that hold pods are injected into, the others pass. Nothing is read or written here.

use inject::{Injected, NativeSidecars, Origin, Outcome, Request};
use serde_json::{Map, Value, json};

use super::input::Input;
use super::kinds::{self, Found};
use super::{documents, writer};
use crate::injector::Engine;

/// What was made of all inputs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) text: String,
    /// For the person at the terminal.
    pub(crate) notes: Vec<String>,
}

/// Injects into every document of every input.
///
/// # Errors
/// The first document that cannot be injected, with its place.
pub(crate) fn inject_all<E: Engine>(
    engine: &E,
    native: NativeSidecars,
    inputs: &[Input],
) -> Result<Made, String> {
    let mut made = Made::default();
    for input in inputs {
        if !made.text.is_empty() {
            documents::separate(&mut made.text, &input.text);
        }
        let mut job = Job {
            engine,
            native,
            input,
            notes: Vec::new(),
        };
        job.run(&mut made.text)?;
        made.notes.append(&mut job.notes);
    }
    Ok(made)
}

/// One input on its way.
#[derive(Debug)]
struct Job<'a, E> {
    engine: &'a E,
    native: NativeSidecars,
    input: &'a Input,
    notes: Vec<String>,
}

impl<E: Engine> Job<'_, E> {
    fn run(&mut self, out: &mut String) -> Result<(), String> {
        let mut number = 0;
        for piece in documents::pieces(&self.input.text) {
            out.push_str(piece.separator);
            if piece.is_blank() {
                out.push_str(piece.body);
                continue;
            }
            number += 1;
            let place = |inner: String| format!("{}: document {number}{inner}", self.input.name);
            let value = documents::read(piece.body)
                .map_err(|cause| place(format!(": cannot read YAML: {cause}")))?;
            let Some(mut value) = value else {
                out.push_str(piece.body);
                continue;
            };
            let injected = self
                .object(&mut value)
                .map_err(|(object, cause)| place(format!(" ({object}): {cause}")))?;
            if injected {
                let text = writer::print(&value)
                    .map_err(|cause| place(format!(": cannot write YAML: {cause}")))?;
                piece.replace(&text, out);
            } else {
                out.push_str(piece.body);
            }
        }
        Ok(())
    }

    /// Whether something was injected into an object, or into an item of a list.
    fn object(&mut self, object: &mut Value) -> Result<bool, (String, String)> {
        match kinds::find(object) {
            Found::Nothing => Ok(false),
            Found::List => {
                let items = object.get_mut("items").and_then(Value::as_array_mut);
                let mut injected = false;
                for item in items.into_iter().flatten() {
                    injected |= self.object(item)?;
                }
                Ok(injected)
            }
            Found::Template(path) => {
                let named = kinds::named(object);
                self.template(object, path).map_err(|cause| (named, cause))
            }
        }
    }

    fn template(
        &mut self,
        object: &mut Value,
        path: &'static [&'static str],
    ) -> Result<bool, String> {
        let outer = kinds::outer(object);
        let named = kinds::named(object);
        let template = kinds::template(object, path)?;
        let pod = json!({
            "metadata": template.get("metadata").cloned().unwrap_or(Value::Null),
            "spec": template.get("spec").cloned().unwrap_or(Value::Null),
        });
        let request = Request {
            namespace: outer.namespace.clone(),
            path: Vec::new(),
            native: self.native,
            origin: Origin::Manifest(Box::new(outer)),
        };
        let (warnings, pod) = match self.engine.inject(&request, &pod) {
            Outcome::Skipped { reason, warnings } => {
                self.notes.push(format!("skipping {named}: {reason}"));
                (warnings, None)
            }
            Outcome::Refused { message, .. } => return Err(message),
            Outcome::Injected(injected) => {
                let Injected { warnings, pod, .. } = *injected;
                (warnings, Some(pod))
            }
        };
        let name = &self.input.name;
        let warnings = warnings
            .iter()
            .map(|text| format!("{name}: {named}: {text}"));
        self.notes.extend(warnings);
        let Some(Value::Object(pod)) = pod else {
            return Ok(false);
        };
        Ok(merge(template, pod))
    }
}

/// Puts metadata and spec back where they were; whether something changed.
fn merge(template: &mut Map<String, Value>, pod: Map<String, Value>) -> bool {
    let mut changed = false;
    for (key, value) in pod {
        let before = template.get(&key).unwrap_or(&Value::Null);
        if *before != value {
            template.insert(key, value);
            changed = true;
        }
    }
    changed
}
