//! Starting and stopping, and where settings come from.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use crate::harness::{Server, run, serve_that_fails, tsdb};

/// A failed start is one line that begins with the program's name.
#[track_caller]
fn only_line(stderr: &str) -> &str {
    let mut lines = stderr.lines();
    let line = lines.next().expect("a failed start says why");
    assert_eq!(lines.next(), None, "one line: {stderr}");
    line.strip_prefix("tsdb: ").expect(line)
}

/// The heading of a flattened group must not apply to the options after it.
#[test]
fn help_lists_the_files_of_settings_before_all_groups() {
    for command in [&["serve"][..], &["tables", "create"]] {
        let help = run(tsdb(command).arg("--help")).ok();
        let general = help.split("\nListeners:").next().unwrap_or_default();
        let general = general.split("\nHBase:").next().unwrap_or_default();
        for option in ["--config", "--opentsdb-conf"] {
            assert!(general.contains(option), "{command:?}: {option} is in a group");
        }
    }
}

#[test]
fn help_of_serve_lists_the_settings_that_people_change() {
    let lines = |flag: &str| {
        let help = run(tsdb(&["serve"]).arg(flag)).ok();
        let flags = help.lines().filter(|line| line.trim_start().starts_with("--"));
        (flags.count(), help)
    };
    let ((short, text), (all, _)) = (lines("--help"), lines("--help-all"));
    assert!((20..30).contains(&short), "{short}: {text}");
    assert!(all > 100, "{all}");
    assert!(text.contains("`--help-all` lists all settings"), "{text}");
    for flag in [
        "--http-listen",
        "--data-dir",
        "--hbase-thrift",
        "--memory-limit-mib",
        "--access-policy",
    ] {
        assert!(text.contains(flag), "{flag}: {text}");
    }
}

#[test]
fn the_printed_settings_file_is_valid_with_all_defaults_uncommented() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("oxtsdb.toml");
    let print = |arguments: &[&str]| {
        let mut command = tsdb(&["serve"]);
        run(command.env_remove("OXTSDB_ADMIN_LISTEN").args(arguments)).ok()
    };
    let all = print(&["--print-config=all"]);
    let mut uncommented = 0;
    let defaults: String = all
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(default) if default.starts_with(|c: char| c.is_ascii_lowercase()) => {
                uncommented += 1;
                format!("{default}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(uncommented > 100, "{all}");
    std::fs::write(&config, defaults).unwrap();
    let config = config.to_str().unwrap();
    assert_eq!(print(&["--print-config=all", "--config", config]), all);

    let common = print(&["--print-config"]);
    assert!(common.lines().count() < all.lines().count() / 2, "{common}");
    assert!(
        common.contains("\n#http_listen = \"127.0.0.1:4242\"\n"),
        "{common}"
    );
}

#[test]
fn the_printed_settings_file_has_the_values_that_are_set() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("oxtsdb.toml");
    let conf = folder.path().join("opentsdb.conf");
    std::fs::write(&config, "[writing]\nmax_tags = 9\nlinger_ms = 7\n").unwrap();
    std::fs::write(&conf, "tsd.storage.salt.width = 1\n").unwrap();
    let mut command = tsdb(&["serve", "--print-config", "--log", "warn", "--accept-uid-table"]);
    command.arg("--config").arg(&config);
    command.arg("--opentsdb-conf").arg(&conf);
    command.env("OXTSDB_LINGER_MS", "8");
    let printed = run(&mut command).ok();
    for line in [
        "log = \"warn\"",
        "admin_listen = \"none\"",
        "max_tags = 9",
        "linger_ms = 8",
        "salt_width = 1",
        "accept_uid_table = true",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line}: {printed}"
        );
    }
}

#[test]
fn unknown_variables_are_reported_with_a_similar_one() {
    let folder = tempfile::tempdir().unwrap();
    let failed = serve_that_fails(folder.path(), |command| {
        command.env("OXTSDB_LOG", "warn").env("OXTSDB_DATA_DRI", "secret");
        command.args(["--store", "hbase"]);
    })
    .failed(1);
    let warning = "variable OXTSDB_DATA_DRI is not a setting, did you mean OXTSDB_DATA_DIR?";
    assert!(failed.stderr.contains(warning), "{}", failed.stderr);
    assert!(!failed.stderr.contains("secret"), "{}", failed.stderr);
}

