//! Names of OpenTSDB's four tables, unique for each test, so that tests can share one HBase.

/// Four table names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Points.
    pub data: String,
    /// UIDs.
    pub uid: String,
    /// Trees.
    pub tree: String,
    /// Series metadata.
    pub meta: String,
}

impl Tables {
    /// OpenTSDB's names behind a prefix.
    pub(crate) fn named(prefix: &str) -> Self {
        let name = |table| format!("{prefix}-{table}");
        Self {
            data: name("tsdb"),
            uid: name("tsdb-uid"),
            tree: name("tsdb-tree"),
            meta: name("tsdb-meta"),
        }
    }

    /// In the order of `rig.sh tables`.
    pub(crate) fn names(&self) -> [&str; 4] {
        [&self.data, &self.uid, &self.tree, &self.meta]
    }

    /// The names as settings of OpenTSDB.
    pub fn opentsdb_settings(&self) -> Vec<String> {
        ["data", "uid", "tree", "meta"]
            .into_iter()
            .zip(self.names())
            .map(|(table, name)| format!("tsd.storage.hbase.{table}_table={name}"))
            .collect()
    }

    /// The names as flags of `tsdb serve`.
    pub fn flags(&self) -> Vec<String> {
        ["data", "uid", "tree", "meta"]
            .into_iter()
            .zip(self.names())
            .map(|(table, name)| format!("--{table}-table={name}"))
            .collect()
    }
}
