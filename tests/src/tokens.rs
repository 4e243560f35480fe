//! Signed tokens (JWT) and key sets (JWKS), as an issuer makes them.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// A key pair of an issuer.
#[derive(Debug)]
pub struct Signer {
    id: String,
    pair: EcdsaKeyPair,
}

impl Signer {
    /// A new key pair.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn new(id: &str) -> anyhow::Result<Self> {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random);
        let document = document.map_err(|error| anyhow!("make a key: {error}"))?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random);
        Ok(Self {
            id: id.to_owned(),
            pair: pair.map_err(|error| anyhow!("read a key: {error}"))?,
        })
    }

    /// Its public key in a JWKS.
    pub fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": base64(x), "y": base64(y)})
    }

    /// A token of a subject for `oxtsdb`, valid for an hour, with changed claims.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn token(&self, subject: &str, changes: &Value) -> anyhow::Result<String> {
        let mut claims = json!({"sub": subject, "aud": "oxtsdb", "exp": now() + 3600});
        for (name, value) in changes.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": self.id});
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.map_err(|error| anyhow!("sign a token: {error}"))?;
        Ok(format!("{message}.{}", base64(signature)))
    }
}

/// A JWKS.
pub fn jwks(signers: &[&Signer]) -> String {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

/// Replaces a file as a whole, as secrets are.
///
/// # Errors
///
/// If it cannot be written.
pub fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(new, path)
}

/// Seconds since the epoch.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
