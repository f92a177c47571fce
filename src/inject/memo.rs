//! What texts were read as. The replicas of one workload make a template print the same text, since what differs between them
//! (name, address) is asked for by the container itself; so the last few texts are not read again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Texts that are remembered, the one used last first.
const KEPT: usize = 8;
/// Longer ones are not: stock templates print a tenth of it.
const LONGEST: usize = 64 << 10;

pub(crate) struct Memo<T>(Mutex<VecDeque<(String, T)>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

impl<T> fmt::Debug for Memo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

impl<T: Clone> Memo<T> {
    /// What `text` was read as, or is by `read`; what cannot be read is not remembered.
    pub(crate) fn get<E>(
        &self,
        text: String,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(known) = self.known(&text) {
            return Ok(known);
        }
        let made = read(&text)?;
        if text.len() <= LONGEST {
            let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            texts.truncate(KEPT - 1);
            texts.push_front((text, made.clone()));
        }
        Ok(made)
    }

    fn known(&self, text: &str) -> Option<T> {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = texts.iter().position(|(known, _)| known == text)?;
        let found = texts.remove(place)?;
        let made = found.1.clone();
        texts.push_front(found);
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_texts_are_known() {
        let memo = Memo::default();
        let mut reads = 0;
        let mut get = |text: String| {
            let got: Result<usize, ()> = memo.get(text, |text| {
                reads += 1;
                if text == "bad" {
                    Err(())
                } else {
                    Ok(text.len())
                }
            });
            (got, reads)
        };
        assert_eq!(get("a".to_owned()), (Ok(1), 1));
        for length in 2..=KEPT {
            assert_eq!(get("b".repeat(length)), (Ok(length), length));
            assert_eq!(get("a".to_owned()), (Ok(1), length));
        }
        // One more, and the one that was used longest ago is forgotten.
        assert_eq!(get("c".to_owned()), (Ok(1), KEPT + 1));
        assert_eq!(get("a".to_owned()), (Ok(1), KEPT + 1));
        assert_eq!(get("bb".to_owned()), (Ok(2), KEPT + 2));
        for more in 3..5 {
            assert_eq!(get("bad".to_owned()), (Err(()), KEPT + more));
        }
        let long = "d".repeat(LONGEST + 1);
        for more in 5..7 {
            assert_eq!(get(long.clone()), (Ok(LONGEST + 1), KEPT + more));
        }
    }
}
