//! The file of a token, which another program writes anew before it expires.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use kube::config::AuthInfo;
use tokio::time::Instant;

use super::CannotConnect;
use crate::disk::Disk;

/// The time for which a token is used before its file is read again, as in client-go.
const FRESH: Duration = Duration::from_secs(60);
/// Bytes of a token at most. Chosen: servers take heads of less than 64 KiB.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Returns the value of the header `Authorization`.
///
/// # Errors
/// The token has characters that no header can have.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| "the token has characters that no header can have")?;
    value.set_sensitive(true);
    Ok(value)
}

/// A token out of a file. kube reads it with the line's end, which no server accepts.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    disk: Mutex<Disk>,
    last: Mutex<(HeaderValue, Instant)>,
}

impl TokenFile {
    /// Takes the token file of a user, if kube would take no other credentials of them. A program would be less than it.
    pub(super) fn take(user: &mut AuthInfo) -> Option<PathBuf> {
        let has_password = user.username.is_some() && user.password.is_some();
        if has_password || user.auth_provider.is_some() || user.token.is_some() {
            return None;
        }
        let file = user.token_file.take()?;
        user.exec = None;
        Some(file.into())
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or has no token.
    pub(super) fn open(path: PathBuf) -> Result<Self, CannotConnect> {
        let mut disk = Disk::default();
        let first = read(&mut disk, &path).map_err(CannotConnect)?;
        disk.rest();
        Ok(Self {
            path,
            disk: Mutex::new(disk),
            last: Mutex::new((first, Instant::now())),
        })
    }

    /// Returns the header with the token; the last one if the file has none any more.
    pub(super) async fn header(self: &Arc<Self>) -> HeaderValue {
        if let Some(header) = self.fresh() {
            return header;
        }
        let this = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let mut disk = this.disk.lock().unwrap_or_else(PoisonError::into_inner);
            disk.begin();
            let read = read(&mut disk, &this.path);
            disk.rest();
            read
        });
        let read = read.await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(Ok(header)) => last.0 = header,
            Ok(Err(why)) => tracing::warn!("{why}: the last token is used"),
            // The panic has its own line.
            Err(_) => {}
        }
        last.0.clone()
    }

    /// Returns the last header; `None` if the caller is the one to read the file again. Others do not wait for it.
    fn fresh(&self) -> Option<HeaderValue> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.1.elapsed() < FRESH {
            return Some(last.0.clone());
        }
        last.1 = Instant::now();
        None
    }
}

fn read(disk: &mut Disk, path: &Path) -> Result<HeaderValue, String> {
    let because = |why: &str| format!("cannot read the token file {}: {why}", path.display());
    let (bytes, _) = disk
        .read(path, MAX_TOKEN_BYTES)
        .map_err(|error| because(&error.to_string()))?;
    if bytes.len() > MAX_TOKEN_BYTES {
        return Err(because(&format!(
            "it is larger than {MAX_TOKEN_BYTES} bytes"
        )));
    }
    let text = str::from_utf8(&bytes).map_err(|_| because("it is no text"))?;
    match text.trim() {
        "" => Err(because("it is empty")),
        token => bearer(token).map_err(|why| because(&why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_read_again_each_minute_without_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "a\n").unwrap();
        let file = Arc::new(TokenFile::open(path.clone()).unwrap());
        assert_eq!(file.header().await, "Bearer a");
        std::fs::write(&path, " b\r\n").unwrap();
        assert_eq!(file.header().await, "Bearer a");
        tokio::time::advance(FRESH).await;
        assert_eq!(file.header().await, "Bearer b");
        assert!(file.header().await.is_sensitive());
        // What is no token leaves the last one.
        for broken in ["\n", "c\nd\n"] {
            std::fs::write(&path, broken).unwrap();
            tokio::time::advance(FRESH).await;
            assert_eq!(file.header().await, "Bearer b");
        }
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!(file.header().await, "Bearer b");
        std::fs::write(&path, "e").unwrap();
        assert_eq!(file.header().await, "Bearer b");
        tokio::time::advance(FRESH).await;
        assert_eq!(file.header().await, "Bearer e");
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, why) in [
            (&b""[..], "it is empty"),
            (b"\xff", "it is no text"),
            (b"a\nb", "the token has characters that no header can have"),
            (
                &[b'a'; MAX_TOKEN_BYTES + 1],
                "it is larger than 65536 bytes",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = TokenFile::open(path.clone()).unwrap_err().to_string();
            let message = format!("cannot read the token file {}: {why}", path.display());
            assert_eq!(error, message);
        }
    }
}
