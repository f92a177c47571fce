//! The properties of certificates and keys, in files and in Secrets, whatever their bytes are. The fuzzer asks for them, and a test
//! with its examples does.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sources::contribution::credential_of;

use super::pair::{Pair, certificates, is_bundle, names_of, uris_of};

/// Stands between the chain, the key and the root of an input.
const BETWEEN: &[u8] = b"====\n";
/// DER begins with it: a part that does is wrapped into PEM, which a fuzzer would break with every byte.
const SEQUENCE: u8 = 0x30;

pub(crate) fn check(bytes: &[u8]) {
    let (chain, rest) = part(bytes);
    let (key, root) = part(rest);
    let (chain, root) = (pem("CERTIFICATE", chain), pem("CERTIFICATE", root));
    let key = pem("PRIVATE KEY", key);
    let pair = of_files(&chain, &key);
    of_secret(&chain, &key, &root, pair.as_ref());
    if let Ok(text) = std::str::from_utf8(bytes) {
        is_told_in_short(credential_of(text).err(), &key);
    }
}

fn part(bytes: &[u8]) -> (&[u8], &[u8]) {
    let at = bytes
        .windows(BETWEEN.len())
        .position(|window| window == BETWEEN);
    match at {
        Some(at) => {
            let (part, rest) = bytes.split_at(at);
            (part, rest.strip_prefix(BETWEEN).unwrap_or_default())
        }
        None => (bytes, &[]),
    }
}

fn pem(label: &str, part: &[u8]) -> Vec<u8> {
    if part.first() != Some(&SEQUENCE) {
        return part.to_vec();
    }
    let text = STANDARD.encode(part);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n").into_bytes()
}

/// A pair is one of certificates that can be read, and is described by its leaf.
fn of_files(chain: &[u8], key: &[u8]) -> Option<Pair> {
    let read = certificates(chain);
    if let Ok(read) = &read {
        assert!(!read.is_empty());
        for one in read {
            let names = names_of(one);
            assert!(uris_of(one).iter().all(|uri| names.contains(uri)));
        }
    }
    let bundle = is_bundle(chain);
    assert!(read.is_ok() || bundle.is_err());
    is_told_in_short(bundle.err(), key);
    match Pair::parse(chain, key) {
        Ok(pair) => {
            let leaf = read.ok().and_then(|read| read.into_iter().next());
            assert_eq!(leaf.map(|leaf| names_of(&leaf)), Some(pair.names.clone()));
            Some(pair)
        }
        Err(error) => {
            let error = error.of_files(Path::new("chain"), Path::new("key"));
            is_told_in_short(Some(error), key);
            None
        }
    }
}

/// A Secret means the same as text and as base64, is not printed, and holds a pair only if files of the same bytes do.
fn of_secret(chain: &[u8], key: &[u8], root: &[u8], pair: Option<&Pair>) {
    let encoded = |bytes: &[u8]| STANDARD.encode(bytes);
    let data = json!({"tls.crt": encoded(chain), "tls.key": encoded(key), "ca.crt": encoded(root)});
    let found = credential_of(&json!({ "data": data }).to_string());
    let texts = [chain, key, root].map(std::str::from_utf8);
    if let [Ok(chain), Ok(key), Ok(root)] = texts {
        let data = json!({"tls.crt": chain, "tls.key": key, "ca.crt": root});
        assert_eq!(
            found,
            credential_of(&json!({ "stringData": data }).to_string())
        );
    }
    if let Ok(Some(found)) = &found {
        assert!(format!("{found:?}").len() < 300);
        assert!(found.pair.is_none() || pair.is_some());
    }
    is_told_in_short(found.err(), key);
}

/// In one line, which quotes no key, be it as a list of bytes.
fn is_told_in_short(error: Option<String>, key: &[u8]) {
    let Some(words) = error else {
        return;
    };
    assert!(!words.is_empty() && words.len() < 400, "{words}");
    assert!(!words.contains(char::is_control), "{words:?}");
    let parts = key
        .chunks_exact(16)
        .filter_map(|part| std::str::from_utf8(part).ok());
    assert!(
        !parts.into_iter().any(|part| words.contains(part)),
        "{words}"
    );
    let numbers = words.split(", ").filter(|part| part.parse::<u8>().is_ok());
    assert!(numbers.count() < 4, "{words}");
}
