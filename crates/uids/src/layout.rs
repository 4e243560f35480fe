//! The format of a deployment's UIDs. Storage does not record it: the settings must match the tables.

use oxtsdb_schema::{NameRules, PerKind, UidKind, UidWidth, UidWidths};

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

impl Default for UidLayout {
    /// OpenTSDB's: sequential UIDs of 3 bytes. Each kind is created on first use, unlike metrics there.
    fn default() -> Self {
        let kind = KindLayout {
            width: UidWidth::DEFAULT,
            random: false,
            auto_create: true,
        };
        Self {
            kinds: PerKind {
                metric: kind,
                tagk: kind,
                tagv: kind,
            },
            name_rules: NameRules::default(),
            realtime_meta: false,
        }
    }
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
