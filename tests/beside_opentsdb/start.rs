//! A wrong store ends the start of `tsdb serve` with one line that names the change needed; and `tsdb tables
//! create` creates OpenTSDB's tables.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};
use oxtsdb_row_store::{RowStore as _, TableDef};
use oxtsdb_tests::process::Process;
use oxtsdb_tests::proxy::Proxy;
use oxtsdb_tests::rig::{Rig, hbase_flags};
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::{Options, Tsdb, read_back, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Enough time for a gateway that runs.
const SOON: [&str; 2] = [
    "--hbase-connect-timeout-ms=2000",
    "--hbase-request-timeout-ms=5000",
];

fn options(gateway: &str, tables: &Tables, flags: &[&str]) -> Options {
    Options::default()
        .flag("--store", "hbase")
        .flag("--hbase-thrift", gateway)
        .flags(tables.flags())
        .flags(SOON.iter().chain(flags).map(|flag| (*flag).to_owned()))
}

/// Checks that a start with these options fails with an error that contains all of these texts.
async fn check_failed_start(options: Options, says: &[&str]) -> anyhow::Result<()> {
    let error = Tsdb::failed_start(options).await?;
    for part in says {
        ensure!(error.contains(part), "`{error}` does not say `{part}`");
    }
    Ok(())
}

/// A web server that responds to everything with an error.
async fn web_server(servers: &mut JoinSet<()>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    servers.spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = [0; 4];
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            if client.read(&mut request).await.is_ok() {
                // The web server ignores errors of its clients.
                let _ = client.write_all(answer).await;
            }
        }
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_servers_that_are_no_gateway() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let tables = rig.create_tables("no-gateway").await?;
    let mut servers = JoinSet::new();
    let web = web_server(&mut servers).await?.to_string();
    let opentsdb = rig.opentsdb(&tables, &[]).await?;
    let tsd = opentsdb.part().address()?.to_string();
    // The system accepts connections that no program serves.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let silent = listener.local_addr()?.to_string();
    let mut closed = Proxy::start(rig.gateways()[0]).await?;
    closed.refuse().await;
    let closed = closed.address().to_string();
    let with_frames = rig.gateway(&["-f"]).await?;
    let framed = with_frames.address()?.to_string();
    let buffered = rig.gateways()[0].to_string();

    let expected = "expected HBase's Thrift server there";
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("no-such-host.invalid:9090", &[], &["cannot connect", expected]),
        (&closed, &[], &["Connection refused", expected]),
        (&web, &[], &[expected]),
        (&tsd, &[], &[expected]),
        (&silent, &[], &["no response in time", expected]),
        (&framed, &[], &["add --hbase-framed"]),
        (&buffered, &["--hbase-framed"], &["leave --hbase-framed out"]),
    ];
    let cases = cases.into_iter().map(|(gateway, flags, says)| {
        let options = options(gateway, &tables, flags);
        async move {
            let named = format!("--hbase-thrift {gateway}: ");
            check_failed_start(options, &[&[named.as_str()], says].concat())
                .await
                .context(named.clone())
        }
    });
    try_join_all(cases).await?;
    Ok(())
}

async fn write(tsdb: &Tsdb, metric: &str) -> anyhow::Result<Sample> {
    let sample = Sample::int(metric, &[("host", "a")], 1_356_998_400_000, 42);
    let answer = tsdb.http().post("/api/put?details", &sample.to_json()).await?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(sample)
}