#[test]
fn sigterm_ends_it_with_status_0_and_what_was_stored_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server
        .run_with(&["import", "-"], "sys.cpu.nice 1346846400 18 host=web01 dc=lga\n")
        .ok();
    assert_eq!(server.end_by("-TERM").code(), Some(0));
    let server = Server::start(folder.path());
    let answer = server
        .run(&[
            "query",
            "--format",
            "json",
            "1346846000",
            "1346847000",
            "sum:sys.cpu.nice",
        ])
        .ok();
    assert_eq!(
        answer,
        "[{\"metric\":\"sys.cpu.nice\",\"tags\":{\"dc\":\"lga\",\"host\":\"web01\"},\"aggregateTags\":[],\
         \"dps\":{\"1346846400\":18}}]\n"
    );
}

#[test]
fn sigint_ends_it_too() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Server::start(folder.path()).end_by("-INT").code(), Some(0));
}

#[test]
fn a_folder_in_use_is_refused_with_the_pid() {
    let folder = tempfile::tempdir().unwrap();
    let first = Server::start(folder.path());
    let second = serve_that_fails(folder.path(), |_| ()).failed(1);
    let line = only_line(&second.stderr);
    assert!(line.contains(&folder.path().display().to_string()), "{line}");
    assert!(line.contains(&format!("process {}", first.pid())), "{line}");
    assert_eq!(second.stdout, "", "it was never ready");
}

#[test]
fn a_port_in_use_is_named() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = Server::start(folders[0].path());
    let taken = first.http.clone();
    let mut command = tsdb(&[
        "serve",
        "--data-listen",
        "127.0.0.1:0",
        "--uid-listen",
        "127.0.0.1:0",
    ]);
    command
        .args(["--http-listen", &taken, "--data-dir"])
        .arg(folders[1].path());
    command.env("OXTSDB_LOG", "error");
    let second = run(&mut command).failed(1);
    let line = only_line(&second.stderr);
    assert_eq!(
        line,
        format!(
            "--http-listen {taken}: the port is in use; if another server runs here, set another port, or 0 for a free one"
        )
    );
}

#[test]
fn bad_settings_are_named_with_value_and_rule() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = folder.path().join("oxtsdb.toml");
    let with_file = |text: &str| {
        std::fs::write(&config, text).unwrap();
        let done = serve_that_fails(&data, |command| {
            command.arg("--config").arg(&config);
        });
        only_line(&done.failed(1).stderr).to_owned()
    };
    let path = config.display();
    assert_eq!(
        with_file("uid_widht_metric = 4"),
        format!("{path}: `uid_widht_metric` is not a setting, did you mean `uid_width_metric`?")
    );
    assert!(with_file("max_tags = 'many'").starts_with(&format!("{path}: max_tags = `many`: ")));
    assert!(with_file("uid_width_metric = 9").contains("9 bytes is not a UID width, expected 1 to 8"));
    let flag = serve_that_fails(&data, |command| {
        command.args(["--uid-width-tagk", "9"]);
    });
    assert!(only_line(&flag.failed(1).stderr).contains("9 bytes is not a UID width, expected 1 to 8"));
    let usage = serve_that_fails(&data, |command| {
        command.args(["--store", "rocksdb"]);
    });
    assert!(
        usage
            .failed(2)
            .stderr
            .contains("[possible values: embedded, hbase]")
    );
    assert!(!data.exists(), "a bad setting makes no folder");
}

#[test]
fn a_store_on_hbase_needs_an_address_and_an_address_needs_a_store_on_hbase() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let line_of = |arguments: &[&str]| {
        let done = serve_that_fails(&data, |command| {
            command.args(arguments);
        });
        only_line(&done.failed(1).stderr).to_owned()
    };
    assert_eq!(
        line_of(&["--store", "hbase"]),
        "--store hbase: needs --hbase-quorum HOST[:PORT], --hbase-masters HOST[:PORT] or --hbase-thrift HOST:PORT \
         (HBase's Thrift server)"
    );
    assert_eq!(
        line_of(&[
            "--store",
            "hbase",
            "--hbase-quorum",
            "zk1,zk2:2182",
            "--hbase-thrift",
            "h:9090"
        ]),
        "--hbase-thrift h:9090: excludes --hbase-quorum: each is a way to HBase"
    );
    assert_eq!(
        line_of(&["--hbase-masters", "m1"]),
        "--hbase-masters m1: needs --store hbase, else the points would go to --data-dir"
    );
    assert_eq!(
        line_of(&["--hbase-thrift", "h:9090,[::1]:9090"]),
        "--hbase-thrift h:9090,[::1]:9090: needs --store hbase, else the points would go to --data-dir"
    );
    assert_eq!(
        line_of(&["--store", "hbase", "--hbase-thrift", "h:1", "--hbase-queue", "0"]),
        "--hbase-queue 0: expected 1 to 1048576"
    );
    let config = folder.path().join("oxtsdb.toml");
    std::fs::write(&config, "store = 'hbase'\nhbase_thrift = 'localhost'\n").unwrap();
    assert_eq!(
        line_of(&["--config", config.to_str().unwrap()]),
        format!(
            "{}: hbase_thrift = `localhost`: `localhost` is no gateway, expected HOST:PORT, for example \
             localhost:9090",
            config.display()
        )
    );
    assert!(!data.exists(), "nothing is made where nothing will be");
}

