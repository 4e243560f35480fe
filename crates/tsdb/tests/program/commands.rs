//! Commands that read: query, scan, uid, mkmetric, health, version.

use crate::harness::{Server, run, tsdb};

const EXAMPLE: &str = "sys.cpu.nice 1346846400 18 host=web01 dc=lga\n";

#[test]
fn scans_the_documented_example() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run_with(&["import", "-"], EXAMPLE).ok();
    let full = server.run(&["scan", "--utc", "sys.cpu.nice"]).ok();
    let lines: Vec<&str> = full.lines().collect();
    assert_eq!(
        lines[0],
        "00000150473ec0000001000001000002000002\tsys.cpu.nice\t1346846400\t2012-09-05 12:00:00Z\thost=web01 dc=lga"
    );
    assert!(lines[1].starts_with("  0000\t12\tpoint\t"), "{full}");
    assert_eq!(lines[2..], ["    1346846400\t18"], "{full}");

    let raw = server
        .run(&[
            "scan",
            "--raw",
            "--no-names",
            "--tsuid",
            "000001000001000001000002000002",
        ])
        .ok();
    assert!(
        raw.starts_with("00000150473ec0000001000001000002000002\t000001000001000001000002000002\t"),
        "{raw}"
    );
    assert_eq!(raw.lines().count(), 2, "{raw}");
    let decoded = server
        .run(&[
            "scan",
            "--decoded",
            "1346846400",
            "1346846400",
            "sys.cpu.nice",
            "host=*",
        ])
        .ok();
    assert_eq!(decoded.lines().nth(1), Some("    1346846400\t18"), "{decoded}");
    assert_eq!(
        server.run(&["scan", "1346850000", "now", "sys.cpu.nice"]).ok(),
        "",
        "the hour after"
    );
    assert_eq!(server.run(&["scan", "--all", "--import"]).ok(), EXAMPLE);

    let missing = server.run(&["scan", "sys.cpu.user"]).failed(1);
    assert!(
        missing.stderr.contains("NOT_FOUND") && missing.stderr.contains("sys.cpu.user"),
        "{}",
        missing.stderr
    );
    assert_eq!(missing.stderr.lines().count(), 1, "{}", missing.stderr);
}

#[test]
fn limits_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let lines: String = (0..10)
        .map(|hour| format!("m {} 1 a=b\n", 1_346_846_400 + hour * 3600))
        .collect();
    server.run_with(&["import", "-"], &lines).ok();
    for (limit, rows) in [("0", 10), ("3", 3), ("10", 10), ("100", 10)] {
        let output = server.run(&["scan", "--raw", "--limit", limit, "m"]).ok();
        assert_eq!(
            output.lines().filter(|line| !line.starts_with(' ')).count(),
            rows,
            "{output}"
        );
    }
}

