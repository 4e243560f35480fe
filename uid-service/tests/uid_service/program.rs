//! `uid-service` as a program: its settings and its shutdown.
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use oxtsdb_client::{UidClient, UidKind};
use tempfile::TempDir;

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uid-service"));
    command.env_clear().env("OXTSDB_ADMIN_LISTEN", "none");
    command.args(arguments).stderr(Stdio::piped());
    command
}

/// Its error, one line, and its exit code.
fn error_line(output: &Output) -> (String, i32) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let line = text
        .strip_prefix("uid-service: ")
        .unwrap_or_else(|| panic!("{text}"));
    let line = line.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "more than one line: {text}");
    (line.to_owned(), output.status.code().unwrap())
}

#[test]
fn reports_a_bad_setting_in_one_line() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let data_dir = format!("--data-dir={}", data.display());
    let error_of = |argument: &str| error_line(&program(&[&data_dir, argument]).output().unwrap()).0;
    assert_eq!(
        error_of("--uid-width-metric=9"),
        "--uid-width-metric 9: 9 bytes is not a UID width, expected 1 to 8"
    );
    assert_eq!(
        error_of("--uid-listen=here"),
        "invalid value 'here' for '--uid-listen <ADDRESS:PORT>': invalid socket address syntax"
    );
    assert_eq!(
        error_of("--uid-widths=3"),
        "unexpected argument '--uid-widths' found, did you mean '--uid-width-tagv'?"
    );
    assert_eq!(
        error_of("--log-format=xml"),
        "invalid value 'xml' for '--log-format <FORMAT>': `xml` is not a log format, expected `text` or `json`"
    );
    let variable = program(&[&data_dir])
        .env("OXTSDB_UID_WIDTH_TAGK", "0")
        .output()
        .unwrap();
    assert_eq!(
        error_line(&variable),
        (
            "--uid-width-tagk 0: 0 bytes is not a UID width, expected 1 to 8".into(),
            1
        )
    );
    assert!(!data.exists(), "nothing was created");
}

#[test]
fn reports_a_bad_file_in_one_line() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("uids.toml");
    let error_of = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = program(&["--config", file.to_str().unwrap()])
            .current_dir(&folder)
            .output()
            .unwrap();
        let (line, code) = error_line(&output);
        assert_eq!(code, 1);
        line.strip_prefix(&format!("{}: ", file.display()))
            .expect("the file is named")
            .to_owned()
    };
    assert_eq!(
        error_of("uid_width_tagk = 2\nwidth = 3"),
        "`width` is not a setting; `--print-config=all` lists the settings"
    );
    assert_eq!(
        error_of("uid_width_tagk = 'two'"),
        "uid_width_tagk = `two`: invalid digit found in string"
    );
    assert!(error_of("uid_width_tagk = 2\nuid_listen").starts_with("line 2: "));
}

/// A running program; killed at the end of the test.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = program(&["--uid-listen=127.0.0.1:0"]);
        let mut child = command.args(arguments).current_dir(folder).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut lines = log.lines().map(Result::unwrap);
        let line = lines
            .find(|line| line.contains("gRPC is served"))
            .expect("it logs its address");
        let address = line
            .split("address=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .unwrap();
        let address = address.parse().unwrap();
        // Keeps reading, so that a full pipe never blocks the program.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn client(&self) -> UidClient {
        UidClient::connect(&format!("http://{}", self.address)).unwrap()
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(kill.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn assign(client: &UidClient, names: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let names: Vec<_> = names
        .map(|number| (UidKind::Metric, format!("m{number}")))
        .collect();
    let results = client.get_or_create_uids(&names, false).await.unwrap();
    results
        .into_iter()
        .map(|result| result.unwrap().uid.as_bytes().to_vec())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uids_survive_a_shutdown_and_a_kill() {
    let folder = TempDir::new().unwrap();
    fs::write(
        folder.path().join("uids.toml"),
        "uid_width_metric = 4\nuid_listen = '203.0.113.1:80'",
    )
    .unwrap();
    let arguments = ["--config=uids.toml", "--data-dir=data"];
    let mut running = Running::start(folder.path(), &arguments);
    let first = assign(&running.client(), 0..10).await;
    assert_eq!(first[9], [0, 0, 0, 10], "the width of the file");

    let second = program(&["--data-dir=data", "--uid-listen=127.0.0.1:0"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let (line, code) = error_line(&Output {
        stderr: last_line(&second.stderr),
        ..second
    });
    assert!(
        line.contains(&format!("is in use by process {}", running.child.id())),
        "{line}"
    );
    assert_eq!(code, 1);

    running.signal("-TERM");
    assert_eq!(
        running.child.wait().unwrap().code(),
        Some(0),
        "SIGTERM is an orderly end"
    );

    let running = Running::start(folder.path(), &arguments);
    let after_end = assign(&running.client(), 0..20).await;
    assert_eq!(after_end[..10], first);
    running.signal("-KILL");
    drop(running);
    let running = Running::start(folder.path(), &arguments);
    assert_eq!(assign(&running.client(), 0..21).await[..20], after_end);
    drop(running);

    let other_width = program(&["--data-dir=data", "--uid-listen=127.0.0.1:0"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let (line, _) = error_line(&Output {
        stderr: last_line(&other_width.stderr),
        ..other_width
    });
    assert!(
        line.ends_with("has a UID of 4 bytes, but --uid-width-metric is 3: set it to 4"),
        "{line}"
    );
}

/// The last line, without the log before it.
fn last_line(text: &[u8]) -> Vec<u8> {
    let start = text[..text.len().saturating_sub(1)]
        .iter()
        .rposition(|byte| *byte == b'\n');
    text[start.map_or(0, |newline| newline + 1)..].to_vec()
}
