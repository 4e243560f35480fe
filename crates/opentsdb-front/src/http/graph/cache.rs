//! Pictures that were drawn, to be served again.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use oxtsdb_data_settings::PICTURE_CACHE_BYTES;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_resources::{EntryBytes, TimedCache};

use super::age::MaxAge;
use crate::http::parameters::Parameters;

/// Memory of an entry beside its key and its picture, in bytes.
const ENTRY_BYTES: u64 = 160;

/// Pictures by the query strings that lead to them. Callers with restricted rights have no cache: a cached picture may
/// have series that they may not see.
#[derive(Clone, Debug)]
pub(crate) struct PictureCache(Option<Arc<TimedCache<String, (Bytes, i64)>>>);

impl PictureCache {
    pub(crate) fn new() -> Self {
        let bytes = EntryBytes {
            fixed: ENTRY_BYTES,
            text: |key: &String, (picture, _): &(Bytes, i64)| key.len() + picture.len(),
        };
        Self(Some(Arc::new(TimedCache::new(PICTURE_CACHE_BYTES, None, bytes))))
    }

    /// A cache that keeps nothing.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// A picture that is not too old, and its age in seconds.
    pub(super) fn get(&self, key: &str, max_age: MaxAge) -> Option<(Bytes, u64)> {
        let (picture, drawn_ms) = self.0.as_ref()?.get(key)?;
        let now_ms = now_ms();
        let age = u64::try_from(now_ms.saturating_sub(drawn_ms) / 1000).unwrap_or(0);
        max_age.allows(drawn_ms, now_ms).then_some((picture, age))
    }

    /// Adds a picture with the time at which its query began.
    pub(super) fn insert(&self, key: String, picture: &Bytes, began_ms: i64) {
        if let Some(cache) = &self.0 {
            cache.insert(key, (picture.clone(), began_ms));
        }
    }
}

/// The parameters on which a picture depends, in one order.
pub(super) fn key_of(parameters: &Parameters, is_svg: bool) -> String {
    let has_no_effect = |name: &str| {
        matches!(
            name,
            "png" | "svg" | "json" | "ascii" | "html" | "ignore" | "nocache" | "autoreload"
        )
    };
    let mut pairs: Vec<_> = parameters
        .iter()
        .filter(|(name, _)| !has_no_effect(name))
        .collect();
    // Repeated parameters keep their order, which is the order of the sub-queries.
    pairs.sort_by_key(|(name, _)| *name);
    let mut key = String::from(if is_svg { "svg" } else { "png" });
    for (name, value) in pairs {
        let _ = write!(key, "&{}:{name}={}:{value}", name.len(), value.len());
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pictures_have_equal_keys() {
        let key = |query: &str| key_of(&Parameters::parse(Some(query)), false);
        assert_eq!(key("start=1&m=a&m=b&png"), key("m=a&m=b&ignore=7&json&start=1"));
        assert_ne!(key("m=a&m=b"), key("m=b&m=a"));
        assert_ne!(key("m=a&title=b%26c"), key("m=a&title=b&c"));
        assert_ne!(key_of(&Parameters::parse(Some("m=a")), true), key("m=a"));
    }
}
