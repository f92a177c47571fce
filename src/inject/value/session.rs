//! The budget of one rendering, and the state that functions share during it.
//!
//! Functions of the template language are plain closures without a place for state, and a rendering runs on one thread from begin
//! to end: so its state lies in a thread-local that exists only while it runs. Time is counted in steps and not by a clock: a
//! machine of today does a million of them in well under a second, and equal templates end equally everywhere.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gotmpl::{TemplateError, Value};

/// Text that a template may print, and that a function may make.
pub(crate) const MAX_OUTPUT: usize = 1 << 20;
/// Templates within each other.
pub(crate) const MAX_CALLS: usize = 100;
/// A second, in steps: a node of the template, a call, or [`BYTES_PER_STEP`] of text.
pub(crate) const MAX_STEPS: u64 = 1_000_000;
pub(crate) const BYTES_PER_STEP: usize = 64;
/// Bytes that all functions of one rendering may allocate together, as if all of it were retained: as much as all reviews
/// under way may take together, of the 64 MiB that the shipped manifest gives the injector
/// (`build/kubernetes/injector.yaml`).
pub(crate) const MAX_ALLOCATED: usize = 24 << 20;
/// Estimated bytes of a list's element, of a map's entry with its share of the tree's node, and of either of them in JSON.
pub(crate) const ELEMENT_BYTES: usize = 24;
pub(crate) const ENTRY_BYTES: usize = 80;
pub(crate) const JSON_BYTES: usize = 128;
/// Lists and objects within each other.
pub(crate) const MAX_NESTING: usize = 100;

type Strings = Arc<BTreeMap<Arc<str>, Value>>;

#[derive(Default)]
pub(crate) struct Session {
    steps: u64,
    allocated: usize,
    calls: usize,
    line: usize,
    /// A field was named that neither pod nor mesh has.
    has_unknown_field: bool,
    /// Maps of strings: a missing key of such a map is `""`, of other maps nil. Held here, so that no other map gets their address.
    strings: HashMap<usize, Strings>,
    pub(crate) environment: Arc<BTreeMap<String, String>>,
    pub(crate) data: Option<Value>,
    pub(crate) delimiters: (Arc<str>, Arc<str>),
    pub(crate) dialect: Option<super::Dialect>,
}

impl Session {
    pub(crate) fn new(
        environment: Arc<BTreeMap<String, String>>,
        data: Value,
        delimiters: (Arc<str>, Arc<str>),
    ) -> Self {
        Self {
            environment,
            data: Some(data),
            delimiters,
            ..Self::default()
        }
    }
}

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

/// Ends the session with the rendering, however that ends.
pub(crate) struct SessionGuard;

impl Drop for SessionGuard {
    fn drop(&mut self) {
        SESSION.with(|cell| drop(cell.take()));
    }
}

pub(crate) fn begin(session: Session) -> SessionGuard {
    SESSION.with(|cell| *cell.borrow_mut() = Some(session));
    SessionGuard
}

/// Runs `work` with the session; an error outside of a rendering.
pub(crate) fn with<T>(work: impl FnOnce(&mut Session) -> T) -> Result<T, TemplateError> {
    SESSION.with(|cell| match cell.borrow_mut().as_mut() {
        Some(session) => Ok(work(session)),
        None => Err(TemplateError::Exec("no rendering is going on".to_owned())),
    })
}

/// The line that was last begun.
pub(crate) fn line() -> usize {
    with(|session| session.line).unwrap_or_default()
}

/// A node of the template begins; it counts as much as a call that counts.
pub(crate) fn at(line: usize) -> Result<(), TemplateError> {
    with(|session| session.line = line)?;
    charge(2)
}

/// Charges steps; an error when none are left.
pub(crate) fn charge(steps: u64) -> Result<(), TemplateError> {
    let spent = with(|session| {
        session.steps = session.steps.saturating_add(steps);
        session.steps
    })?;
    if spent > MAX_STEPS {
        return Err(TemplateError::Exec(format!(
            "takes more than {MAX_STEPS} steps"
        )));
    }
    Ok(())
}

/// A field was named that neither pod nor mesh has: the error about it ends the rendering.
pub(crate) fn note_unknown_field() {
    // Without a rendering there is none that it could end.
    let _noted = with(|session| session.has_unknown_field = true);
}

pub(crate) fn has_unknown_field() -> bool {
    with(|session| session.has_unknown_field).unwrap_or_default()
}

/// Text of that length was read or made.
pub(crate) fn charge_bytes(bytes: usize) -> Result<(), TemplateError> {
    charge(u64::try_from(bytes / BYTES_PER_STEP).unwrap_or(u64::MAX))
}

/// Charges for a value of that size.
pub(crate) fn charge_allocated(bytes: usize) -> Result<(), TemplateError> {
    let allocated = with(|session| {
        session.allocated = session.allocated.saturating_add(bytes);
        session.allocated
    })?;
    if allocated > MAX_ALLOCATED {
        return Err(TemplateError::Exec(format!(
            "makes more than {MAX_ALLOCATED} bytes in all"
        )));
    }
    Ok(())
}

/// Charges for so many elements of that size: steps, and bytes.
pub(crate) fn charge_elements(count: usize, bytes: usize) -> Result<(), TemplateError> {
    charge(u64::try_from(count).unwrap_or(u64::MAX))?;
    charge_allocated(count.saturating_mul(bytes))
}

/// A template is entered by name.
pub(crate) fn enter() -> Result<(), TemplateError> {
    let calls = with(|session| {
        session.calls += 1;
        session.calls
    })?;
    if calls > MAX_CALLS {
        return Err(TemplateError::Exec(format!(
            "calls templates deeper than {MAX_CALLS}"
        )));
    }
    charge(1)
}

pub(crate) fn leave() -> Result<(), TemplateError> {
    with(|session| session.calls = session.calls.saturating_sub(1))
}

/// A map of strings; it is remembered as one for the rest of the rendering.
pub(crate) fn strings(entries: BTreeMap<Arc<str>, Value>) -> Result<Value, TemplateError> {
    charge_elements(entries.len().saturating_add(1), ENTRY_BYTES)?;
    let map = Arc::new(entries);
    let retained = Arc::clone(&map);
    with(|session| session.strings.insert(address(&retained), retained))?;
    Ok(Value::Map(map))
}

pub(crate) fn is_strings(map: &Strings) -> bool {
    with(|session| session.strings.contains_key(&address(map))).unwrap_or(false)
}

fn address(map: &Strings) -> usize {
    Arc::as_ptr(map).addr()
}
