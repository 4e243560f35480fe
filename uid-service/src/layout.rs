//! The format of a deployment's UIDs. Storage does not record it: the settings must match the tables.

use oxtsdb_schema::{NameRules, UidKind, UidWidth, UidWidths};

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
    pub fn get(&self, kind: UidKind) -> &T {
        match kind {
            UidKind::Metric => &self.metric,
            UidKind::Tagk => &self.tagk,
            UidKind::Tagv => &self.tagv,
        }
    }

    /// The mutable value of a kind.
    pub fn get_mut(&mut self, kind: UidKind) -> &mut T {
        match kind {
            UidKind::Metric => &mut self.metric,
            UidKind::Tagk => &mut self.tagk,
            UidKind::Tagv => &mut self.tagv,
        }
    }
}

/// The format of the UIDs of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLayout {
    /// Bytes of a UID.
    pub width: UidWidth,
    /// UIDs are random, not sequential; metrics only, of at most 7 bytes.
    pub random: bool,
    /// Writes assign UIDs of this kind to new names; if not, only explicit calls do.
    pub auto_create: bool,
}

/// The format of all UIDs, and the rules of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UidLayout {
    /// By kind.
    pub kinds: PerKind<KindLayout>,
    /// The names that can be assigned a UID.
    pub name_rules: NameRules,
    /// An assignment stores metadata of the UID, too.
    pub realtime_meta: bool,
}

impl UidLayout {
    /// The width of a kind.
    pub fn width(&self, kind: UidKind) -> UidWidth {
        self.kinds.get(kind).width
    }

    /// The widths of all kinds, as row keys of the data table need them.
    pub fn widths(&self) -> UidWidths {
        UidWidths {
            metric: self.kinds.metric.width,
            tagk: self.kinds.tagk.width,
            tagv: self.kinds.tagv.width,
        }
    }
}
