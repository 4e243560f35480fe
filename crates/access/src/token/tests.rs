use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::*;

/// A key pair that signs tokens.
struct Signer {
    id: &'static str,
    pair: EcdsaKeyPair,
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": base64(&point[1..33]), "y": base64(&point[33..])})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", base64(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "ES256", "kid": self.id}), claims)
    }
}

fn options(jwks: &str) -> TokenOptions {
    TokenOptions {
        jwks: jwks.to_owned(),
        ca: None,
        refresh: Duration::from_secs(300),
        audiences: vec!["oxtsdb".to_owned()],
        issuer: Some("https://idp".to_owned()),
        leeway: Duration::from_secs(30),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Claims that are accepted, with changes.
fn claims(changes: &Value) -> Value {
    let mut claims = json!({"sub": "alice", "aud": "oxtsdb", "iss": "https://idp", "exp": now() + 60});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn write_jwks(path: &std::path::Path, keys: &[Value]) {
    std::fs::write(path, json!({ "keys": keys }).to_string()).unwrap();
}

fn names(tokens: &Tokens, token: &str) -> Result<Vec<String>, String> {
    let names = tokens.names(format!("Bearer {token}").as_bytes())?;
    Ok(names.into_iter().map(String::from).collect())
}

fn tokens_of(signers: &[&Signer]) -> Tokens {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    write_jwks(
        &path,
        &signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>(),
    );
    let options = options(path.to_str().unwrap());
    let (_, keys) = KeySource::open(&options).unwrap();
    Tokens::new(options, keys)
}

#[test]
fn a_valid_token_names_its_subject_and_groups() {
    let signer = Signer::new("a");
    let tokens = tokens_of(&[&signer]);
    let token = signer.token(&claims(&json!({"groups": ["ops", "dev"]})));
    let expected = Ok(vec!["sub:alice".into(), "group:ops".into(), "group:dev".into()]);
    assert_eq!(names(&tokens, &token), expected);
    assert_eq!(
        names(&tokens, &token),
        expected,
        "from those that were verified before"
    );
    let one = signer.token(&claims(&json!({"groups": "ops", "aud": ["x", "oxtsdb"]})));
    assert_eq!(
        names(&tokens, &one),
        Ok(vec!["sub:alice".into(), "group:ops".into()])
    );
    let without_id = signer.sign(&json!({"alg": "ES256"}), &claims(&json!({})));
    assert_eq!(names(&tokens, &without_id), Ok(vec!["sub:alice".into()]));
}

#[test]
fn rejects_tokens_that_break_a_rule() {
    let signer = Signer::new("a");
    let tokens = tokens_of(&[&signer]);
    let reject = |changes: Value, expected: &str| {
        let token = signer.token(&claims(&changes));
        assert_eq!(names(&tokens, &token), Err(expected.to_owned()), "{changes}");
    };
    reject(json!({"aud": "other"}), "the token is for another audience");
    reject(json!({"aud": null}), "the token has no claim `aud`");
    reject(json!({"iss": "https://other"}), "the token has another issuer");
    reject(json!({"iss": null}), "the token has no claim `iss`");
    reject(json!({"exp": now() - 31}), "the token has expired");
    reject(json!({"nbf": now() + 40}), "the token is not valid yet");
    reject(json!({"exp": null}), "the token is not a valid JWT");
    reject(json!({"sub": null}), "the token is not a valid JWT");
    reject(
        json!({"sub": ""}),
        "a name in the token does not have 1 to 1000 characters",
    );
    let skewed = signer.token(&claims(&json!({"exp": now() - 20, "nbf": now() + 20})));
    assert!(names(&tokens, &skewed).is_ok(), "clocks may differ by 30 s");
}

#[test]
fn rejects_other_keys_algorithms_and_texts() {
    let (signer, other) = (Signer::new("a"), Signer::new("b"));
    let tokens = tokens_of(&[&signer]);
    let unknown = "no key of the JWKS is the one that signed the token";
    assert_eq!(
        names(&tokens, &other.token(&claims(&json!({})))),
        Err(unknown.to_owned())
    );
    let same_id = Signer { id: "a", ..other };
    let forged = same_id.token(&claims(&json!({})));
    assert_eq!(
        names(&tokens, &forged),
        Err("the signature of the token is wrong".to_owned())
    );
    // With the public key as the secret of an HMAC, and without a signature.
    for algorithm in ["HS256", "none"] {
        let header = json!({"alg": algorithm, "kid": "a"});
        let token = signer.sign(&header, &claims(&json!({})));
        assert!(names(&tokens, &token).is_err(), "{algorithm}");
    }
    let rs = signer.sign(&json!({"alg": "RS256", "kid": "a"}), &claims(&json!({})));
    assert_eq!(names(&tokens, &rs), Err(unknown.to_owned()));
    let secret = "top-secret-text";
    for text in [secret, "a.b.c", ""] {
        let error = names(&tokens, text).unwrap_err();
        assert!(!error.contains(secret), "{error}");
    }
    let of_influx = tokens.names(format!("Token {rs}").as_bytes());
    assert_eq!(
        of_influx,
        Err(unknown.to_owned()),
        "the scheme of InfluxDB's clients"
    );
    assert_eq!(
        tokens.names(b"Basic YTpi"),
        Err("expected `Bearer TOKEN`".to_owned())
    );
    let long = "x".repeat(MAX_TOKEN_BYTES + 1);
    assert!(names(&tokens, &long).unwrap_err().contains("at most 16384"));
}

#[test]
fn reads_changed_keys_again_and_keeps_those_in_use_if_the_file_is_wrong() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let options = options(path.to_str().unwrap());
    let missing = KeySource::open(&options).unwrap_err();
    assert!(missing.contains("jwks.json: "), "{missing}");
    write_jwks(&path, &[old.jwk()]);
    let (mut source, keys) = KeySource::open(&options).unwrap();
    let tokens = Tokens::new(options, keys);
    let (of_old, of_new) = (old.token(&claims(&json!({}))), new.token(&claims(&json!({}))));
    assert!(names(&tokens, &of_old).is_ok() && names(&tokens, &of_new).is_err());
    std::fs::write(&path, r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#).unwrap();
    source.reload(&tokens);
    assert!(names(&tokens, &of_old).is_ok(), "the old keys are kept");
    write_jwks(&path, &[new.jwk(), json!({"kty": "future"})]);
    source.reload(&tokens);
    assert!(names(&tokens, &of_new).is_ok());
    assert!(names(&tokens, &of_old).is_err(), "also if it was verified before");
    write_jwks(&path, &[]);
    source.reload(&tokens);
    assert_eq!(
        names(&tokens, &of_new),
        Err("the server has no keys of tokens (--jwks)".to_owned()),
        "no keys revoke all tokens"
    );
}

#[test]
fn urls_are_secure_or_local() {
    let error = |url: &str| KeySource::open(&options(url)).unwrap_err();
    for url in ["http://idp.example.org/jwks", "ftp://127.0.0.1/jwks"] {
        assert_eq!(
            error(url),
            format!("{url}: expected https://; http:// is for the same machine only")
        );
    }
    // Nothing listens on port 1: tokens are rejected until the server responds.
    let options = options("http://127.0.0.1:1/jwks");
    let (_, keys) = KeySource::open(&options).unwrap();
    let tokens = Tokens::new(options, keys);
    let token = Signer::new("a").token(&claims(&json!({})));
    let expected = "the server has no keys of tokens (--jwks)";
    assert_eq!(names(&tokens, &token), Err(expected.to_owned()));
}
