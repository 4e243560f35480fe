//! Addresses of the HBase and the OpenTSDB that `tests/hbase/bench.sh` starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// A running HBase and OpenTSDB.
#[derive(Debug, Args)]
pub(crate) struct Rig {
    /// HBase's Thrift servers.
    #[arg(long, env = "OXTSDB_TEST_HBASE", value_name = "HOST:PORT,...")]
    pub(crate) hbase_thrift: String,
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
