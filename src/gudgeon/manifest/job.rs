//! Inputs through the engine: the documents that hold pods are injected into, the others pass. This file neither reads nor
//! writes.

use std::io::Write;

use inject::{Injected, NativeSidecars, Origin, Outcome, ProxyIds, Request};
use serde_json::{Map, Value, json};

use super::documents::Piece;
use super::input::Input;
use super::kinds::{self, PodLocation};
use super::out::Out;
use super::{documents, writer};
use crate::injector::ActiveConfiguration;

/// Injects into every document of every input; returns notes for the user at the terminal.
///
/// # Errors
/// The first document that cannot be injected, with its place; or an error of the output.
pub(crate) fn inject_all<E: ActiveConfiguration>(
    engine: &E,
    native: NativeSidecars,
    inputs: &[Input],
    to: &mut dyn Write,
) -> Result<Vec<String>, String> {
    let mut out = Out::new(to);
    let mut notes = Vec::new();
    for input in inputs {
        if !out.is_empty() {
            documents::separate(&mut out, &input.text);
        }
        let mut job = Job {
            engine,
            native,
            input,
            notes: Vec::new(),
        };
        job.run(&mut out)?;
        notes.append(&mut job.notes);
    }
    let result = out.finish();
    result.map_err(|cause| format!("cannot write: {cause}"))?;
    Ok(notes)
}

/// The key of a list's items.
const ITEMS: &str = "items";

fn refused((object, cause): (String, String)) -> String {
    format!(" ({object}): {cause}")
}

fn unwritten(cause: &str) -> String {
    format!(": cannot write YAML: {cause}")
}

/// The state of one input.
#[derive(Debug)]
struct Job<'a, E> {
    engine: &'a E,
    native: NativeSidecars,
    input: &'a Input,
    notes: Vec<String>,
}

impl<E: ActiveConfiguration> Job<'_, E> {
    fn run(&mut self, out: &mut Out<'_>) -> Result<(), String> {
        let mut number = 0;
        for piece in documents::pieces(&self.input.text) {
            out.push_str(piece.separator);
            if piece.is_blank() {
                out.push_str(piece.body);
                continue;
            }
            number += 1;
            let name = &self.input.name;
            let place = |inner: String| format!("{name}: document {number}{inner}");
            let value = documents::read(piece.body)
                .map_err(|cause| place(format!(": cannot read YAML: {cause}")))?;
            let Some(mut value) = value else {
                out.push_str(piece.body);
                continue;
            };
            let injected = match kinds::find(&value) {
                PodLocation::List => self.list(&mut value, &piece, out),
                PodLocation::Nothing | PodLocation::Template(_) => {
                    self.whole(&mut value, &piece, out)
                }
            };
            if !injected.map_err(place)? {
                out.push_str(piece.body);
            }
        }
        Ok(())
    }

    /// Injects into an object and writes it; returns true if it was changed.
    fn whole(
        &mut self,
        value: &mut Value,
        piece: &Piece<'_>,
        out: &mut Out<'_>,
    ) -> Result<bool, String> {
        let injected = self.object(value).map_err(refused)?;
        if injected {
            let text = writer::print(value).map_err(|cause| unwritten(&cause))?;
            piece.begin(out);
            piece.replace(&text, out);
        }
        Ok(injected)
    }

    /// The same of a list: item by item, so that one of them is in memory with its proxy.
    fn list(
        &mut self,
        list: &mut Value,
        piece: &Piece<'_>,
        out: &mut Out<'_>,
    ) -> Result<bool, String> {
        let items = list.get_mut(ITEMS).and_then(Value::as_array_mut);
        let items = items.map(std::mem::take).unwrap_or_default();
        // The original text is kept until an item is injected.
        let mut begin = Some(String::new());
        let (before, behind) = if items.is_empty() {
            return Ok(false);
        } else {
            writer::print_around(list, ITEMS).map_err(|cause| unwritten(&cause))?
        };
        for mut item in items {
            let injected = self.object(&mut item).map_err(refused)?;
            let text = writer::print_element(&item, ITEMS).map_err(|cause| unwritten(&cause))?;
            if let Some(waiting) = begin.as_mut().filter(|_| !injected) {
                waiting.push_str(&text);
                continue;
            }
            if let Some(waiting) = begin.take() {
                piece.begin(out);
                piece.replace(&before, out);
                piece.replace(&waiting, out);
            }
            piece.replace(&text, out);
        }
        if begin.is_some() {
            return Ok(false);
        }
        piece.replace(&behind, out);
        Ok(true)
    }

    /// Injects into an object, or into the items of a list; returns true if it was changed.
    fn object(&mut self, object: &mut Value) -> Result<bool, (String, String)> {
        match kinds::find(object) {
            PodLocation::Nothing => Ok(false),
            PodLocation::List => {
                let items = object.get_mut("items").and_then(Value::as_array_mut);
                let mut injected = false;
                for item in items.into_iter().flatten() {
                    injected |= self.object(item)?;
                }
                Ok(injected)
            }
            PodLocation::Template(path) => {
                let name = kinds::named(object);
                self.template(object, path).map_err(|cause| (name, cause))
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
            proxy_envs: Vec::new(),
            native: self.native,
            origin: Origin::Manifest(Box::new(outer)),
            // The namespaces of the target cluster are unknown.
            ids: ProxyIds::default(),
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

/// Puts metadata and spec back; returns true if anything changed.
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