/// An address at which every connection is answered by `answer`, in place of a Thrift server.
fn peer(answer: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn serve_on_hbase_that_fails(gateway: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // The log of the connections comes before.
    let mut command = tsdb(&["--log", "off", "serve", "--store", "hbase", "--data-dir"]);
    command.arg(&data).args(["--hbase-thrift", gateway]);
    command
        .args(["--hbase-connect-timeout-ms", "300"])
        .args(arguments);
    let done = run(&mut command);
    assert!(!data.exists());
    assert_eq!(done.stdout, "", "it was never ready");
    only_line(&done.failed(1).stderr).to_owned()
}

#[test]
fn a_port_that_is_no_gateway_of_hbase_ends_the_start_in_time() {
    const EXPECTED: &str =
        "expected HBase's Thrift server there (`hbase thrift start`; its port is 9090 unless set)";
    // Bound and closed again: no process listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let read_all = |mut stream: TcpStream| drop(std::io::copy(&mut stream, &mut std::io::sink()));
    let silent = peer(read_all);
    let web = peer(|mut stream| {
        let mut request = [0; 64];
        let _ = stream.read(&mut request);
        // The client may be gone already.
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    for (gateway, reason) in [
        (free.to_string(), "Connection refused"),
        ("host.invalid:9090".to_owned(), "failed to lookup address"),
        (silent.to_string(), "no response in time"),
        (web.to_string(), "`HTTP/1.1 400 Bad Request`"),
    ] {
        let line = serve_on_hbase_that_fails(&gateway, &[]);
        assert!(line.starts_with(&format!("--hbase-thrift {gateway}: ")), "{line}");
        assert!(line.contains(reason), "{line}");
        assert!(line.ends_with(EXPECTED), "{line}");
        let framed = serve_on_hbase_that_fails(&gateway, &["--hbase-framed"]);
        assert!(framed.ends_with(EXPECTED), "{framed}");
    }
}

#[test]
fn a_flag_wins_over_the_variable_over_the_file_over_opentsdb_conf() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("oxtsdb.toml");
    let conf = folder.path().join("opentsdb.conf");
    std::fs::write(
        &conf,
        "tsd.storage.uid.width.metric = 2\ntsd.storage.uid.width.tagk : 2\n",
    )
    .unwrap();
    std::fs::write(&config, "uid_width_metric = 4\n").unwrap();
    // The width that won is the length of a UID.
    let widths = |name: &str, change: &dyn Fn(&mut std::process::Command)| {
        let server = Server::start_with(&folder.path().join(name), change);
        let width = |kind: &str| {
            let line = server.run(&["uid", "assign", kind, "m"]).ok();
            line.trim_end().rsplit(' ').next().unwrap().len() / 2
        };
        (width("metrics"), width("tagk"))
    };
    let with = |path: &Path, flag: &str, command: &mut std::process::Command| {
        command.arg(flag).arg(path);
    };
    assert_eq!(
        widths("conf", &|command| with(&conf, "--opentsdb-conf", command)),
        (2, 2)
    );
    let both = |command: &mut std::process::Command| {
        with(&conf, "--opentsdb-conf", command);
        with(&config, "--config", command);
    };
    assert_eq!(widths("file", &both), (4, 2));
    let variable = |command: &mut std::process::Command| {
        both(command);
        command.env("OXTSDB_UID_WIDTH_METRIC", "5");
    };
    assert_eq!(widths("variable", &variable), (5, 2));
    let flag = |command: &mut std::process::Command| {
        variable(command);
        command.args(["--uid-width-metric", "6"]);
    };
    assert_eq!(widths("flag", &flag), (6, 2));
}

#[test]
fn settings_of_opentsdb_without_effect_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("opentsdb.conf");
    std::fs::write(&conf, "tsd.http.cachedir = /secret\ntsd.storage.max_tags = 9\n").unwrap();
    let done = serve_that_fails(&folder.path().join("data"), |command| {
        // It fails after the settings are reported.
        command
            .arg("--opentsdb-conf")
            .arg(&conf)
            .args(["--uid-width-tagv", "0"]);
    })
    .failed(1);
    assert!(done.stderr.contains("tsd.http.cachedir"), "{}", done.stderr);
    assert!(!done.stderr.contains("/secret"), "{}", done.stderr);
    assert!(!done.stderr.contains("tsd.storage.max_tags"), "{}", done.stderr);
}