#[test]
fn results_are_printed_as_table_json_csv_and_chart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let lines: String = (0..6)
        .map(|i| format!("m {} {} host=h{}\n", 1_346_846_400 + i / 2 * 60, i, i % 2))
        .collect();
    server.run_with(&["import", "-"], &lines).ok();
    let query = |arguments: &[&str]| {
        let mut all = vec!["query", "--utc"];
        all.extend(arguments);
        server.run(&all)
    };
    let range = ["2012/09/05-12:00:00", "2012/09/05-13:00:00"];
    let with_range = |format: &[&'static str], expression: &'static str| {
        let mut words = format.to_vec();
        words.extend(range);
        words.push(expression);
        query(&words)
    };
    let json = with_range(&["--format", "json"], "sum:m{host=*}").ok();
    assert_eq!(
        json,
        "[{\"metric\":\"m\",\"tags\":{\"host\":\"h0\"},\"aggregateTags\":[],\"dps\":{\"1346846400\":0,\"1346846460\":2,\"1346846520\":4}},\
         {\"metric\":\"m\",\"tags\":{\"host\":\"h1\"},\"aggregateTags\":[],\"dps\":{\"1346846400\":1,\"1346846460\":3,\"1346846520\":5}}]\n"
    );
    let csv = with_range(&["--format", "csv"], "sum:m").ok();
    assert_eq!(
        csv.lines().nth(1),
        Some("m,,1346846400000,2012-09-05 12:00:00Z,1"),
        "{csv}"
    );
    let table = with_range(&[], "max:m").ok();
    assert!(
        table.starts_with("m{}: 3 points, aggregated over host\n"),
        "{table}"
    );
    assert!(
        table.contains("2012-09-05 12:02:00Z") && table.contains('5'),
        "{table}"
    );
    let chart = with_range(&["--plot", "--plot-series", "1"], "sum:m{host=*}").ok();
    assert!(
        chart.contains("values 0 to 4") && chart.contains("1 more series"),
        "{chart}"
    );

    let doubled = [
        "--format",
        "csv",
        "--expr",
        "alias(scale(sum:m{host=h1},2),twice)",
    ];
    let csv = query(&[&doubled[..], &range].concat()).ok();
    assert_eq!(
        csv.lines().nth(2),
        Some("twice,,1346846460000,2012-09-05 12:01:00Z,6"),
        "{csv}"
    );
    let sum = ["--format", "json", "--expr", "sum(sum:m{host=h0},max:m{host=h0})"];
    assert_eq!(
        query(&[&sum[..], &range].concat()).ok(),
        "[{\"metric\":\"m\",\"tags\":{\"host\":\"h0\"},\"aggregateTags\":[],\"dps\":{\"1346846400\":0.0,\"1346846460\":4.0,\"1346846520\":8.0}}]\n"
    );
    let both = with_range(&["--expr", "absolute(sum:m)"], "sum:m").failed(1);
    assert!(
        both.stderr.contains("with --expr there are no other"),
        "{}",
        both.stderr
    );

    let unknown = with_range(&[], "sum:unknown").failed(1);
    assert!(
        unknown.stderr.contains("NOT_FOUND") && unknown.stderr.contains("unknown"),
        "{}",
        unknown.stderr
    );
    let wrong = with_range(&[], "total:m").failed(1);
    assert!(
        wrong.stderr.contains("No such aggregation function: total"),
        "{}",
        wrong.stderr
    );
    assert_eq!(query(&["1h-ago", "sum:m"]).ok(), "no series\n");
}

#[test]
fn uids_are_assigned_looked_up_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let uid = |arguments: &[&str]| {
        let mut all = vec!["uid"];
        all.extend(arguments);
        server.run(&all)
    };
    assert_eq!(
        uid(&["assign", "metrics", "sys.cpu", "sys.mem"]).ok(),
        "metrics sys.cpu: 000001\nmetrics sys.mem: 000002\n"
    );
    assert_eq!(
        uid(&["assign", "metrics", "sys.cpu"]).ok(),
        "metrics sys.cpu: 000001\n",
        "it keeps its UID"
    );
    assert_eq!(
        server.run(&["mkmetric", "sys.disk"]).ok(),
        "metrics sys.disk: 000003\n"
    );
    uid(&["assign", "tagk", "host"]).ok();
    let partly = uid(&["assign", "metrics", "bad name", "net.in"]).failed(1);
    assert_eq!(partly.stdout, "metrics net.in: 000004\n");
    assert!(
        partly.stderr.contains("bad name") && partly.stderr.contains("INVALID_ARGUMENT"),
        "{}",
        partly.stderr
    );

    assert_eq!(
        uid(&["lookup", "metrics", "sys.mem"]).ok(),
        "metrics sys.mem: 000002\n"
    );
    assert_eq!(
        uid(&["lookup", "000001"]).ok(),
        "metrics sys.cpu: 000001\ntagk host: 000001\n"
    );
    assert_eq!(
        uid(&["lookup", "tagk", "host", "000001"]).ok(),
        "tagk host: 000001\ntagk host: 000001\n"
    );
    let missing = uid(&["lookup", "host", "unknown"]).failed(1);
    assert_eq!(missing.stdout, "tagk host: 000001\n");
    assert_eq!(
        missing.stderr,
        "unknown: no such name or UID in metrics, tagk, tagv\n"
    );

    assert_eq!(
        uid(&["suggest", "metrics", "sys.", "--max", "2"]).ok(),
        "metrics sys.cpu: 000001\nmetrics sys.disk: 000003\n"
    );
    assert_eq!(uid(&["suggest", "tagv"]).failed(1).stdout, "");
    assert_eq!(
        uid(&["grep", "^sys.*[mu]$"]).ok(),
        "metrics sys.cpu: 000001\nmetrics sys.mem: 000002\n"
    );
    assert_eq!(uid(&["grep", "-i", "tagk", "HOST"]).ok(), "tagk host: 000001\n");
    assert_eq!(uid(&["grep", "HOST"]).failed(1).stdout, "");
    assert!(
        uid(&["grep", "("])
            .failed(1)
            .stderr
            .contains("`(` is not a regular expression")
    );
    assert_eq!(
        uid(&["rename", "metrics", "sys.mem", "sys.memory"]).ok(),
        "metrics sys.memory: 000002\n"
    );
    let taken = uid(&["rename", "metrics", "sys.cpu", "sys.memory"]).failed(1);
    assert!(taken.stderr.contains("is taken"), "{}", taken.stderr);
    let deleted = uid(&["delete", "metrics", "sys.memory", "sys.mem"]).failed(1);
    assert_eq!(deleted.stdout, "metrics sys.memory: 000002\n");
    assert!(deleted.stderr.contains("no such name"), "{}", deleted.stderr);
    let usage = uid(&["usage"]).ok();
    let words: Vec<Vec<&str>> = usage
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(words[1][..3], ["metrics", "4", "16777211"], "{usage}");
    assert_eq!(words[3][..3], ["tagv", "0", "16777215"], "{usage}");
}

