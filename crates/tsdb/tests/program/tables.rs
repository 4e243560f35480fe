//! `tables create`, as far as it goes without an HBase.

use crate::harness::{run, tsdb};

const FAMILY: &str =
    "VERSIONS => 1, COMPRESSION => 'NONE', BLOOMFILTER => 'ROW', DATA_BLOCK_ENCODING => 'DIFF'";

#[track_caller]
fn printed(arguments: &[&str]) -> Vec<String> {
    let done = run(tsdb(&["tables", "create", "--print"]).args(arguments));
    done.ok().lines().map(str::to_owned).collect()
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let done = run(tsdb(&["tables", "create"]).args(arguments)).failed(1);
    let line = done.stderr.strip_prefix("tsdb: ").unwrap();
    line.trim_end().to_owned()
}

#[test]
fn the_commands_for_the_shell_make_opentsdb_s_tables() {
    assert_eq!(
        printed(&[]),
        [
            format!("create 'tsdb-uid', {{NAME => 'id', {FAMILY}}}, {{NAME => 'name', {FAMILY}}}"),
            format!("create 'tsdb', {{NAME => 't', {FAMILY}}}"),
            format!("create 'tsdb-meta', {{NAME => 'name', {FAMILY}}}"),
            format!("create 'tsdb-tree', {{NAME => 't', {FAMILY}}}"),
        ]
    );
    let other = printed(&[
        "--data-table=metrics:points",
        "--compression=snappy",
        "--ttl-seconds=86400",
    ]);
    let snappy = FAMILY.replace("NONE", "SNAPPY");
    assert_eq!(
        other[1],
        format!("create 'metrics:points', {{NAME => 't', {snappy}, TTL => 86400}}")
    );
    assert_eq!(
        other[2],
        format!("create 'tsdb-meta', {{NAME => 'name', {snappy}}}"),
        "only points expire"
    );
}

#[test]
fn a_table_is_split_where_new_series_will_be() {
    let split = |arguments: &[&str]| {
        let line = printed(arguments).swap_remove(1);
        line.split(", SPLITS => ").nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        split(&["--presplit=4", "--salt-width=2", "--salt-buckets=4"]),
        r"['\x00\x01', '\x00\x02', '\x00\x03']"
    );
    assert_eq!(
        split(&["--presplit=4", "--random-metric-uids"]),
        r"['\x40\x00\x00', '\x80\x00\x00', '\xC0\x00\x00']"
    );
    assert_eq!(
        split(&["--presplit=3", "--random-metric-uids", "--uid-width-metric=1"]),
        r"['\x55', '\xAA']"
    );
    assert_eq!(
        refused(&["--presplit=4"]),
        "--presplit 4: metric UIDs that are counted up all begin in the first region; use it with \
         --random-metric-uids or with --salt-width"
    );
    assert_eq!(
        refused(&["--presplit=4", "--salt-width=1"]),
        "--presplit 4: with salt it must be the number of buckets, 20"
    );
}

#[test]
fn the_files_of_serve_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("oxtsdb.toml");
    let conf = folder.path().join("opentsdb.conf");
    // Settings of `serve` that say nothing of tables are passed over.
    std::fs::write(&config, "store = 'hbase'\nuid_table = 'of-toml'\nmax_tags = 9\n").unwrap();
    std::fs::write(
        &conf,
        "tsd.storage.hbase.uid_table = of-conf\ntsd.storage.hbase.data_table = points\ntsd.network.port = 1\n",
    )
    .unwrap();
    let lines = printed(&[
        "--config",
        config.to_str().unwrap(),
        "--opentsdb-conf",
        conf.to_str().unwrap(),
    ]);
    assert!(lines[0].starts_with("create 'of-toml', "), "{}", lines[0]);
    assert!(lines[1].starts_with("create 'points', "), "{}", lines[1]);
}

#[test]
fn what_cannot_be_made_is_refused_with_a_reason() {
    assert_eq!(
        refused(&[]),
        "--hbase-quorum HOST[:PORT], --hbase-masters HOST[:PORT] or --hbase-thrift HOST:PORT (HBase's Thrift server) \
         is needed"
    );
    assert!(refused(&["--data-table=a b"]).starts_with("--data-table `a b`: "));
    let usage = run(&mut tsdb(&["tables", "create", "--compression=zip"])).failed(2);
    assert!(
        usage
            .stderr
            .contains("`zip` is not a compression of HBase, expected NONE, GZ, LZO, SNAPPY, LZ4, ZSTD"),
        "{}",
        usage.stderr
    );
}
