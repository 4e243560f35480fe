//! `tsdb import`, and what it stored.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::harness::{Process, Server};

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Lines of points 10 s apart, of three hosts in turn.
fn lines(from: u32, to: u32) -> String {
    let line = |i: u32| format!("m {} {i} host=h{}\n", 1_346_846_400 + i * 10, i % 3);
    (from..to).map(line).collect()
}

#[test]
fn stores_valid_lines_and_reports_rejected_ones() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let plain = folder.path().join("plain.txt");
    let packed = folder.path().join("packed.txt");
    let errors = folder.path().join("errors.txt");
    std::fs::write(
        &plain,
        "sys.cpu.nice 1346846400 18 host=web01 dc=lga\n\
         sys.cpu.nice 1346846410 NaN host=web01 dc=lga\n\
         put sys.cpu.nice 1346846410 0.1 host=web01 dc=lga\n\
         sys.cpu.nice 1346846420 19\n\
         sys.cpu\u{20ac} 1346846420 19 host=web01\n\
         sys.cpu.nice 1346846420 19 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1\n",
    )
    .unwrap();
    std::fs::write(
        &packed,
        gzip("sys.cpu.nice 1346846430 20 host=web01 dc=lga\r\nbroken\n"),
    )
    .unwrap();
    let (plain, packed) = (plain.to_str().unwrap(), packed.to_str().unwrap());
    let done = server
        .run(&["import", "--errors", errors.to_str().unwrap(), plain, packed])
        .failed(1);
    assert!(done.stdout.starts_with("3 points in "), "{}", done.stdout);
    assert!(done.stdout.ends_with(", 5 lines rejected\n"), "{}", done.stdout);
    let places: Vec<&str> = done
        .stderr
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let expected = [
        format!("{plain}:2"),
        format!("{plain}:4"),
        format!("{plain}:5"),
        format!("{plain}:6"),
        format!("{packed}:2"),
    ];
    assert_eq!(places, expected, "{}", done.stderr);
    assert!(
        done.stderr.contains("\u{20ac}"),
        "the name is named: {}",
        done.stderr
    );
    assert!(
        done.stderr.contains("9 tags"),
        "the rule is named: {}",
        done.stderr
    );
    let mut written: Vec<String> = std::fs::read_to_string(errors)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let mut shown: Vec<String> = done.stderr.lines().map(str::to_owned).collect();
    written.sort_unstable();
    shown.sort_unstable();
    assert_eq!(written, shown);

    let result = server
        .run(&[
            "query",
            "--format",
            "json",
            "1346846000",
            "1346847000",
            "none:sys.cpu.nice",
        ])
        .ok();
    assert!(
        result.contains("\"dps\":{\"1346846400\":18,\"1346846410\":0.1,\"1346846430\":20}"),
        "{result}"
    );
}

#[test]
fn unreadable_files_do_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let done = server
        .run_with(&["import", "/nowhere/points.txt", "-"], &lines(0, 10))
        .failed(1);
    assert!(done.stdout.starts_with("10 points in "), "{}", done.stdout);
    assert!(
        done.stderr.starts_with("/nowhere/points.txt: "),
        "{}",
        done.stderr
    );
}

#[test]
fn imports_the_output_of_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let one = Server::start(&folder.path().join("one"));
    let mut text = lines(0, 1000);
    text += "f 1346846400250 0.5 host=h0\nf 1346846401 42.0 host=h0\nf 1346846402 -1e300 host=h0\n";
    one.run_with(&["import", "-"], &text).ok();
    let copied = one.run(&["scan", "--all", "--import"]).ok();
    let mut sorted: Vec<&str> = copied.lines().collect();
    sorted.sort_unstable();
    let mut expected: Vec<String> = text
        .lines()
        .map(|line| line.replace("-1e300", "-1.0E300"))
        .collect();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
    let two = Server::start(&folder.path().join("two"));
    two.run_with(&["import", "-"], &copied).ok();
    assert_eq!(two.run(&["scan", "--all", "--import"]).ok(), copied);
}

