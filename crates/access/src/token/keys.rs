//! The keys of a JWKS: from a file that is read again when it changes, or from a URL that is requested again and
//! again. A key set that is wrong, or that cannot be read, leaves the old one in use; one without keys, `{"keys":[]}`, is
//! in use, and no token is valid.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{AlgorithmFamily, DecodingKey, Header};
use tracing::{info, warn};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

use super::{TokenOptions, Tokens};
use crate::text_file::{self, Version};

/// The most bytes of a JWKS, and the most keys.
const MAX_BYTES: usize = 1 << 20;
const MAX_KEYS: usize = 1000;

/// How long a request to the URL may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a request that failed.
const RETRY: Duration = Duration::from_secs(5);

/// Public keys.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<Key>);

/// A public key.
#[derive(Debug)]
pub(super) struct Key {
    id: Option<String>,
    /// The algorithm that it is for, as the JWKS has it.
    algorithm: Option<String>,
    pub(super) key: DecodingKey,
}

impl Keys {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that may have signed a token.
    pub(super) fn for_token(&self, header: &Header) -> impl Iterator<Item = &Key> {
        let algorithm = format!("{:?}", header.alg);
        self.0.iter().filter(move |key| {
            let is_named = header.kid.is_none() || key.id.is_none() || key.id == header.kid;
            let is_for = key.algorithm.as_ref().is_none_or(|name| *name == algorithm);
            is_named && is_for && key.key.family() == header.alg.family()
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        // The text of the parser's error may have parts of keys.
        let wrong = |error: serde_json::Error| {
            format!("is not a JWKS, line {} column {}", error.line(), error.column())
        };
        let set: JwkSet = serde_json::from_str(text).map_err(wrong)?;
        if set.keys.len() > MAX_KEYS {
            return Err(format!(
                "has {} keys, at most {MAX_KEYS} are allowed",
                set.keys.len()
            ));
        }
        let keys: Vec<Key> = set.keys.iter().filter_map(key_of).collect();
        // No keys at all revoke all tokens; keys of other kinds only are a mistake.
        if keys.is_empty() && !set.keys.is_empty() {
            return Err(format!(
                "has no key for signatures (RSA, EC P-256 or P-384, Ed25519) among {} keys",
                set.keys.len()
            ));
        }
        Ok(Self(keys))
    }
}

/// A key for signatures of key pairs; others are skipped.
fn key_of(jwk: &Jwk) -> Option<Key> {
    if matches!(&jwk.common.public_key_use, Some(other) if *other != PublicKeyUse::Signature) {
        return None;
    }
    if matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    (key.family() != AlgorithmFamily::Hmac).then(|| Key {
        id: jwk.common.key_id.clone(),
        algorithm: jwk.common.key_algorithm.map(|algorithm| algorithm.to_string()),
        key,
    })
}

/// Where keys come from.
#[derive(Debug)]
pub(crate) enum KeySource {
    File {
        path: PathBuf,
        read: Option<Version>,
    },
    Url {
        url: String,
        agent: Box<ureq::Agent>,
        refresh: Duration,
        next: Instant,
        /// The text that was used last.
        last: String,
        has_failed: bool,
    },
}

impl KeySource {
    /// Reads the keys for the first time. A URL that does not respond is requested again later, and tokens are
    /// rejected until then.
    pub(crate) fn open(options: &TokenOptions) -> Result<(Self, Keys), String> {
        let jwks = &options.jwks;
        let of_file = |error: String| format!("{jwks}: {error}");
        if !jwks.contains("://") {
            let path = PathBuf::from(jwks);
            let (keys, read) = read_file(&path).map_err(of_file)?;
            return Ok((Self::File { path, read }, keys));
        }
        check_url(jwks).map_err(of_file)?;
        let agent = agent(options.ca.as_deref())?;
        let mut source = Self::Url {
            url: jwks.clone(),
            agent: Box::new(agent),
            refresh: options.refresh,
            next: Instant::now(),
            last: String::new(),
            has_failed: false,
        };
        let keys = source.changed().unwrap_or_default();
        Ok((source, keys))
    }

    /// Sets the keys of `tokens`, if they have changed. Blocks: it reads a file, or waits for a server.
    pub(crate) fn reload(&mut self, tokens: &Tokens) {
        if let Some(keys) = self.changed() {
            match keys.is_empty() {
                true => warn!(jwks = %self.name(), "the key set is empty: all tokens are rejected"),
                false => info!(jwks = %self.name(), keys = keys.0.len(), "read the keys of tokens again"),
            }
            tokens.set_keys(keys);
        }
    }

    fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            // A query may have a secret.
            Self::Url { url, .. } => url.split('?').next().unwrap_or_default().to_owned(),
        }
    }

