//! Public keys of an issuer of tokens: a JSON Web Key Set (RFC 7517) as proxies take it.
//!
//! Envoy refuses a listener with a set that it can read no key of, and asks each key about a token that names none. So a set has
//! a bound, and holds keys alone that proxies can use.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Serialize;
use serde_json::{Map, Value};

/// Keys of one set that count: the first ones. Chosen: an issuer has a few, and a proxy may try each for one token.
pub const MAX_KEYS: usize = 100;

/// Bytes of the keys of one set: those beyond do not count either. Chosen: a hundred keys of 2,048 bits come to less.
const MAX_BYTES: usize = 64 << 10;

/// Bits of RSA's modulus. The least is chosen for issuers with old keys; the most is a size that BoringSSL handles in a moment.
const RSA_BITS: RangeInclusive<usize> = 1024..=8192;
/// Exponents of RSA that Envoy 1.40 takes, 3 and 65537: it refuses a set of others.
const EXPONENTS: [&[u8]; 2] = [&[3], &[1, 0, 1]];
/// Bytes of a key's id. Chosen: it is a hash or a date.
const MAX_ID_LENGTH: usize = 1024;
/// Bytes of a shared secret. Chosen: HMAC shortens longer ones.
const MAX_SECRET_LENGTH: usize = 1024;

const NO_PADDING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Keys of one issuer, each of which a proxy can use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySet {
    json: Arc<str>,
    keys: usize,
    left_out: usize,
}

/// Why a text is no set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKeySet {
    /// The text is not a JSON object with a list `keys`.
    Malformed,
    /// Proxies can use none of its keys.
    WithoutUsableKey,
}

impl fmt::Display for NoKeySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Malformed => "not a JSON key set with keys",
            Self::WithoutUsableKey => "has no key that proxies can use",
        })
    }
}

impl std::error::Error for NoKeySet {}

/// The part that shared secrets (`kty` oct) have in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharedSecrets {
    Taken,
    /// Readers of a public set could sign with them.
    LeftOut,
}

/// One key, without its private part.
#[derive(Debug, Default, Serialize)]
struct PublicKey<'a> {
    kty: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alg: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    k: Option<String>,
}

/// A point of P-256 whose private half is unknown: its first coordinate is the SHA-256 of the words `no keys of this issuer are
/// known`, its second one the smaller of the two that belong to it.
const NOBODY: [&str; 2] = [
    "j0ZEfn5lue1UpUhvRieipfpR9t6PMGrHWyvz_r93kMc",
    "Mne7SLhwBFxWDCHbiivsuT5QyfRd4g-Ah_U4vriKtuU",
];

impl KeySet {
    /// Reads a set from an object. A shared secret counts, too: its author gives it to proxies.
    ///
    /// # Errors
    ///
    /// It is none, or no key of it can be used.
    pub fn inline(text: &str) -> Result<Self, NoKeySet> {
        Self::read(text, SharedSecrets::Taken)
    }

    /// Reads a set from a public URL. A shared secret in it is not secret, so that it does not count.
    ///
    /// # Errors
    ///
    /// It is none, or no key of it can be used.
    pub fn published(text: &str) -> Result<Self, NoKeySet> {
        Self::read(text, SharedSecrets::LeftOut)
    }

    /// A set by which every token is refused.
    #[must_use]
    pub fn of_nobody() -> Self {
        Self {
            json: written(&[nobody()]),
            keys: 0,
            left_out: 0,
        }
    }

    fn read(text: &str, secrets: SharedSecrets) -> Result<Self, NoKeySet> {
        let set: Value = serde_json::from_str(text).map_err(|_| NoKeySet::Malformed)?;
        Self::of(&set, secrets)
    }

    /// As [`Self::inline`], of a text that was parsed.
    pub(crate) fn inline_of(set: &Value) -> Result<Self, NoKeySet> {
        Self::of(set, SharedSecrets::Taken)
    }

    fn of(set: &Value, secrets: SharedSecrets) -> Result<Self, NoKeySet> {
        let all = set.get("keys").and_then(Value::as_array);
        let all = all.ok_or(NoKeySet::Malformed)?;
        let usable = all.iter().filter_map(Value::as_object).filter_map(usable);
        let taken = usable.filter(|key| secrets == SharedSecrets::Taken || key.k.is_none());
        let mut bytes = 0;
        let fits = |key: &PublicKey<'_>| {
            bytes += key.size();
            bytes <= MAX_BYTES
        };
        let mut keys: Vec<_> = taken.take(MAX_KEYS).take_while(fits).collect();
        if keys.is_empty() {
            return Err(NoKeySet::WithoutUsableKey);
        }
        let (count, left_out) = (keys.len(), all.len() - keys.len());
        if keys.iter().all(|key| key.y.is_some()) {
            // Points are not checked against their curves: with one valid point Envoy passes over the others.
            keys.push(nobody());
        }
        Ok(Self {
            json: written(&keys),
            keys: count,
            left_out,
        })
    }

    /// Returns the set as JSON, as proxies read it.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Keys by which tokens are believed.
    #[must_use]
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Keys that were there and do not count: proxies cannot use them, or there are too many.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }
}

