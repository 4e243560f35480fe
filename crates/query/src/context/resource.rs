//! Resources of a query, and the limit of one of them.

use std::fmt;

/// A resource that a query uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Series that have rows in the range.
    Series,
    /// Rows read from the store.
    Rows,
    /// Bytes of these rows: keys, qualifiers, values.
    Bytes,
    /// Points decoded or made up by a fill policy.
    Points,
    /// Bytes held at a time.
    Memory,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Series, Self::Rows, Self::Bytes, Self::Points, Self::Memory];

    /// Its place among all.
    pub(crate) const fn place(self) -> usize {
        self as usize
    }

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::Rows => "rows",
            Self::Bytes => "bytes",
            Self::Points => "points",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Series => "series",
            Self::Rows => "rows",
            Self::Bytes => "bytes",
            Self::Points => "points",
            Self::Memory => "bytes of memory",
        })
    }
}

/// How much of a resource a query may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The largest use that is allowed.
    pub most: u64,
    /// The setting or field that sets the limit, for error messages.
    pub setting: &'static str,
    /// Whether it was derived from the memory limit, because it is not set.
    pub is_derived: bool,
}

impl Limit {
    /// The limit of a setting; 0: none.
    pub const fn from_setting(setting: &'static str, most: u64) -> Self {
        let most = if most == 0 { u64::MAX } else { most };
        Self {
            most,
            setting,
            is_derived: false,
        }
    }

    /// The limit of a setting; without one, a limit derived from the memory limit.
    pub const fn from_setting_or(setting: &'static str, most: Option<u64>, derived: u64) -> Self {
        match most {
            Some(most) => Self::from_setting(setting, most),
            None => Self {
                most: derived,
                setting,
                is_derived: true,
            },
        }
    }
}
