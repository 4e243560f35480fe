//! A server of its own for each test, and the program's other commands against it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tsdb");

/// The program with arguments, without settings from our own environment.
pub(crate) fn tsdb(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OXTSDB_")) {
        command.env_remove(name);
    }
    // Servers of several tests run at a time.
    command.env("OXTSDB_ADMIN_LISTEN", "none").args(arguments);
    command
}

/// The output of a command, and its exit status.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            status: output.status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    /// Standard output of a command that must have ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.stdout
    }

    /// A command that must have failed with a status.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Done {
    command.output().unwrap().into()
}

/// A process that does not outlive its test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `tsdb serve`.
pub(crate) struct Server {
    process: Process,
    /// Kept open, or the server would write its log to a closed pipe.
    _stdout: BufReader<ChildStdout>,
    folder: PathBuf,
    pub(crate) http: String,
    pub(crate) data: String,
    pub(crate) uid: String,
}

impl Server {
    /// On free ports, with data in a folder.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, |_| ())
    }

    /// As [`Server::start`], with more arguments or variables.
    pub(crate) fn start_with(folder: &Path, change: impl Fn(&mut Command)) -> Self {
        Self::start_at(folder, ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"], change)
    }

    /// On given addresses: HTTP, data, UID.
    pub(crate) fn start_at(
        folder: &Path,
        [http, data, uid]: [&str; 3],
        change: impl Fn(&mut Command),
    ) -> Self {
        let mut command = serve_command(folder);
        command.args(["--http-listen", http, "--data-listen", data, "--uid-listen", uid]);
        change(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let process = Process(child);
        let mut ready = String::new();
        // Ends with the line, or with the process.
        stdout.read_line(&mut ready).unwrap();
        let address = |name: &str| {
            let mut words = ready.split_whitespace();
            let word = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.unwrap_or_else(|| panic!("the server is not ready: `{ready}`"))
                .to_owned()
        };
        Self {
            http: address("http"),
            data: address("data"),
            uid: address("uid"),
            process,
            _stdout: stdout,
            folder: folder.to_owned(),
        }
    }

    /// The same addresses and folder again, after it has ended.
    pub(crate) fn start_again(self) -> Self {
        let Self {
            process,
            folder,
            http,
            data,
            uid,
            ..
        } = self;
        drop(process);
        Self::start_at(&folder, [&http, &data, &uid], |_| ())
    }

    /// A client command.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tsdb(arguments);
        command
            .env("OXTSDB_TARGET", format!("http://{}", self.data))
            .env("OXTSDB_UID_TARGET", format!("http://{}", self.uid));
        command
    }

    /// Runs a client command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        run(&mut self.command(arguments))
    }

    /// Runs a client command that reads `input`.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Done {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap().into()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// `kill -9`, as a crash.
    pub(crate) fn kill9(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// Sends a signal, such as `-TERM`; how it ended.
    pub(crate) fn end_by(mut self, signal: &str) -> ExitStatus {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        self.process.0.wait().unwrap()
    }
}

/// `serve` on a folder.
pub(crate) fn serve_command(folder: &Path) -> Command {
    let mut command = tsdb(&["--log", "warn", "serve", "--data-dir"]);
    command.arg(folder);
    command
}

/// `serve` that is not meant to come up, on free ports.
pub(crate) fn serve_that_fails(folder: &Path, change: impl Fn(&mut Command)) -> Done {
    let mut command = serve_command(folder);
    command.args([
        "--http-listen",
        "127.0.0.1:0",
        "--data-listen",
        "127.0.0.1:0",
        "--uid-listen",
        "127.0.0.1:0",
    ]);
    change(&mut command);
    run(&mut command)
}
