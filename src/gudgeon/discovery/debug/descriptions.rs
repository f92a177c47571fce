//! Messages as their own descriptions tell of them: which there are, and what fields each has.
//!
//! Only names are looked up when the descriptions are taken; a message's fields are read when it is met.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use api::wire::{Malformed, Raw, next_field};

/// Envoy's messages, as far as resources may have them, and all services that are served; `build/descriptors` writes them.
pub(in crate::discovery) const ENVOY: &[u8] = include_bytes!("descriptors.bin");

/// Messages within messages: no file has so many.
const DEEPEST: usize = 32;

/// A set of files.
pub(in crate::discovery) struct Descriptions<'a> {
    files: Vec<(String, &'a [u8])>,
    /// By their full names: in which file, and what it says of them.
    things: HashMap<String, (usize, &'a [u8])>,
    read: RefCell<HashMap<String, Rc<Fields<'a>>>>,
}

/// What a message is made of, by the numbers.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) all: Vec<Field<'a>>,
    /// Entries of a map.
    pub(super) is_entry: bool,
}

/// A field of a message. Numbers are the descriptions' own.
#[derive(Clone, Debug, Default)]
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) number: u32,
    pub(super) is_list: bool,
    pub(super) kind: u64,
    /// The message or enumeration that it holds.
    pub(super) of: &'a str,
    /// The group of which one field can be set.
    pub(super) oneof: Option<u64>,
}

impl<'a> Descriptions<'a> {
    /// Takes a `FileDescriptorSet`.
    pub(in crate::discovery) fn new(mut set: &'a [u8]) -> Result<Self, Malformed> {
        let mut all = Self {
            files: Vec::new(),
            things: HashMap::new(),
            read: RefCell::default(),
        };
        while let Some((number, raw)) = next_field(&mut set)? {
            if let (1, Raw::Bytes(file)) = (number, raw) {
                all.file(file)?;
            }
        }
        Ok(all)
    }

    fn file(&mut self, file: &'a [u8]) -> Result<(), Malformed> {
        let (mut name, mut package) = ("", "");
        for part in parts(file) {
            match part? {
                (1, Raw::Bytes(bytes)) => name = text(bytes)?,
                (2, Raw::Bytes(bytes)) => package = text(bytes)?,
                _ => {}
            }
        }
        let at = self.files.len();
        self.files.push((name.to_owned(), file));
        for part in parts(file) {
            match part? {
                (4, Raw::Bytes(bytes)) => self.message(at, package, bytes, 0)?,
                (5 | 6, Raw::Bytes(bytes)) => drop(self.thing(at, package, bytes)?),
                _ => {}
            }
        }
        Ok(())
    }

    fn message(
        &mut self,
        at: usize,
        scope: &str,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<(), Malformed> {
        if depth > DEEPEST {
            return Err(Malformed::Deep);
        }
        let name = self.thing(at, scope, bytes)?;
        for part in parts(bytes) {
            match part? {
                (3, Raw::Bytes(bytes)) => self.message(at, &name, bytes, depth + 1)?,
                (4, Raw::Bytes(bytes)) => drop(self.thing(at, &name, bytes)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whatever has a name, which all have first.
    fn thing(&mut self, at: usize, scope: &str, bytes: &'a [u8]) -> Result<String, Malformed> {
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
        self.things.insert(name.clone(), (at, bytes));
        Ok(name)
    }

    /// A file by its path.
    pub(in crate::discovery) fn file_named(&self, path: &str) -> Option<&'a [u8]> {
        let found = self.files.iter().find(|(name, _)| name == path);
        found.map(|(_, bytes)| *bytes)
    }

    /// The file with a message, an enumeration or a service.
    pub(in crate::discovery) fn file_with(&self, symbol: &str) -> Option<&'a [u8]> {
        let (at, _) = self.things.get(symbol)?;
        self.files.get(*at).map(|(_, bytes)| *bytes)
    }

    /// What a message is made of; `None` where nothing describes it.
    pub(super) fn fields(&self, message: &str) -> Result<Option<Rc<Fields<'a>>>, Malformed> {
        if let Some(read) = self.read.borrow().get(message) {
            return Ok(Some(Rc::clone(read)));
        }
        let Some((_, bytes)) = self.things.get(message) else {
            return Ok(None);
        };
        let read = Rc::new(Fields::read(bytes)?);
        self.read
            .borrow_mut()
            .insert(message.to_owned(), Rc::clone(&read));
        Ok(Some(read))
    }

    /// What an enumeration calls a number.
    pub(super) fn name_of(&self, kinds: &str, wanted: i64) -> Result<Option<&'a str>, Malformed> {
        let Some((_, bytes)) = self.things.get(kinds) else {
            return Ok(None);
        };
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
            if number == wanted {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

impl<'a> Fields<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut read = Self {
            all: Vec::new(),
            is_entry: false,
        };
        for part in parts(bytes) {
            match part? {
                (2, Raw::Bytes(bytes)) => read.all.push(Field::read(bytes)?),
                (7, Raw::Bytes(options)) => {
                    for option in parts(options) {
                        read.is_entry |= matches!(option?, (7, Raw::Varint(1..)));
                    }
                }
                _ => {}
            }
        }
        read.all.sort_by_key(|field| field.number);
        Ok(read)
    }

    pub(super) fn field(&self, number: u32) -> Option<&Field<'a>> {
        let found = self.all.binary_search_by_key(&number, |field| field.number);
        found.ok().and_then(|at| self.all.get(at))
    }
}

impl<'a> Field<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        const REPEATED: u64 = 3;
        let mut read = Self::default();
        for part in parts(bytes) {
            match part? {
                (1, Raw::Bytes(bytes)) => read.name = text(bytes)?,
                (3, Raw::Varint(value)) => {
                    read.number = u32::try_from(value).map_err(|_| Malformed::Form)?;
                }
                (4, Raw::Varint(value)) => read.is_list = value == REPEATED,
                (5, Raw::Varint(value)) => read.kind = value,
                (6, Raw::Bytes(bytes)) => read.of = text(bytes)?.trim_start_matches('.'),
                (9, Raw::Varint(value)) => read.oneof = Some(value),
                _ => {}
            }
        }
        Ok(read)
    }
}

/// The fields of a message, one after the other; an error is the last.
pub(super) fn parts(
    bytes: &[u8],
) -> impl Iterator<Item = Result<(u32, Raw<'_>), Malformed>> + use<'_> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let next = next_field(&mut rest).transpose();
        if matches!(next, Some(Err(_))) {
            rest = &[];
        }
        next
    })
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::Text)
}
