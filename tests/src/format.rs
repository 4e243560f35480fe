//! Formats of OpenTSDB's tables: its settings, and our flags that mean the same.

/// A format of the tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Format {
    /// In names of tables and in messages.
    pub name: &'static str,
    /// Settings of OpenTSDB.
    pub settings: &'static [&'static str],
    /// Flags of `tsdb serve` on these tables.
    pub flags: &'static [&'static str],
    /// Whether points are appended to one cell of their row, where OpenTSDB's `fsck` checks but does not count them.
    pub appends: bool,
}

impl Format {
    /// The flags of a server on these tables.
    pub fn flags(&self) -> impl Iterator<Item = String> {
        self.flags.iter().map(|flag| (*flag).to_owned())
    }

    /// The flags that also concern the embedded store, which has no forms of points. Salt is part of the order of series.
    pub fn layout(&self) -> impl Iterator<Item = String> {
        self.flags().filter(|flag| !flag.starts_with("--write-form"))
    }

    /// Whether row keys have salt.
    pub fn is_salted(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("--salt-width="))
    }

    /// The number of points that `fsck` reports for `points` stored ones.
    pub fn counted(&self, points: usize) -> u64 {
        if self.appends { 0 } else { points as u64 }
    }
}

/// 20 buckets of salt, as OpenTSDB's documentation recommends.
pub const SALTED: Format = Format {
    name: "salted",
    settings: &["tsd.storage.salt.width=1", "tsd.storage.salt.buckets=20"],
    flags: &["--salt-width=1", "--salt-buckets=20", "--write-form=cells"],
    appends: false,
};

/// UIDs of 4 bytes, and rows that OxTSDB writes as compacted cells.
pub const WIDE: Format = Format {
    name: "wide",
    settings: &[
        "tsd.storage.uid.width.metric=4",
        "tsd.storage.uid.width.tagk=4",
        "tsd.storage.uid.width.tagv=4",
    ],
    flags: &[
        "--uid-width-metric=4",
        "--uid-width-tagk=4",
        "--uid-width-tagv=4",
        "--write-form=rows",
    ],
    appends: false,
};

/// Salt and UIDs of 4 bytes, with the usual form of points.
pub const SALTED_WIDE: Format = Format {
    name: "salted-wide",
    settings: &[
        "tsd.storage.salt.width=1",
        "tsd.storage.salt.buckets=20",
        "tsd.storage.uid.width.metric=4",
        "tsd.storage.uid.width.tagk=4",
        "tsd.storage.uid.width.tagv=4",
    ],
    flags: &[
        "--salt-width=1",
        "--salt-buckets=20",
        "--uid-width-metric=4",
        "--uid-width-tagk=4",
        "--uid-width-tagv=4",
    ],
    appends: false,
};

/// One cell of a row to which points are appended.
pub const APPENDS: Format = Format {
    name: "appends",
    settings: &["tsd.storage.enable_appends=true"],
    flags: &["--write-form=appends"],
    appends: true,
};

/// Salt, UIDs of 4 bytes and appended points, which OpenTSDB also rewrites when it reads them.
pub const SALTED_WIDE_APPENDS: Format = Format {
    name: "salted-wide-appends",
    settings: &[
        "tsd.storage.salt.width=1",
        "tsd.storage.salt.buckets=20",
        "tsd.storage.uid.width.metric=4",
        "tsd.storage.uid.width.tagk=4",
        "tsd.storage.uid.width.tagv=4",
        "tsd.storage.enable_appends=true",
        "tsd.storage.repair_appends=true",
    ],
    flags: &[
        "--salt-width=1",
        "--salt-buckets=20",
        "--uid-width-metric=4",
        "--uid-width-tagk=4",
        "--uid-width-tagv=4",
        "--write-form=appends",
    ],
    appends: true,
};
