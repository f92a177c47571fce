//! Envoy's messages and their fields, by their descriptors.
//!
//! Only names are looked up when the descriptors are taken; a message's fields are read when it is met.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wire::{DecodeError, Raw, next_field};

/// Messages within messages: no file has so many.
const MAX_DEPTH: usize = 32;

/// The option of a message with its name in an earlier version (udpa/annotations/versioning.proto).
const VERSIONING: u32 = 7_881_811;

/// The options of a field, and of a choice, with Envoy's rules (validate/validate.proto). Only the rules about required fields are
/// read.
const RULES: u32 = 1071;

/// Numbers of the types of fields (google/protobuf/descriptor.proto).
pub mod kind {
    pub const DOUBLE: u64 = 1;
    pub const FLOAT: u64 = 2;
    pub const INT64: u64 = 3;
    pub const UINT64: u64 = 4;
    pub const INT32: u64 = 5;
    pub const FIXED64: u64 = 6;
    pub const FIXED32: u64 = 7;
    pub const BOOL: u64 = 8;
    pub const STRING: u64 = 9;
    pub const MESSAGE: u64 = 11;
    pub const BYTES: u64 = 12;
    pub const UINT32: u64 = 13;
    pub const ENUM: u64 = 14;
    pub const SFIXED32: u64 = 15;
    pub const SFIXED64: u64 = 16;
    pub const SINT32: u64 = 17;
    pub const SINT64: u64 = 18;
}

/// A set of files.
pub struct DescriptorPool<'a> {
    files: Vec<(String, &'a [u8])>,
    /// The file and the descriptor of each symbol, by full name.
    symbols: HashMap<String, (usize, &'a [u8])>,
    /// Names of messages by those that they had in an earlier version.
    renamed: HashMap<&'a str, String>,
    read: Mutex<HashMap<String, Arc<MessageDescriptor<'a>>>>,
}

impl fmt::Debug for DescriptorPool<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "DescriptorPool({} files)", self.files.len())
    }
}

/// The fields of a message, ordered by number.
#[derive(Debug)]
pub struct MessageDescriptor<'a> {
    pub fields: Vec<FieldDescriptor<'a>>,
    /// Entries of a map.
    pub is_entry: bool,
    /// Groups of which Envoy wants one field.
    pub wanted_choices: Vec<u64>,
}

/// A field of a message. Numbers are the descriptors' own.
#[derive(Clone, Debug, Default)]
pub struct FieldDescriptor<'a> {
    pub name: &'a str,
    pub number: u32,
    pub is_list: bool,
    /// One of the constants in [`kind`].
    pub kind: u64,
    /// The message or enumeration that it holds.
    pub of: &'a str,
    /// The group of which one field can be set.
    pub oneof: Option<u64>,
    /// Envoy wants a message there.
    pub is_required: bool,
    /// Items of a list, or characters of a text, that Envoy wants at least.
    pub min: u64,
    /// Envoy does not look for its rules within the message.
    pub is_unchecked: bool,
}

impl<'a> DescriptorPool<'a> {
    /// Takes a `FileDescriptorSet`.
    ///
    /// # Errors
    ///
    /// The bytes are no descriptors.
    pub fn new(mut set: &'a [u8]) -> Result<Self, DecodeError> {
        let mut pool = Self {
            files: Vec::new(),
            symbols: HashMap::new(),
            renamed: HashMap::new(),
            read: Mutex::default(),
        };
        while let Some((number, raw)) = next_field(&mut set)? {
            if let (1, Raw::Bytes(file)) = (number, raw) {
                pool.add_file(file)?;
            }
        }
        Ok(pool)
    }

    fn add_file(&mut self, file: &'a [u8]) -> Result<(), DecodeError> {
        let (mut name, mut package) = ("", "");
        for part in parts(file) {
            match part? {
                (1, Raw::Bytes(bytes)) => name = text(bytes)?,
                (2, Raw::Bytes(bytes)) => package = text(bytes)?,
                _ => {}
            }
        }
        // A second pass: names need the package, and fields may stand in any order.
        let at = self.files.len();
        self.files.push((name.to_owned(), file));
        for part in parts(file) {
            match part? {
                (4, Raw::Bytes(bytes)) => self.add_message(at, package, bytes, 0)?,
                (5 | 6, Raw::Bytes(bytes)) => drop(self.add_symbol(at, package, bytes)?),
                _ => {}
            }
        }
        Ok(())
    }

