//! Issuers of tokens: keys, and what is signed with them (RFC 7515 to 7518).

use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;
use serde_json::{Value, json};

pub struct Signer {
    id: String,
    algorithm: &'static str,
    scheme: SignatureScheme,
    key: Arc<dyn SigningKey>,
    /// Its public half.
    pub jwk: Value,
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// A set of keys, as JSON.
pub fn set(signers: &[&Signer]) -> String {
    let keys: Vec<_> = signers.iter().map(|signer| signer.jwk.clone()).collect();
    json!({"keys": keys}).to_string()
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in");
    std::fs::write(&file, input).unwrap();
    let made = Command::new("openssl")
        .args(arguments)
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{stderr}");
    made.stdout
}

impl Signer {
    /// RS256, with 2048 bits.
    pub fn rsa(id: &str) -> Self {
        let arguments = [
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ];
        let pem = openssl(&arguments, b"");
        let der = openssl(&["pkcs8", "-topk8", "-nocrypt", "-outform", "DER"], &pem);
        let modulus = openssl(&["rsa", "-noout", "-modulus"], &pem);
        let modulus = String::from_utf8(modulus).unwrap();
        let digits = modulus.trim().strip_prefix("Modulus=").unwrap();
        let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
        let bytes: Vec<_> = pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect();
        let n = URL_SAFE_NO_PAD.encode(bytes);
        let jwk =
            json!({"kty": "RSA", "kid": id, "alg": "RS256", "use": "sig", "n": n, "e": "AQAB"});
        Self::new(id, "RS256", SignatureScheme::RSA_PKCS1_SHA256, der, jwk)
    }

    /// ES256.
    pub fn curve(id: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let [4, point @ ..] = key.der_bytes() else {
            panic!("a point with both coordinates");
        };
        let [x, y] = [&point[..32], &point[32..]].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        let jwk = json!({"kty": "EC", "kid": id, "alg": "ES256", "crv": "P-256", "x": x, "y": y});
        let scheme = SignatureScheme::ECDSA_NISTP256_SHA256;
        Self::new(id, "ES256", scheme, key.serialize_der(), jwk)
    }

    fn new(
        id: &str,
        algorithm: &'static str,
        scheme: SignatureScheme,
        der: Vec<u8>,
        jwk: Value,
    ) -> Self {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der));
        Self {
            id: id.to_owned(),
            algorithm,
            scheme,
            key: any_supported_type(&der).unwrap(),
            jwk,
        }
    }

    pub fn token(&self, claims: &Value) -> String {
        let head = json!({"alg": self.algorithm, "kid": self.id, "typ": "JWT"});
        let [head, claims] = [&head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{head}.{claims}");
        let signer = self.key.choose_scheme(&[self.scheme]).unwrap();
        let mut signature = signer.sign(signed.as_bytes()).unwrap();
        if self.algorithm == "ES256" {
            signature = two_numbers(&signature);
        }
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A signature of a curve as tokens have it: both numbers at full length.
fn two_numbers(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut all = Vec::new();
    for _ in 0..2 {
        let (number, after) = rest[2..].split_at(usize::from(rest[1]));
        let digits = number.strip_prefix(&[0]).unwrap_or(number);
        all.extend(vec![0; 32 - digits.len()]);
        all.extend(digits);
        rest = after;
    }
    all
}
