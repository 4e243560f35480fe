//! A value for each kind of UID.

use crate::uid::UidKind;

/// A value for each kind of UID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerKind<T> {
    /// For metric names.
    pub metric: T,
    /// For tag keys.
    pub tagk: T,
    /// For tag values.
    pub tagv: T,
}

impl<T> PerKind<T> {
    /// The value of a kind.
    pub const fn get(&self, kind: UidKind) -> &T {
        match kind {
            UidKind::Metric => &self.metric,
            UidKind::Tagk => &self.tagk,
            UidKind::Tagv => &self.tagv,
        }
    }

    /// The mutable value of a kind.
    pub const fn get_mut(&mut self, kind: UidKind) -> &mut T {
        match kind {
            UidKind::Metric => &mut self.metric,
            UidKind::Tagk => &mut self.tagk,
            UidKind::Tagv => &mut self.tagv,
        }
    }
}