    fn add_message(
        &mut self,
        at: usize,
        scope: &str,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<(), DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::Deep);
        }
        let name = self.add_symbol(at, scope, bytes)?;
        for part in parts(bytes) {
            match part? {
                (3, Raw::Bytes(bytes)) => self.add_message(at, &name, bytes, depth + 1)?,
                (4, Raw::Bytes(bytes)) => drop(self.add_symbol(at, &name, bytes)?),
                (7, Raw::Bytes(options)) => self.add_versions(&name, options)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add_versions(&mut self, name: &str, options: &'a [u8]) -> Result<(), DecodeError> {
        for option in parts(options) {
            let (VERSIONING, Raw::Bytes(versioning)) = option? else {
                continue;
            };
            for part in parts(versioning) {
                if let (1, Raw::Bytes(earlier)) = part? {
                    self.renamed.insert(text(earlier)?, name.to_owned());
                }
            }
        }
        Ok(())
    }

    /// Adds a message, an enumeration or a service under its full name, which is its first field in each descriptor.
    fn add_symbol(
        &mut self,
        at: usize,
        scope: &str,
        bytes: &'a [u8],
    ) -> Result<String, DecodeError> {
        let mut name = scope.to_owned();
        for part in parts(bytes) {
            if let (1, Raw::Bytes(bytes)) = part? {
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(text(bytes)?);
                break;
            }
        }
        self.symbols.insert(name.clone(), (at, bytes));
        Ok(name)
    }

    /// Returns true if there is a message, an enumeration or a service of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.symbols.contains_key(name)
    }

    /// The message that took the place of one of an earlier version.
    #[must_use]
    pub fn successor(&self, earlier: &str) -> Option<&str> {
        let name = self.renamed.get(earlier);
        // That of ext_authz says v3 of itself.
        let name = name.or_else(|| self.renamed.get(earlier.replace(".v2.", ".v3.").as_str()));
        name.map(String::as_str)
    }

    fn read(&self) -> MutexGuard<'_, HashMap<String, Arc<MessageDescriptor<'a>>>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file by its path.
    #[must_use]
    pub fn file_named(&self, path: &str) -> Option<&'a [u8]> {
        let file = self.files.iter().find(|(name, _)| name == path);
        file.map(|(_, bytes)| *bytes)
    }

    /// The file with a message, an enumeration or a service.
    #[must_use]
    pub fn file_with(&self, symbol: &str) -> Option<&'a [u8]> {
        let (at, _) = self.symbols.get(symbol)?;
        self.files.get(*at).map(|(_, bytes)| *bytes)
    }

    /// Returns a message's fields; `None` if the pool lacks it.
    ///
    /// # Errors
    ///
    /// A descriptor that is none.
    pub fn fields(&self, message: &str) -> Result<Option<Arc<MessageDescriptor<'a>>>, DecodeError> {
        if let Some(read) = self.read().get(message) {
            return Ok(Some(Arc::clone(read)));
        }
        let Some((_, bytes)) = self.symbols.get(message) else {
            return Ok(None);
        };
        // Read without the lock: another thread that does the same has the same result.
        let read = Arc::new(MessageDescriptor::read(bytes)?);
        self.read().insert(message.to_owned(), Arc::clone(&read));
        Ok(Some(read))
    }

    /// Returns the name of a number in an enumeration.
    ///
    /// # Errors
    ///
    /// A descriptor that is none.
    pub fn name_of(&self, kinds: &str, wanted: i64) -> Result<Option<&'a str>, DecodeError> {
        let values = self.values(kinds)?;
        let entry = values.into_iter().find(|(_, number)| *number == wanted);
        Ok(entry.map(|(name, _)| name))
    }

    /// Returns the names of an enumeration with their numbers; empty for an unknown enumeration.
    ///
    /// # Errors
    ///
    /// A descriptor that is none.
    pub fn values(&self, kinds: &str) -> Result<Vec<(&'a str, i64)>, DecodeError> {
        let Some((_, bytes)) = self.symbols.get(kinds) else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for part in parts(bytes) {
            let (2, Raw::Bytes(bytes)) = part? else {
                continue;
            };
            let (mut name, mut number) = ("", 0);
            for part in parts(bytes) {
                match part? {
                    (1, Raw::Bytes(bytes)) => name = text(bytes)?,
                    (2, Raw::Varint(value)) => number = value.cast_signed(),
                    _ => {}
                }
            }
            all.push((name, number));
        }
        Ok(all)
    }
}

