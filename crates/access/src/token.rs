//! Tokens: JWTs, verified with the keys of a JWKS.
//!
//! ```text
//!   authorization: Bearer TOKEN ─► verified before? ─► key by `kid` ─► signature ─► exp, nbf, aud, iss ─► sub, groups
//! ```
//!
//! Only signatures of key pairs count (RS, PS, ES, EdDSA): with HMAC, a server that can verify tokens can make them.
//! Messages name what is wrong with a token, never a part of it.

mod crypto;
mod keys;
mod seen;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use parking_lot::RwLock;
use serde::Deserialize;

pub(crate) use self::keys::KeySource;
use self::keys::Keys;
use self::seen::SeenTokens;

/// The schemes of `authorization` that have a token. InfluxDB's clients send the second one.
const SCHEMES: [&[u8]; 2] = [b"bearer ", b"token "];

/// The longest token, in bytes; a header of HTTP/2 is not much longer.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The longest `sub` or group, in characters, and the most groups.
const MAX_NAME: usize = 1000;
const MAX_GROUPS: usize = 100;

/// Keys that are tried for a token without `kid`.
const MAX_TRIED: usize = 8;

/// The settings of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOptions {
    /// A file, or an URL.
    pub jwks: String,
    /// A file with the certificates that may sign the server's at the URL, in place of the public ones.
    pub ca: Option<PathBuf>,
    /// The pause between two requests to the URL.
    pub refresh: Duration,
    /// A token is for one of these.
    pub audiences: Vec<String>,
    /// Who signs tokens; `None`: whoever has one of the keys.
    pub issuer: Option<String>,
    /// The difference that clocks may have.
    pub leeway: Duration,
}

/// Verifies tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    options: TokenOptions,
    keys: RwLock<Arc<Keys>>,
    seen: SeenTokens,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    #[serde(default)]
    groups: Groups,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Groups {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
    /// Claims of another form are no groups.
    Other(serde::de::IgnoredAny),
}

impl Tokens {
    pub(crate) fn new(options: TokenOptions, keys: Keys) -> Self {
        crypto::install();
        Self {
            options,
            keys: RwLock::new(Arc::new(keys)),
            seen: SeenTokens::default(),
        }
    }

    /// Replaces the keys. Tokens that were verified with others are verified again.
    pub(crate) fn set_keys(&self, keys: Keys) {
        *self.keys.write() = Arc::new(keys);
        self.seen.clear();
    }

    /// The names of the caller in the value of `authorization`.
    ///
    /// # Errors
    ///
    /// Why the token is rejected.
    pub(crate) fn names(&self, authorization: &[u8]) -> Result<Vec<Box<str>>, String> {
        let of_scheme = |scheme: &&[u8]| {
            let (start, token) = authorization.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then(|| token.trim_ascii())
        };
        let token = SCHEMES
            .iter()
            .find_map(of_scheme)
            .ok_or("expected `Bearer TOKEN`")?;
        if token.len() > MAX_TOKEN_BYTES {
            return Err(format!(
                "the token has {} bytes, at most {MAX_TOKEN_BYTES} are allowed",
                token.len()
            ));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(names) = self.seen.get(token, now) {
            return Ok(names);
        }
        let keys = Arc::clone(&self.keys.read());
        let claims = self.claims(token, &keys)?;
        let names = names_of(&claims)?;
        let until = Duration::try_from_secs_f64(claims.exp).unwrap_or_default() + self.options.leeway;
        self.seen
            .insert(token, &names, until, || Arc::ptr_eq(&keys, &self.keys.read()));
        Ok(names)
    }

    fn claims(&self, token: &[u8], keys: &Keys) -> Result<Claims, String> {
        let header = decode_header(token).map_err(|error| wrong(error.kind()))?;
        if !is_asymmetric(header.alg) {
            return Err("the token is not signed by a key pair".to_owned());
        }
        let mut candidates = keys.for_token(&header).take(MAX_TRIED).peekable();
        if candidates.peek().is_none() {
            return Err(match keys.is_empty() {
                true => "the server has no keys of tokens (--jwks)".to_owned(),
                false => "no key of the JWKS is the one that signed the token".to_owned(),
            });
        }
        let mut failed = String::new();
        for key in candidates {
            match decode::<Claims>(token, &key.key, &self.validation(&header)) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(error) => failed = wrong(error.kind()),
            }
        }
        Err(failed)
    }

    fn validation(&self, header: &Header) -> Validation {
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.options.leeway.as_secs();
        validation.validate_nbf = true;
        validation.set_audience(&self.options.audiences);
        let mut required = vec!["exp", "aud", "sub"];
        if let Some(issuer) = &self.options.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

fn is_asymmetric(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

fn names_of(claims: &Claims) -> Result<Vec<Box<str>>, String> {
    let groups = match &claims.groups {
        Groups::None | Groups::Other(_) => &[][..],
        Groups::One(group) => std::slice::from_ref(group),
        Groups::Many(groups) => groups,
    };
    if groups.len() > MAX_GROUPS {
        return Err(format!(
            "the token has {} groups, at most {MAX_GROUPS} are allowed",
            groups.len()
        ));
    }
    let is_name = |name: &str| (1..=MAX_NAME).contains(&name.chars().count());
    if !is_name(&claims.sub) || !groups.iter().all(|group| is_name(group)) {
        return Err(format!(
            "a name in the token does not have 1 to {MAX_NAME} characters"
        ));
    }
    let sub = format!("sub:{}", claims.sub).into();
    let groups = groups.iter().map(|group| format!("group:{group}").into());
    Ok(std::iter::once(sub).chain(groups).collect())
}

/// Why a token is rejected, without quoting a part of it.
fn wrong(error: &ErrorKind) -> String {
    match error {
        ErrorKind::ExpiredSignature => "the token has expired".to_owned(),
        ErrorKind::ImmatureSignature => "the token is not valid yet".to_owned(),
        ErrorKind::InvalidAudience => "the token is for another audience".to_owned(),
        ErrorKind::InvalidIssuer => "the token has another issuer".to_owned(),
        ErrorKind::InvalidSignature => "the signature of the token is wrong".to_owned(),
        // The names of claims that are required, which this module sets.
        ErrorKind::MissingRequiredClaim(claim) => format!("the token has no claim `{claim}`"),
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm | ErrorKind::InvalidAlgorithmName => {
            "the algorithm of the token is not supported, or is not that of its key".to_owned()
        }
        _ => "the token is not a valid JWT".to_owned(),
    }
}

#[cfg(test)]
mod tests;
