//! Tokens as headers.

use http::HeaderValue;

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
