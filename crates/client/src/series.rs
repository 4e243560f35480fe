//! Names of series.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHasher;

/// A series by its metric and tags. Cloning is cheap.
///
/// Build it once and keep it: a writer finds a series that it knows without hashing its names.
///
/// ```
/// let series = oxtsdb_client::SeriesName::new("sys.cpu.nice", [("host", "web01"), ("dc", "lga")]);
/// assert_eq!(series.to_string(), "sys.cpu.nice{host=web01,dc=lga}");
/// ```
#[derive(Clone)]
pub struct SeriesName(Arc<Inner>);

struct Inner {
    /// Metric, key, value, key, value, ... without separators.
    text: Box<str>,
    /// Where each of them ends in the text.
    ends: Box<[u32]>,
    hash: u64,
    /// The number that a writer's dictionary gave to the series; see [`SeriesName::cached_number`].
    number: AtomicU64,
}

impl SeriesName {
    /// A series. Names are checked by the service.
    pub fn new<K, V>(metric: impl AsRef<str>, tags: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let mut text = String::from(metric.as_ref());
        let mut ends = vec![end(&text)];
        for (key, value) in tags {
            text.push_str(key.as_ref());
            ends.push(end(&text));
            text.push_str(value.as_ref());
            ends.push(end(&text));
        }
        let mut hasher = FxHasher::default();
        (&text, &ends).hash(&mut hasher);
        Self(Arc::new(Inner {
            text: text.into(),
            ends: ends.into(),
            hash: hasher.finish(),
            number: AtomicU64::new(0),
        }))
    }

    /// The metric.
    pub fn metric(&self) -> &str {
        self.names().next().unwrap_or_default()
    }

    /// Tag keys with their values, in the order in which they were given.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut names = self.names().skip(1);
        std::iter::from_fn(move || Some((names.next()?, names.next()?)))
    }

    /// Metric, key, value, key, value, ...
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.0.ends.iter().map(move |end| {
            let range = start..*end as usize;
            start = range.end;
            self.0.text.get(range).unwrap_or_default()
        })
    }

    /// Bytes of all names.
    pub(crate) fn text_bytes(&self) -> usize {
        self.0.text.len()
    }

    /// The number of the series in the dictionary with this non-zero id, if it was the last to number it.
    pub(crate) fn cached_number(&self, dictionary: u32) -> Option<u32> {
        let cached = self.0.number.load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "the number is in the lower half")]
        (cached >> 32 == u64::from(dictionary)).then_some(cached as u32)
    }

    /// Keeps the number for [`SeriesName::cached_number`].
    pub(crate) fn cache_number(&self, dictionary: u32, number: u32) {
        let cached = u64::from(dictionary) << 32 | u64::from(number);
        self.0.number.store(cached, Ordering::Relaxed);
    }
}

fn end(text: &str) -> u32 {
    // The service rejects names long before 4 GiB.
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

impl PartialEq for SeriesName {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (&*self.0, &*other.0);
        Arc::ptr_eq(&self.0, &other.0)
            || (ours.hash == theirs.hash && ours.ends == theirs.ends && ours.text == theirs.text)
    }
}

impl Eq for SeriesName {}

impl Hash for SeriesName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl fmt::Display for SeriesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{", self.metric())?;
        for (position, (key, value)) in self.tags().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for SeriesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeriesName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_equal_series() {
        let series = SeriesName::new("m", [("a", "x")]);
        assert_eq!(series, SeriesName::new("m", [("a", "x")]));
        assert_ne!(series, SeriesName::new("m", [("a", "y")]));
        assert_ne!(
            SeriesName::new("m", [("ab", "c")]),
            SeriesName::new("m", [("a", "bc")])
        );
        let parts: Vec<_> = series.tags().collect();
        assert_eq!((series.metric(), parts), ("m", vec![("a", "x")]));
    }

    #[test]
    fn numbers_are_cached_for_one_dictionary() {
        let series = SeriesName::new("m", [("a", "x")]);
        assert_eq!(series.cached_number(1), None);
        series.cache_number(1, 7);
        assert_eq!(
            (series.cached_number(1), series.cached_number(2)),
            (Some(7), None)
        );
    }
}
