//! The bounds of a list that comes in pages: a server may send pages without an end.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::Cause;

/// The deadline of a list with all pages: 150,000 Pods in pages of 100, of 300 ms each.
const LIST: Duration = Duration::from_secs(450);
/// Pages of one list that are not half full. A server may leave out objects that a selector does not select.
pub(crate) const SHORT_PAGES: u32 = 100;

/// The progress of a list.
#[derive(Debug)]
pub(crate) struct PageProgress {
    begun: Instant,
    short: u32,
    token: Option<String>,
}

impl PageProgress {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            short: 0,
            token: None,
        }
    }

    /// The `continue` token of the next page.
    pub(crate) fn token(&self) -> Option<String> {
        self.token.clone()
    }

    /// Goes on after a page of `count` objects, of a request for `limit`.
    ///
    /// # Errors
    /// The list has no end.
    pub(crate) fn go_on(&mut self, count: usize, limit: u32, next: String) -> Result<(), Cause> {
        // Half of a limit of 1 is 0: an empty page would not count as short.
        self.short += u32::from(count < limit as usize / 2 || count == 0);
        let cause = if self.begun.elapsed() > LIST {
            format!("a list has no end within {} s", LIST.as_secs())
        } else if self.short > SHORT_PAGES {
            "a list has no end, in pages that are nearly empty".to_owned()
        } else if self.token.as_ref() == Some(&next) {
            "a list goes on where it was".to_owned()
        } else {
            self.token = Some(next);
            return Ok(());
        };
        Err(Cause::Malformed(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_without_an_end_is_left() {
        let go_on = |progress: &mut PageProgress, count, next: &str| {
            let went = progress.go_on(count, 100, next.to_owned());
            went.err().map(|cause| cause.to_string())
        };
        let mut progress = PageProgress::new();
        assert_eq!(progress.token(), None);
        for at in 0..1_000 {
            assert_eq!(go_on(&mut progress, 50, &at.to_string()), None);
        }
        for at in 0..SHORT_PAGES {
            assert_eq!(go_on(&mut progress, 49, &format!("s{at}")), None);
        }
        let why = go_on(&mut progress, 0, "x").unwrap();
        assert!(why.ends_with("in pages that are nearly empty"), "{why}");
        let mut progress = PageProgress::new();
        assert_eq!(go_on(&mut progress, 100, "a"), None);
        assert_eq!(progress.token().as_deref(), Some("a"));
        let why = go_on(&mut progress, 100, "a").unwrap();
        assert!(why.ends_with("a list goes on where it was"), "{why}");
        tokio::time::advance(LIST + Duration::from_secs(1)).await;
        let why = go_on(&mut progress, 100, "b").unwrap();
        assert!(why.ends_with("a list has no end within 450 s"), "{why}");
    }
}
