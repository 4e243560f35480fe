//! `tsdb tables create`: OpenTSDB's tables in HBase.

mod request;
mod shell;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use data_service::DataSettings;
use oxtsdb_row_store::hbase::Compression;
use oxtsdb_schema::{SaltLayout, UidWidth};
use oxtsdb_server::store::{HbaseSettings, StoreTable};
use uid_service::UidSettings;

use request::{RequestedTable, Splits};

/// Create OpenTSDB's tables in HBase
#[derive(Debug, Args)]
pub(crate) struct TablesArgs {
    #[command(subcommand)]
    command: TablesCommand,
}

#[derive(Debug, Subcommand)]
enum TablesCommand {
    Create(Box<CreateArgs>),
}

/// Create missing tables
///
/// Existing tables are not changed. New ones have the attributes of OpenTSDB's own script: one version of each
/// cell, Bloom filters by row, and blocks encoded as DIFF. HBase's Thrift server cannot set the encoding or
/// splits; the commands for HBase's shell that do so are printed.
///
/// Standard output has a line for each table, `made NAME` or `there NAME`, and then those commands. Exit
/// status: 0 if all tables exist now; else 1.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Print the commands for HBase's shell that create all tables, without executing them
    #[arg(long)]
    print: bool,

    /// Compression of the tables; the region servers need its library
    #[arg(long, value_name = "NONE|GZ|LZO|SNAPPY|LZ4|ZSTD", default_value_t = Compression::None)]
    compression: Compression,

    /// Time to live of points, seconds; UIDs and metadata do not expire [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..i64::from(i32::MAX)))]
    ttl_seconds: Option<u32>,

    /// Count of regions into which the table of points is split: by metric, for random UIDs, or, with salt, one
    /// for each bucket. Over Thrift, this table has to be created in HBase's shell
    #[arg(long, value_name = "REGIONS", value_parser = clap::value_parser!(u32).range(2..=4096))]
    presplit: Option<u32>,

    /// TOML file with settings; names of tables, salt and widths are used
    #[arg(long, env = "OXTSDB_CONFIG", value_name = "FILE")]
    config: Option<std::path::PathBuf>,

    /// OpenTSDB's configuration file; names of tables, salt and widths are used
    #[arg(long, env = "OXTSDB_OPENTSDB_CONF", value_name = "FILE")]
    opentsdb_conf: Option<std::path::PathBuf>,

    #[command(flatten)]
    hbase: HbaseSettings,

    #[command(flatten)]
    names: Names,
}

/// The settings of a deployment, as for `serve`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tables")]
struct Names {
    /// Table of the UIDs, `[namespace:]name` (tsd.storage.hbase.uid_table)
    #[arg(long, env = "OXTSDB_UID_TABLE", value_name = "TABLE", default_value_t = UidSettings::default().tables.uid_table)]
    uid_table: String,

    /// Table of points (tsd.storage.hbase.data_table)
    #[arg(long, env = "OXTSDB_DATA_TABLE", value_name = "TABLE", default_value_t = DataSettings::default().tables.data_table)]
    data_table: String,

    /// Table of series metadata (tsd.storage.hbase.meta_table)
    #[arg(long, env = "OXTSDB_META_TABLE", value_name = "TABLE", default_value_t = DataSettings::default().tables.meta_table)]
    meta_table: String,

    /// Table of trees (tsd.storage.hbase.tree_table)
    #[arg(long, env = "OXTSDB_TREE_TABLE", value_name = "TABLE", default_value_t = DataSettings::default().tables.tree_table)]
    tree_table: String,

    /// Rollups; their tables are made (tsd.rollups.config)
    #[arg(long, env = "OXTSDB_ROLLUPS_CONFIG", value_name = "JSON|FILE")]
    rollups_config: Option<String>,

    /// Bytes of salt before a row key, for --presplit (tsd.storage.salt.width)
    #[arg(long, env = "OXTSDB_SALT_WIDTH", value_name = "BYTES", default_value_t = DataSettings::default().tables.salt_width)]
    salt_width: usize,

    /// Buckets of salt, for --presplit (tsd.storage.salt.buckets)
    #[arg(long, env = "OXTSDB_SALT_BUCKETS", value_name = "COUNT", default_value_t = DataSettings::default().tables.salt_buckets)]
    salt_buckets: u32,

