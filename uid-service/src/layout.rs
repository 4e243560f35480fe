//! How the UIDs of a deployment look. Nothing in storage records it: it is a property of the tables
//! that the settings must state truly.

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

    /// The value of a kind, to change it.
    pub fn get_mut(&mut self, kind: UidKind) -> &mut T {
        match kind {
            UidKind::Metric => &mut self.metric,
            UidKind::Tagk => &mut self.tagk,
            UidKind::Tagv => &mut self.tagv,
        }
    }
}

/// How the UIDs of one kind look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLayout {
    /// Bytes of a UID.
    pub width: UidWidth,
    /// UIDs are drawn at random in place of counted up; metrics only, of at most 7 bytes.
    pub random: bool,
    /// Writers may have UIDs of this kind assigned; if not, only an explicit call assigns.
    pub auto_create: bool,
}

/// How all UIDs look, and which names they may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UidLayout {
    /// By kind.
    pub kinds: PerKind<KindLayout>,
    /// Which names are given UIDs.
    pub name_rules: NameRules,
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