#[test]
fn checks_the_health_of_a_server_or_one_service() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    assert_eq!(server.run(&["health"]).ok(), "SERVING\n");
    assert_eq!(
        server
            .run(&["health", "--service", "oxtsdb.data.v1.DataService"])
            .ok(),
        "SERVING\n"
    );
    let uid = format!("http://{}", server.uid);
    let service = [
        "health",
        "--target",
        &uid,
        "--service",
        "oxtsdb.uid.v1.UidService",
    ];
    assert_eq!(server.run(&service).ok(), "SERVING\n");
    assert_eq!(
        server.run(&["health", "--service", "unknown"]).failed(1).stdout,
        "SERVICE_UNKNOWN\n"
    );
    let unreachable = server
        .run(&["health", "--target", "http://127.0.0.1:1"])
        .failed(1);
    assert!(
        unreachable
            .stderr
            .starts_with("tsdb: health check at http://127.0.0.1:1: UNAVAILABLE: "),
        "{}",
        unreachable.stderr
    );
}

#[test]
fn wrong_usage_has_status_2() {
    for arguments in [
        &["quert"][..],
        &["query"],
        &["query", "1h-ago"],
        &["import"],
        &["uid", "assign", "metrics"],
    ] {
        run(&mut tsdb(arguments)).failed(2);
    }
    assert!(
        run(&mut tsdb(&["uid", "assign", "names", "x"]))
            .failed(2)
            .stderr
            .contains("expected metrics, tagk or tagv")
    );
    assert_eq!(
        run(&mut tsdb(&["version"])).ok(),
        format!("tsdb {} (OxTSDB)\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn finds_and_counts_series() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let points = "m 1346846400 1 host=a dc=x\nm 1346846400 1 host=b dc=x\nn 1346846400 1 host=a\n";
    server.run_with(&["import", "-"], points).ok();
    let all = "000001000001000001000002000002\tm\thost=a dc=x\n\
               000001000001000003000002000002\tm\thost=b dc=x\n\
               000002000001000001\tn\thost=a\n";
    assert_eq!(server.run(&["search", "*"]).ok(), all);
    assert_eq!(server.run(&["search", "*", "--use-data-table"]).ok(), all);
    let first = server.run(&["search", "--limit", "1", "m", "dc="]).ok();
    assert_eq!(first.lines().count(), 1, "{first}");
    let output = server
        .run(&["search", "--format", "csv", "host=a|b", "dc=x"])
        .ok();
    assert_eq!(
        output,
        "tsuid,metric,tags\n000001000001000001000002000002,m,host=a dc=x\n\
         000001000001000003000002000002,m,host=b dc=x\n"
    );
    let json = server.run(&["search", "--format", "json", "n"]).ok();
    assert_eq!(
        json,
        "[{\"tsuid\":\"000002000001000001\",\"metric\":\"n\",\"tags\":{\"host\":\"a\"}}]\n"
    );
    assert_eq!(server.run(&["search", "--count", "=a"]).ok(), "2\n");
    assert_eq!(server.run(&["search", "n", "dc="]).failed(1).stdout, "");
    let missing = server.run(&["search", "unknown"]).failed(1);
    assert!(missing.stderr.contains("NOT_FOUND"), "{}", missing.stderr);

    let top = server.run(&["uid", "top"]).ok();
    let lines: Vec<Vec<&str>> = top
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(top.lines().next(), Some("3 series of 2 metrics, 2 tag keys"));
    assert_eq!(lines[3..5], [["host", "2", "3"], ["dc", "1", "2"]]);
    assert_eq!(lines[7..9], [["m", "2"], ["n", "1"]]);
}