    /// Bytes of a metric UID, for --presplit (tsd.storage.uid.width.metric)
    #[arg(long, env = "OXTSDB_UID_WIDTH_METRIC", value_name = "BYTES", default_value_t = UidSettings::default().tables.uid_width_metric)]
    uid_width_metric: usize,

    /// Metric UIDs are random, for --presplit (tsd.core.uid.random_metrics)
    #[arg(long, env = "OXTSDB_RANDOM_METRIC_UIDS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    random_metric_uids: bool,
}

/// Creates the tables, or prints the commands that do.
///
/// # Errors
///
/// A setting breaks its rule, HBase cannot be reached, or has a table that is none of OpenTSDB's.
pub(crate) async fn run(args: TablesArgs) -> anyhow::Result<ExitCode> {
    let TablesCommand::Create(args) = args.command;
    let tables = requested_tables(&args)?;
    if args.print {
        for table in &tables {
            println!("{}", shell::create(table));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let store = args.hbase.connect().await?;
    let place = args.hbase.to_string();
    let (mut made, mut left) = (Vec::new(), Vec::new());
    for requested in &tables {
        let def = &requested.table.def;
        match store.table(&def.name).await? {
            Some(def) => {
                requested.table.check(&def, &place)?;
                println!("there {}", def.name);
            }
            None if !requested.splits.is_empty() && !args.hbase.is_native() => left.push(requested),
            None => {
                let split_keys = requested.splits.keys();
                let is_new = store
                    .create_table_with(def, requested.compression, split_keys)
                    .await;
                let is_new = is_new.with_context(|| format!("make table `{}` in {place}", def.name))?;
                println!("{} {}", if is_new { "made" } else { "there" }, def.name);
                if is_new {
                    made.push(requested);
                }
            }
        }
    }
    if !made.is_empty() && !args.hbase.is_native() {
        println!("\n# HBase's Thrift server cannot set the encoding of blocks; `hbase shell` can:");
        made.iter()
            .for_each(|table| println!("{}", shell::encode_blocks(table)));
    }
    if left.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("\n# HBase's Thrift server cannot split a table; run this in `hbase shell`:");
    left.iter().for_each(|table| println!("{}", shell::create(table)));
    Ok(ExitCode::FAILURE)
}

/// The tables, in the order in which they are made: a server that starts meanwhile looks for the table of
/// UIDs first.
fn requested_tables(args: &CreateArgs) -> anyhow::Result<Vec<RequestedTable>> {
    let names = &args.names;
    let mut uids = UidSettings::default();
    uids.tables.uid_table = names.uid_table.clone();
    uids.tables.uid_width_metric = names.uid_width_metric;
    uids.naming.random_metric_uids = names.random_metric_uids;
    let mut data = DataSettings::default();
    data.tables.data_table = names.data_table.clone();
    data.tables.meta_table = names.meta_table.clone();
    data.tables.tree_table = names.tree_table.clone();
    data.rollups.rollups_config.clone_from(&names.rollups_config);
    data.tables.salt_width = names.salt_width;
    data.tables.salt_buckets = names.salt_buckets;
    let plain = |table: &StoreTable| RequestedTable {
        table: table.clone(),
        compression: args.compression,
        splits: Splits::default(),
    };
    let uid_part = uid_service::store_part(&uids)?;
    let data_part = data_service::store_part(&data, 0)?;
    let mut points = plain(&data_part.table);
    if let Some(seconds) = args.ttl_seconds {
        for family in &mut points.table.def.families {
            family.ttl = Some(Duration::from_secs(seconds.into()));
        }
    }
    if let Some(regions) = args.presplit {
        points.splits = splits(
            regions,
            data.tables.salt()?,
            UidWidth::new(names.uid_width_metric)?,
            names,
        )?;
    }
    let others = data_part.others.iter().map(plain);
    Ok(uid_part
        .tables()
        .map(plain)
        .chain([points])
        .chain(others)
        .collect())
}

fn splits(regions: u32, salt: SaltLayout, width: UidWidth, names: &Names) -> anyhow::Result<Splits> {
    if salt.width() > 0 {
        let buckets = salt.buckets().end;
        ensure!(
            regions == buckets,
            "--presplit {regions}: with salt it must be the number of buckets, {buckets}"
        );
        return Ok(Splits::by_bucket(salt));
    }
    ensure!(
        names.random_metric_uids,
        "--presplit {regions}: metric UIDs that are counted up all begin in the first region; use it with \
         --random-metric-uids or with --salt-width"
    );
    Ok(Splits::by_metric(regions, width))
}