#[test]
fn a_crash_of_the_server_loses_and_duplicates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("data"));
    let mut command = server.command(&["--log", "warn", "import", "--patience", "60", "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut import = Process(command.spawn().unwrap());
    let mut stdin = import.0.stdin.take().unwrap();
    let mut stderr = BufReader::new(import.0.stderr.take().unwrap());
    // More than a batch, so that something is sent before the crash.
    stdin.write_all(lines(0, 30_000).as_bytes()).unwrap();
    server.kill9();
    let mut warning = String::new();
    stderr.read_line(&mut warning).unwrap();
    assert!(warning.contains("write stream broke, reconnecting"), "{warning}");
    let server = server.start_again();
    stdin.write_all(lines(30_000, 50_000).as_bytes()).unwrap();
    drop(stdin);
    let mut stdout = String::new();
    BufReader::new(import.0.stdout.take().unwrap())
        .read_line(&mut stdout)
        .unwrap();
    assert!(import.0.wait().unwrap().success(), "{stdout}");
    // Points that were stored and not acknowledged are sent again, so more may be counted, never fewer.
    assert!(stdout.ends_with(", 0 lines rejected\n"), "{stdout}");
    let end = (1_346_846_400 + 50_000 * 10).to_string();
    let result = server
        .run(&[
            "query",
            "--format",
            "csv",
            "1346846400",
            &end,
            "sum:0all-count:m",
            "sum:0all-sum:m",
        ])
        .ok();
    let values: Vec<&str> = result
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap())
        .collect();
    let sum = 50_000_u64 * 49_999 / 2;
    assert_eq!(values[0], "50000.0", "{result}");
    assert_eq!(
        values[1].parse::<f64>().unwrap().to_string(),
        sum.to_string(),
        "{result}"
    );
}

#[test]
fn fails_with_one_line_without_a_server() {
    let mut command = crate::harness::tsdb(&["import", "--target", "http://127.0.0.1:1", "-"]);
    let done = crate::harness::run(command.stdin(Stdio::null())).failed(1);
    assert!(
        done.stderr
            .starts_with("tsdb: import at http://127.0.0.1:1: UNAVAILABLE: "),
        "{}",
        done.stderr
    );
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
}

#[test]
fn frames_fit_the_window_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(&folder.path().join("data"), |command| {
        command.args(["--stream-window-points", "100"]);
    });
    let file = folder.path().join("points.txt");
    std::fs::write(&file, lines(0, 5000)).unwrap();
    let done = server.run(&["import", file.to_str().unwrap()]).ok();
    assert!(done.starts_with("5000 points in "), "{done}");
}

#[test]
fn stores_rollups_and_reports_rejected_ones() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"aggregationIds": {"sum": 0, "count": 1}, "intervals": [
        {"table": "tsdb", "preAggregationTable": "agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
        {"table": "hours", "preAggregationTable": "hours-agg", "interval": "1h", "rowSpan": "1d"}]}"#;
    let server = Server::start_with(&folder.path().join("data"), |command| {
        command.args(["--rollups-config", config]);
    });
    let file = folder.path().join("rollups.txt");
    std::fs::write(
        &file,
        "rollup 1h-sum m 1346846400 18 host=web01\n\
         rollup 1h-count m 1346846400 6 host=web01\n\
         m 1346846400 5 host=web01\n\
         rollup 2h-sum m 1346846400 18 host=web01\n\
         rollup 1h-max m 1346846400 18 host=web01\n\
         rollup 1h-sum m 1346850000 0.5 host=web01\n\
         rollup 1h-sum m 1346850000\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let done = server.run(&["import", file]).failed(1);
    assert!(done.stdout.starts_with("4 points in "), "{}", done.stdout);
    assert!(done.stdout.ends_with(", 3 lines rejected\n"), "{}", done.stdout);
    for (line, rule) in [(4, "2h"), (5, "max"), (7, "has 4 words")] {
        let place = format!("{file}:{line}: ");
        let reason = done.stderr.lines().find_map(|line| line.strip_prefix(&place));
        assert!(
            reason.is_some_and(|reason| reason.contains(rule)),
            "{place}{rule}\n{}",
            done.stderr
        );
    }
    let query = |expression| {
        let range = ["query", "1346846400", "1346853599", expression];
        server.run(&range).ok()
    };
    let sums = query("sum:1h-sum:m");
    assert!(sums.contains("18") && sums.contains("0.5"), "{sums}");
    let averages = query("sum:1h-avg:m");
    assert!(averages.contains('3') && !averages.contains("18"), "{averages}");
}