    fn changed(&mut self) -> Option<Keys> {
        let name = self.name();
        let kept = |error: &str| warn!(jwks = name, error, "kept the old keys of tokens");
        match self {
            Self::File { path, read } => {
                let current_version = text_file::version(path);
                if current_version == *read {
                    return None;
                }
                match read_file(path) {
                    Ok((keys, version)) => {
                        *read = version;
                        Some(keys)
                    }
                    Err(error) => {
                        *read = current_version;
                        kept(&error);
                        None
                    }
                }
            }
            Self::Url {
                url,
                agent,
                refresh,
                next,
                last,
                has_failed,
            } => {
                if Instant::now() < *next {
                    return None;
                }
                let text = request(agent, url).and_then(|text| match text == *last {
                    true => Ok(None),
                    false => Keys::parse(&text).map(|keys| Some((text, keys))),
                });
                match text {
                    Ok(changed) => {
                        *next = Instant::now() + *refresh;
                        *has_failed = false;
                        let (text, keys) = changed?;
                        *last = text;
                        Some(keys)
                    }
                    Err(error) => {
                        *next = Instant::now() + RETRY.min(*refresh);
                        // Each outage is logged once.
                        if !std::mem::replace(has_failed, true) {
                            kept(&error);
                        }
                        None
                    }
                }
            }
        }
    }
}

fn read_file(path: &Path) -> Result<(Keys, Option<Version>), String> {
    let (text, version) = text_file::read(path, MAX_BYTES)?;
    Ok((Keys::parse(&text)?, version))
}

/// Keys that anyone on the network could replace protect nothing.
fn check_url(url: &str) -> Result<(), String> {
    let uri: http::Uri = url.parse().map_err(|_| "is not a URL".to_owned())?;
    let host = uri.host().unwrap_or_default();
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_local => Ok(()),
        _ => Err("expected https://; http:// is for the same machine only".to_owned()),
    }
}

fn agent(ca: Option<&Path>) -> Result<ureq::Agent, String> {
    let mut tls = TlsConfig::builder();
    if let Some(path) = ca {
        let of_file = |error: String| format!("{}: {error}", path.display());
        let (pem, _) = text_file::read(path, MAX_BYTES).map_err(of_file)?;
        let items: Result<Vec<_>, _> = ureq::tls::parse_pem(pem.as_bytes()).collect();
        let items = items.map_err(|error| of_file(error.to_string()))?;
        let certificates = items.into_iter().filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        });
        let certificates: Vec<Certificate<'static>> = certificates.collect();
        if certificates.is_empty() {
            return Err(of_file("has no certificate".to_owned()));
        }
        tls = tls.root_certs(RootCerts::from(certificates));
    }
    let config = ureq::Agent::config_builder()
        .tls_config(tls.build())
        .timeout_global(Some(TIMEOUT))
        .max_redirects(0)
        .http_status_as_error(true)
        .build();
    Ok(config.new_agent())
}

fn request(agent: &ureq::Agent, url: &str) -> Result<String, String> {
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    if response.status() != 200 {
        return Err(format!("responded {}", response.status()));
    }
    let body = response.body_mut().with_config().limit(MAX_BYTES as u64);
    body.read_to_string().map_err(|error| error.to_string())
}
