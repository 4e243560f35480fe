//! The highest UID of each kind that series use: a UID service that counts from a lower number would assign UIDs twice.

use oxtsdb_schema::{UidKind, UidWidths};

/// The highest number of each kind; 0: no series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighestUids {
    /// Of metrics.
    pub metric: u64,
    /// Of tag keys.
    pub tagk: u64,
    /// Of tag values.
    pub tagv: u64,
}

impl HighestUids {
    /// The highest number of a kind.
    pub const fn get(&self, kind: UidKind) -> u64 {
        match kind {
            UidKind::Metric => self.metric,
            UidKind::Tagk => self.tagk,
            UidKind::Tagv => self.tagv,
        }
    }

    /// The higher number of both, for each kind.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            metric: self.metric.max(other.metric),
            tagk: self.tagk.max(other.tagk),
            tagv: self.tagv.max(other.tagv),
        }
    }

    /// Adds a series: the number of its metric and the tags of its key.
    pub(crate) fn add(&mut self, metric: u64, tags: &[u8], widths: &UidWidths) {
        let (tagk, tagv) = (widths.tagk.bytes(), widths.tagv.bytes());
        let mut highest = Self {
            metric,
            ..Self::default()
        };
        for tag in tags.chunks_exact(tagk + tagv) {
            highest.tagk = highest.tagk.max(uid_number(&tag[..tagk]));
            highest.tagv = highest.tagv.max(uid_number(&tag[tagk..]));
        }
        *self = self.max(highest);
    }
}

/// The number of a UID; it orders UIDs of one width as their bytes do.
pub(crate) fn uid_number(uid: &[u8]) -> u64 {
    uid.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
