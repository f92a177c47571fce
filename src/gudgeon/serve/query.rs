//! The query of a URL.

/// The parameters of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The value of the first pair of that name.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let pairs = self.0.split('&');
        pairs
            .filter_map(|pair| pair.split_once('=').or(Some((pair, ""))))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| decoded(value))
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| matches!(value.as_str(), "1" | "true" | "yes"))
    }
}

/// Decodes a value, in which a space may be a plus.
fn decoded(text: &str) -> String {
    let bytes = percent_decoded(&text.replace('+', " "));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Decodes percent-encoding; a malformed escape stays.
pub(crate) fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .filter(|hex| first == b'%' && hex.iter().all(u8::is_ascii_hexdigit))
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_by_name() {
        let query = Query("proxyID=b-1.demo&push=1&brief&x=a%7Eb%zz+c%2B&y=%+1&push=0");
        assert_eq!(query.get("proxyID").as_deref(), Some("b-1.demo"));
        assert_eq!(query.get("x").as_deref(), Some("a~b%zz c+"));
        assert_eq!(query.get("y").as_deref(), Some("% 1"));
        assert!(query.is_set("push") && !query.is_set("brief") && !query.is_set("none"));
    }
}