async fn check_read(tsdb: &Tsdb, sample: &Sample) -> anyhow::Result<()> {
    let series = read_back::series_of(&mut tsdb.data(), &sample.metric).await?;
    let points: Vec<_> = series.into_values().collect();
    ensure!(points == [[(sample.timestamp_ms, sample.value)]], "{points:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_through_a_framed_gateway() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let tables = rig.create_tables("framed").await?;
    let framed = rig.gateway(&["-f"]).await?;
    let options = Options::default()
        .flags(hbase_flags(&[framed.address()?]))
        .flags(tables.flags())
        .flags(["--hbase-framed".to_owned()]);
    let tsdb = Tsdb::start_with(options).await?;
    let sample = write(&tsdb, "framed").await?;
    check_read(&tsdb, &sample).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_tables_that_do_not_match() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let gateway = rig.gateways()[0].to_string();
    let plain = rig.create_tables("plain").await?;
    let other = rig.create_tables("other").await?;
    let other_flags = [
        "--salt-width=1",
        "--salt-buckets=7",
        "--uid-width-metric=4",
        "--uid-width-tagv=5",
    ];
    for (tables, flags) in [(&plain, &[][..]), (&other, &other_flags)] {
        let tsdb = Tsdb::start_with(options(&gateway, tables, flags)).await?;
        for metric in ["a", "b", "c", "d"] {
            write(&tsdb, metric).await?;
        }
    }
    let missing = Tables {
        data: format!("{}-no", plain.data),
        ..plain.clone()
    };
    // A UID table has two families, `id` and `name`.
    let family = Tables {
        uid: plain.meta.clone(),
        ..plain.clone()
    };
    let create = format!("`tsdb tables create --hbase-thrift {gateway} ");
    let data_table = format!("--data-table {}", missing.data);
    let cases: [(&Tables, &[&str], &[&str]); 7] = [
        (&missing, &[], &[&create, &data_table]),
        (&family, &[], &["no `id`", "--uid-table"]),
        (
            &plain,
            &["--uid-width-metric=4"],
            &["--uid-width-metric is 4: set it to 3"],
        ),
        (&plain, &["--salt-width=1"], &["not written with --salt-width 1"]),
        (&other, &[], &["--uid-width-"]),
        (
            &other,
            &["--uid-width-metric=4", "--uid-width-tagv=5"],
            &["not written with --salt-width 0", "--salt-width 1"],
        ),
        (
            &other,
            &[
                "--uid-width-metric=4",
                "--uid-width-tagv=5",
                "--salt-width=1",
                "--salt-buckets=3",
            ],
            &["--salt-buckets"],
        ),
    ];
    for (tables, flags, says) in cases {
        let checked = check_failed_start(options(&gateway, tables, flags), says).await;
        checked.with_context(|| format!("{flags:?}"))?;
    }
    Ok(())
}

/// Runs `tsdb doctor` on HBase alone; returns its findings, and whether there is an error.
async fn doctor(gateways: &str, tables: &Tables, flags: &[&str]) -> anyhow::Result<(String, bool)> {
    let mut arguments = vec![
        "doctor".to_owned(),
        "--only-hbase".to_owned(),
        "--all".to_owned(),
        format!("--hbase-thrift={gateways}"),
    ];
    arguments.extend(tables.flags());
    arguments.extend(SOON.iter().chain(flags).map(|flag| (*flag).to_owned()));
    let folder = tempfile::tempdir()?;
    let mut process = Process::run("tsdb", arguments, &folder.path().join("log"))?;
    let status = process.wait().await?;
    ensure!(
        matches!(status.code(), Some(0 | 1)),
        "{status}: {}",
        process.log()
    );
    Ok((process.log(), !status.success()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_what_a_start_rejects() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let gateway = rig.gateways()[0].to_string();
    let tables = rig.create_tables("doctor").await?;
    let salted = ["--salt-width=1", "--salt-buckets=7"];
    let tsdb = Tsdb::start_with(options(&gateway, &tables, &salted)).await?;
    for metric in ["a", "b", "c", "d"] {
        write(&tsdb, metric).await?;
    }
    let (healthy, failed) = doctor(&gateway, &tables, &salted).await?;
    ensure!(!failed && healthy.contains(" 0 error, 0 warning"), "{healthy}");
    for checked in ["gateways", "tables", "UID widths", "salt"] {
        ensure!(
            healthy.contains(&format!("ok       {checked}")),
            "{checked}: {healthy}"
        );
    }
    let missing = Tables {
        meta: format!("{}-no", tables.meta),
        ..tables.clone()
    };
    let family = Tables {
        uid: tables.meta.clone(),
        ..tables.clone()
    };
    let mut closed = Proxy::start(rig.gateways()[0]).await?;
    closed.refuse().await;
    let two = format!("{gateway},{}", closed.address());
    let cases: [(&str, &Tables, &[&str], &[&str]); 5] = [
        (
            &gateway,
            &missing,
            &salted,
            &["error    tables", "-no` is missing", "tsdb tables create"],
        ),
        (
            &gateway,
            &family,
            &salted,
            &["error    tables", "no `id`", "--uid-table"],
        ),
        (
            &gateway,
            &tables,
            &["--uid-width-tagk=4"],
            &["error    UID widths", "set it to 3"],
        ),
        (&gateway, &tables, &[], &["error    salt", "--salt-width 1 fits"]),
        (
            &two,
            &tables,
            &salted,
            &["warning  gateways", "Connection refused", "ok       salt"],
        ),
    ];
    for (gateways, tables, flags, says) in cases {
        let (report, failed) = doctor(gateways, tables, flags).await?;
        ensure!(failed == says[0].starts_with("error"), "{report}");
        for part in says {
            ensure!(report.contains(part), "`{part}`: {report}");
        }
    }
    // The settings of a server's file.
    let file = tsdb.folder().join("oxtsdb.toml");
    std::fs::write(&file, "salt_width = 1\nsalt_buckets = 7\n")?;
    let config = format!("--config={}", file.display());
    let (report, failed) = doctor(&gateway, &tables, &[&config]).await?;
    ensure!(!failed, "{report}");
    Ok(())
}

/// Runs `tsdb tables create` and returns its output.
async fn create(rig: &Rig, tables: &Tables, flags: &[&str]) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let mut arguments = vec![
        "tables".to_owned(),
        "create".to_owned(),
        format!("--hbase-thrift={}", rig.gateways()[0]),
    ];
    arguments.extend(tables.flags());
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let mut process = Process::run("tsdb", arguments, &folder.path().join("log"))?;
    let status = process.wait().await?;
    ensure!(status.success(), "{status}: {}", process.log());
    Ok(process.log())
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_opentsdbs_tables() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let tables = rig.new_tables("made");
    // One exists already, with a setting of its own.
    let store = ThriftStore::connect(ThriftConfig::new([rig.gateways()[0].to_string()])).await?;
    let mut tree = TableDef::new(tables.tree.parse()?, &["t"]);
    tree.families[0].max_versions = 2;
    ensure!(store.create_table(&tree).await?);

    let printed = create(&rig, &tables, &["--compression=gz", "--ttl-seconds=315360000"]).await?;
    for made in [&tables.data, &tables.uid, &tables.meta] {
        ensure!(printed.contains(&format!("made {made}\n")), "{printed}");
        // The Thrift server cannot do that; HBase's shell can.
        let alter = format!("alter '{made}', {{NAME => ");
        ensure!(
            printed.contains(&alter) && printed.contains("DATA_BLOCK_ENCODING => 'DIFF'"),
            "{printed}"
        );
    }
    ensure!(printed.contains(&format!("there {}\n", tables.tree)), "{printed}");
    let again = create(&rig, &tables, &[]).await?;
    ensure!(!again.contains("made "), "{again}");

    for (table, families, settings) in [
        (
            &tables.data,
            &["t"][..],
            &["VERSIONS => '1'", "TTL => '315360000 SECONDS"][..],
        ),
        (
            &tables.uid,
            &["id", "name"],
            &["VERSIONS => '1'", "TTL => 'FOREVER'"],
        ),
        (&tables.meta, &["name"], &["VERSIONS => '1'", "TTL => 'FOREVER'"]),
    ] {
        let described = rig.describe(table).await?;
        ensure!(
            described.matches("NAME => ").count() == families.len(),
            "{described}"
        );
        let names = families.iter().map(|family| format!("NAME => '{family}'"));
        let all = ["BLOOMFILTER => 'ROW'", "COMPRESSION => 'GZ'"]
            .iter()
            .chain(settings);
        for setting in names.chain(all.map(|setting| (*setting).to_owned())) {
            ensure!(described.contains(&setting), "`{setting}`: {described}");
        }
    }

    let opentsdb = rig.opentsdb(&tables, &[]).await?;
    let point = Sample::int("theirs", &[("host", "a")], 1_356_998_400_000, 7);
    opentsdb.put(&[point.to_json()]).await?;
    let tsdb = Tsdb::start_with(Options::default().flags(rig.flags(&tables))).await?;
    let ours = write(&tsdb, "ours").await?;
    check_read(&tsdb, &point).await?;
    until("OpenTSDB reads both", || async {
        for sample in [&point, &ours] {
            let series = opentsdb.series_of(&sample.metric).await?;
            let points: Vec<(i64, Number)> = series.into_values().flatten().collect();
            ensure!(points == [(sample.timestamp_ms, sample.value)], "{points:?}");
        }
        Ok(())
    })
    .await
}