impl<'a> MessageDescriptor<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut read = Self {
            fields: Vec::new(),
            is_entry: false,
            wanted_choices: Vec::new(),
        };
        let mut choices = 0..;
        for part in parts(bytes) {
            match part? {
                (2, Raw::Bytes(bytes)) => read.fields.push(FieldDescriptor::read(bytes)?),
                (7, Raw::Bytes(options)) => {
                    for option in parts(options) {
                        read.is_entry |= matches!(option?, (7, Raw::Varint(1..)));
                    }
                }
                (8, Raw::Bytes(bytes)) => {
                    let choice = choices.next();
                    read.wanted_choices
                        .extend(choice.filter(|_| is_required_oneof(bytes)));
                }
                _ => {}
            }
        }
        // `field` searches by number.
        read.fields.sort_by_key(|field| field.number);
        Ok(read)
    }

    /// The field of a number.
    #[must_use]
    pub fn field(&self, number: u32) -> Option<&FieldDescriptor<'a>> {
        let place = self
            .fields
            .binary_search_by_key(&number, |field| field.number);
        place.ok().and_then(|at| self.fields.get(at))
    }
}

/// Returns true if Envoy wants one of the fields of a choice.
fn is_required_oneof(bytes: &[u8]) -> bool {
    let options = parts(bytes).flatten().filter_map(|part| match part {
        (2, Raw::Bytes(options)) => Some(options),
        _ => None,
    });
    let mut options = options.flat_map(parts).flatten();
    options.any(|option| matches!(option, (RULES, Raw::Varint(1..))))
}

/// Returns true if a name of JSON means a field: as its file has it, or in lowerCamel.
pub(super) fn is_json_name(field: &str, name: &str) -> bool {
    if field == name {
        return true;
    }
    let mut upper = false;
    let letters = field.chars().filter_map(|letter| {
        let is_upper = std::mem::replace(&mut upper, letter == '_');
        match letter {
            '_' => None,
            letter if is_upper => Some(letter.to_ascii_uppercase()),
            letter => Some(letter),
        }
    });
    letters.eq(name.chars())
}

impl<'a> FieldDescriptor<'a> {
    /// Returns true if a name of JSON means it.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        is_json_name(self.name, name)
    }

    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        const REPEATED: u64 = 3;
        let mut read = Self::default();
        for part in parts(bytes) {
            match part? {
                (1, Raw::Bytes(bytes)) => read.name = text(bytes)?,
                (3, Raw::Varint(value)) => {
                    read.number = u32::try_from(value).map_err(|_| DecodeError::WireType)?;
                }
                (4, Raw::Varint(value)) => read.is_list = value == REPEATED,
                (5, Raw::Varint(value)) => read.kind = value,
                (6, Raw::Bytes(bytes)) => read.of = text(bytes)?.trim_start_matches('.'),
                (8, Raw::Bytes(options)) => read.rules(options)?,
                (9, Raw::Varint(value)) => read.oneof = Some(value),
                _ => {}
            }
        }
        Ok(read)
    }

    fn rules(&mut self, options: &[u8]) -> Result<(), DecodeError> {
        for option in parts(options) {
            let (RULES, Raw::Bytes(rules)) = option? else {
                continue;
            };
            for rules in parts(rules) {
                let (of, Raw::Bytes(rules)) = rules? else {
                    continue;
                };
                for rule in parts(rules) {
                    match (of, rule?) {
                        // Of texts and bytes, lists and maps.
                        (14 | 15, (2, Raw::Varint(min))) | (18 | 19, (1, Raw::Varint(min))) => {
                            self.min = min;
                        }
                        // Of messages: of any, and of some well-known ones.
                        (17, (1, Raw::Varint(1..))) => self.is_unchecked = true,
                        (17, (2, Raw::Varint(1..))) | (20..=22, (1, Raw::Varint(1..))) => {
                            self.is_required = true;
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// The fields of a message, one after the other; an error is the last.
pub fn parts(bytes: &[u8]) -> impl Iterator<Item = Result<(u32, Raw<'_>), DecodeError>> + use<'_> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let next = next_field(&mut rest).transpose();
        if matches!(next, Some(Err(_))) {
            // Behind an error no field's beginning is known.
            rest = &[];
        }
        next
    })
}

/// Bytes as text.
///
/// # Errors
///
/// Text that is not UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Text)
}