impl PublicKey<'_> {
    /// Bytes that it comes to, roughly.
    fn size(&self) -> usize {
        let texts = [self.kid, self.alg, self.crv, Some(self.kty)];
        let numbers = [&self.n, &self.e, &self.x, &self.y, &self.k];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        let numbers: usize = numbers.into_iter().flatten().map(String::len).sum();
        texts + numbers + 64
    }
}

fn nobody() -> PublicKey<'static> {
    let [x, y] = NOBODY.map(|text| Some(text.to_owned()));
    PublicKey {
        kty: "EC",
        kid: Some("nobody"),
        alg: Some("ES256"),
        crv: Some("P-256"),
        x,
        y,
        ..PublicKey::default()
    }
}

fn written(keys: &[PublicKey<'_>]) -> Arc<str> {
    #[derive(Serialize)]
    struct Set<'a> {
        keys: &'a [PublicKey<'a>],
    }
    // Texts are always JSON.
    let text = serde_json::to_string(&Set { keys });
    text.unwrap_or_default().into()
}

/// Algorithms of RSA, of shared secrets, and of each curve with the bytes of its coordinates (RFC 7518).
const RSA: [&str; 6] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
const SECRET: [&str; 3] = ["HS256", "HS384", "HS512"];
const CURVES: [(&str, &str, usize); 3] = [
    ("P-256", "ES256", 32),
    ("P-384", "ES384", 48),
    ("P-521", "ES512", 66),
];

/// Returns the fields of a key that a proxy needs; `None` for a key that it cannot use.
fn usable(key: &Map<String, Value>) -> Option<PublicKey<'_>> {
    let (kid, alg) = (text(key, "kid")?, text(key, "alg")?);
    if text(key, "use")?.is_some_and(|purpose| purpose != "sig")
        || kid.is_some_and(|kid| kid.len() > MAX_ID_LENGTH)
    {
        return None;
    }
    let is_of = |known: &[&str]| alg.is_none_or(|alg| known.contains(&alg));
    let kty = text(key, "kty")??;
    let common = PublicKey {
        kty,
        kid,
        alg,
        ..PublicKey::default()
    };
    match kty {
        "RSA" if is_of(&RSA) => Some(PublicKey {
            n: Some(field(key, "n", is_modulus)?),
            e: Some(field(key, "e", is_exponent)?),
            ..common
        }),
        "EC" => {
            let crv = text(key, "crv")??;
            let (_, algorithm, size) = CURVES.iter().find(|(name, ..)| *name == crv)?;
            is_of(&[algorithm]).then_some(())?;
            Some(PublicKey {
                crv: Some(crv),
                x: Some(coordinate(key, "x", *size)?),
                y: Some(coordinate(key, "y", *size)?),
                ..common
            })
        }
        "OKP" if is_of(&["EdDSA"]) && text(key, "crv")? == Some("Ed25519") => Some(PublicKey {
            crv: Some("Ed25519"),
            x: Some(field(key, "x", |bytes| bytes.len() == 32)?),
            ..common
        }),
        "oct" if is_of(&SECRET) => Some(PublicKey {
            k: Some(field(key, "k", |bytes| {
                (1..=MAX_SECRET_LENGTH).contains(&bytes.len())
            })?),
            ..common
        }),
        _ => None,
    }
}

/// Returns a text of a key, `Some(None)` if it is missing. A value that is no text makes Envoy pass over the key.
fn text<'a>(key: &'a Map<String, Value>, name: &str) -> Option<Option<&'a str>> {
    match key.get(name) {
        None => Some(None),
        Some(value) => value.as_str().map(Some),
    }
}

fn bytes(key: &Map<String, Value>, name: &str) -> Option<Vec<u8>> {
    let text = key.get(name)?.as_str()?;
    NO_PADDING.decode(text).ok()
}

