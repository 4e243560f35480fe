//! Addresses of the HBase and the OpenTSDB that `tests/hbase/bench.sh` starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// A running HBase and OpenTSDB.
#[derive(Debug, Args)]
pub(crate) struct Rig {
    /// HBase's Thrift servers.
    #[arg(long, env = "OXTSDB_TEST_HBASE", value_name = "HOST:PORT,...")]
    hbase_thrift: String,
    /// HBase's ZooKeeper.
    #[arg(long, env = "OXTSDB_TEST_HBASE_QUORUM", value_name = "HOST:PORT,...")]
    hbase_quorum: String,
    /// The way of OxTSDB to HBase.
    #[arg(long, value_enum, default_value_t = Way::Native)]
    way: Way,
    /// OpenTSDB, on the same HBase and with tables of the usual names.
    #[arg(long, env = "OXTSDB_TEST_OPENTSDB", value_name = "HOST:PORT")]
    pub(crate) opentsdb: SocketAddr,
    /// The folder of `tests/hbase/rig.sh`: its processes are those whose processor time counts.
    #[arg(
        id = "rig_folder",
        long = "rig-folder",
        env = "OXTSDB_TEST_HBASE_FOLDER",
        value_name = "FOLDER"
    )]
    pub(crate) folder: PathBuf,
}

/// A way to HBase.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Way {
    /// HBase's own RPC.
    Native,
    /// The Thrift servers.
    Thrift,
}

impl Rig {
    /// The flags of `tsdb serve` on this HBase.
    pub(crate) fn store_flags(&self) -> [String; 4] {
        let (flag, place) = match self.way {
            Way::Native => ("--hbase-quorum", &self.hbase_quorum),
            Way::Thrift => ("--hbase-thrift", &self.hbase_thrift),
        };
        ["--store", "hbase", flag, place].map(str::to_owned)
    }
}