/// Returns a field of bytes, if they meet the condition, as proxies read it: in base64 without padding.
fn field(
    key: &Map<String, Value>,
    name: &str,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Option<String> {
    let bytes = bytes(key, name)?;
    is_wanted(&bytes).then(|| NO_PADDING.encode(&bytes))
}

/// Returns a coordinate of a curve whose numbers have so many bytes. Envoy reads it as a number of any length: RFC 7518 wants
/// all bytes, and issuers leave out zeros that a number begins with, or add one as for a sign.
fn coordinate(key: &Map<String, Value>, name: &str, size: usize) -> Option<String> {
    let bytes = bytes(key, name)?;
    let (zeros, number) = bytes.split_at_checked(bytes.len().saturating_sub(size))?;
    let is_one = !number.is_empty() && zeros.iter().all(|byte| *byte == 0);
    is_one.then(|| NO_PADDING.encode(number))
}

fn is_modulus(bytes: &[u8]) -> bool {
    // A product of two odd primes is odd.
    let is_odd = bytes.last().is_some_and(|last| last % 2 == 1);
    is_odd && RSA_BITS.contains(&bit_length(bytes))
}

fn is_exponent(bytes: &[u8]) -> bool {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    EXPONENTS.contains(&bytes.get(zeros..).unwrap_or_default())
}

fn bit_length(bytes: &[u8]) -> usize {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let Some(first) = bytes.get(zeros) else {
        return 0;
    };
    let below = (bytes.len() - zeros - 1) * 8;
    below + 8 - usize::try_from(first.leading_zeros()).unwrap_or(8)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An odd number of so many bits.
    fn odd(bits: usize) -> String {
        let mut bytes = vec![0; bits.div_ceil(8)];
        bytes[0] |= 1 << ((bits - 1) % 8);
        *bytes.last_mut().unwrap() |= 1;
        NO_PADDING.encode(bytes)
    }

    fn set(keys: &[Value]) -> String {
        json!({"keys": keys}).to_string()
    }

    fn is_usable(key: Value) -> bool {
        KeySet::inline(&set(&[key])).is_ok()
    }

    #[test]
    fn usable_keys_stay_without_what_is_private_of_them() {
        let (n, short) = (odd(2048), "AQ".repeat(21) + "A");
        let rsa = json!({"kty": "RSA", "kid": "a", "alg": "RS256", "use": "sig", "n": n, "e": "AQAB", "d": "hush", "x5c": ["hush"]});
        let curve = json!({"kty": "EC", "crv": "P-256", "x": short, "y": short, "d": "hush"});
        let edwards = json!({"kty": "OKP", "crv": "Ed25519", "x": short});
        let secret = json!({"kty": "oct", "alg": "HS256", "k": "aHVzaA"});
        let other = json!({"kty": "EC", "crv": "secp256k1", "x": short, "y": short});
        let all = set(&[rsa.clone(), curve.clone(), edwards, other, secret]);
        let inline = KeySet::inline(&all).unwrap();
        assert_eq!((inline.keys(), inline.left_out()), (4, 1));
        assert_eq!(
            inline.json(),
            format!(
                r#"{{"keys":[{{"kty":"RSA","kid":"a","alg":"RS256","n":"{n}","e":"AQAB"}},{{"kty":"EC","crv":"P-256","x":"{short}","y":"{short}"}},{{"kty":"OKP","crv":"Ed25519","x":"{short}"}},{{"kty":"oct","alg":"HS256","k":"aHVzaA"}}]}}"#
            )
        );
        // Whoever may fetch a secret may sign with it.
        let published = KeySet::published(&all).unwrap();
        assert_eq!((published.keys(), published.left_out()), (3, 2));
        assert!(!published.json().contains("aHVzaA"));
        // Points alone have one beside them that is on its curve.
        let points = KeySet::published(&set(&[curve])).unwrap();
        assert_eq!(points.keys(), 1);
        assert!(points.json().contains(NOBODY[0]));
        assert_eq!(KeySet::published(&set(&[rsa])).unwrap().keys(), 1);
    }

    #[test]
    fn keys_that_proxies_cannot_use_do_not_count() {
        let point = NO_PADDING.encode([7; 32]);
        let large = NO_PADDING.encode([7; 49]);
        for (key, usable) in [
            (json!({"kty": "RSA", "n": odd(1024), "e": "Aw"}), true),
            (json!({"kty": "RSA", "n": odd(8192), "e": "AAEAAQ"}), true),
            (json!({"kty": "RSA", "n": odd(1023), "e": "AQAB"}), false),
            (json!({"kty": "RSA", "n": odd(8193), "e": "AQAB"}), false),
            (json!({"kty": "RSA", "n": odd(2048), "e": "AQ"}), false),
            (json!({"kty": "RSA", "n": odd(2048), "e": "EQ"}), false),
            (json!({"kty": "RSA", "n": odd(2048), "e": "Ag"}), false),
            (json!({"kty": "RSA", "n": odd(2048)}), false),
            (json!({"kty": "RSA", "n": "!", "e": "AQAB"}), false),
            (
                json!({"kty": "RSA", "n": odd(2048), "e": "AQAB", "use": "enc"}),
                false,
            ),
            (
                json!({"kty": "RSA", "n": odd(2048), "e": "AQAB", "alg": "RSA-OAEP"}),
                false,
            ),
            (
                json!({"kty": "RSA", "n": odd(2048), "e": "AQAB", "kid": 5}),
                false,
            ),
            (
                json!({"kty": "RSA", "n": odd(2048), "e": "AQAB", "kid": "a".repeat(1025)}),
                false,
            ),
            (
                json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "x": point, "y": point}),
                true,
            ),
            (
                json!({"kty": "EC", "crv": "P-384", "alg": "ES256", "x": point, "y": point}),
                false,
            ),
            (
                json!({"kty": "EC", "crv": "P-384", "x": large, "y": point}),
                false,
            ),
            (json!({"kty": "EC", "crv": "P-256", "x": point}), false),
            (json!({"kty": "OKP", "crv": "Ed25519", "x": "AQAB"}), false),
            (json!({"kty": "OKP", "crv": "X25519", "x": point}), false),
            (json!({"kty": "oct", "k": ""}), false),
            (json!({"kty": "oct", "alg": "RS256", "k": "aHVzaA"}), false),
            (json!({"n": odd(2048), "e": "AQAB"}), false),
            (json!("a"), false),
        ] {
            assert_eq!(is_usable(key.clone()), usable, "{key}");
        }
        for text in ["", "[]", "{}", "5", "{\"keys\": {}}", "{\"keys\": ["] {
            assert_eq!(KeySet::inline(text), Err(NoKeySet::Malformed), "{text}");
        }
        assert_eq!(KeySet::inline(&set(&[])), Err(NoKeySet::WithoutUsableKey));
        // As deep as somebody likes.
        let deep = "[".repeat(100_000);
        assert_eq!(KeySet::inline(&deep), Err(NoKeySet::Malformed));
    }

    /// As Envoy takes them: those that are short, and those with zeros before them, which were left out.
    #[test]
    fn coordinates_are_numbers_of_any_length() {
        let coordinate = |bytes: &[u8]| {
            let text = NO_PADDING.encode(bytes);
            let key = json!({"kty": "EC", "crv": "P-256", "x": text, "y": text});
            let set = KeySet::inline(&set(&[key])).ok()?;
            let set: Value = serde_json::from_str(set.json()).unwrap();
            Some(
                NO_PADDING
                    .decode(set["keys"][0]["x"].as_str().unwrap())
                    .unwrap(),
            )
        };
        let (short, whole) = ([7; 31], [7; 32]);
        assert_eq!(coordinate(&short), Some(short.to_vec()));
        assert_eq!(coordinate(&whole), Some(whole.to_vec()));
        assert_eq!(
            coordinate(&[&[0], &whole[..]].concat()),
            Some(whole.to_vec())
        );
        assert_eq!(
            coordinate(&[&[0; 40], &whole[..]].concat()),
            Some(whole.to_vec())
        );
        assert_eq!(coordinate(&[&[1], &whole[..]].concat()), None);
        assert_eq!(coordinate(&[]), None);
    }

    #[test]
    fn a_set_has_a_bound() {
        let keys: Vec<_> = (0..10_000)
            .map(|at| json!({"kty": "RSA", "kid": at.to_string(), "n": odd(1024), "e": "AQAB"}))
            .collect();
        let key_set = KeySet::published(&set(&keys)).unwrap();
        assert_eq!((key_set.keys(), key_set.left_out()), (MAX_KEYS, 9_900));
        assert!(key_set.json().contains("\"99\"") && !key_set.json().contains("\"100\""));
        let large = json!({"kty": "RSA", "kid": "a".repeat(1000), "n": odd(8192), "e": "AQAB"});
        let key_set = KeySet::published(&set(&vec![large; 100])).unwrap();
        assert_eq!(key_set.keys(), 26);
        assert!(key_set.json().len() < 70_000);
        let nobody = KeySet::of_nobody();
        assert_eq!(nobody.keys(), 0);
        assert!(KeySet::published(nobody.json()).is_ok());
    }
}
