//! The server under test as a process, and its resource usage.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// A process that was started here; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

/// A running `tsdb serve`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    /// Stays open, so that the server can write to it.
    _output: BufReader<ChildStdout>,
    /// HTTP and telnet.
    pub(crate) http: SocketAddr,
    /// gRPC of the data service.
    pub(crate) data: SocketAddr,
    /// gRPC of the UID service.
    pub(crate) uid: SocketAddr,
    /// Metrics, if the flags have `--admin-listen`.
    pub(crate) admin: Option<SocketAddr>,
    /// From the start of the process until it reported ready.
    pub(crate) start_time: Duration,
    program: PathBuf,
    folder: PathBuf,
    flags: Vec<String>,
}

/// Resources used by a process since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Processor time, user and system, seconds.
    pub(crate) cpu_seconds: f64,
    /// Peak memory, bytes.
    pub(crate) peak_memory: u64,
    /// Memory now, bytes.
    pub(crate) memory: u64,
    /// Bytes that it wrote to files.
    pub(crate) written_bytes: u64,
}

impl Process {
    /// Starts a command without input.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let started = command.stdin(Stdio::null()).spawn();
        let name = command.get_program().to_string_lossy();
        Ok(Self(started.with_context(|| format!("start {name}"))?))
    }

    /// Processor time and memory so far.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        usage(&self.0.id().to_string())
    }

    /// Whether it has not exited yet.
    pub(crate) fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    /// Kills it with SIGKILL.
    fn kill(mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and waits for its exit.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.0.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(
            pid.context("the process has an id")?,
            rustix::process::Signal::TERM,
        )?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the server ended with {status} after SIGTERM");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts `program serve` on an embedded store in `folder` and waits until it serves.
    pub(crate) fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let data_dir = folder.to_str().context("the folder's name is text")?.to_owned();
        Self::start_with(program, folder, &["--data-dir".to_owned(), data_dir])
    }

    /// Starts `program serve` with these flags; its log is named after `folder`.
    pub(crate) fn start_with(program: &Path, folder: &Path, flags: &[String]) -> anyhow::Result<Self> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.with_extension("log"))?;
        let started = Instant::now();
        let mut process = Process::start(
            Command::new(program)
                .arg("serve")
                .env("OXTSDB_ADMIN_LISTEN", "none")
                .args(flags)
                .args([
                    "--http-listen",
                    "127.0.0.1:0",
                    "--data-listen",
                    "127.0.0.1:0",
                    "--uid-listen",
                    "127.0.0.1:0",
                ])
                .stdout(Stdio::piped())
                .stderr(log),
        )?;
        let mut output = BufReader::new(process.0.stdout.take().context("its output is piped")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let start_time = started.elapsed();
        let address = |front_end: &str| {
            let value = line
                .split_whitespace()
                .find_map(|word| word.strip_prefix(front_end)?.strip_prefix('='));
            let value = value.with_context(|| {
                format!(
                    "the server did not say that it is ready; see {}",
                    folder.with_extension("log").display()
                )
            })?;
            anyhow::Ok(value.parse::<SocketAddr>()?)
        };
        Ok(Self {
            http: address("http")?,
            data: address("data")?,
            uid: address("uid")?,
            admin: address("admin").ok(),
            start_time,
            process,
            _output: output,
            program: program.to_owned(),
            folder: folder.to_owned(),
            flags: flags.to_vec(),
        })
    }

    /// Processor time and memory so far.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        self.process.usage()
    }

    /// Flushes of points since the folder was new: each begins another segment of the journal, and the first
    /// segment has number 1.
    pub(crate) fn flushes(&self) -> anyhow::Result<u64> {
        let journal = self.folder.join("data/points/journal");
        let mut newest = 0_u64;
        for entry in fs::read_dir(&journal).with_context(|| journal.display().to_string())? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".journal"));
            newest = newest.max(number.map_or(Ok(0), str::parse)?);
        }
        Ok(newest.saturating_sub(1))
    }

    /// Bytes of the files in its folder.
    pub(crate) fn disk_bytes(&self) -> anyhow::Result<u64> {
        folder_bytes(&self.folder)
    }

    /// Kills it with SIGKILL and starts it again on the same folder.
    pub(crate) fn crash_and_restart(self) -> anyhow::Result<Self> {
        self.process.kill()?;
        Self::start_with(&self.program, &self.folder, &self.flags)
    }

    /// Sends SIGTERM and waits for its exit.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.process.stop()
    }
}

/// Processor seconds of all processes with an argument that begins with `prefix`.
pub(crate) fn cpu_seconds_of(argument: &str) -> anyhow::Result<f64> {
    let mut seconds = 0.0;
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .filter(|name| name.parse::<u32>().is_ok())
            .map(str::to_owned)
        else {
            continue;
        };
        // Processes may exit meanwhile.
        let Ok(command) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        if command
            .split(|byte| *byte == 0)
            .any(|word| word.starts_with(argument.as_bytes()))
        {
            seconds += usage(&pid)?.cpu_seconds;
        }
    }
    Ok(seconds)
}

/// Processor time and memory of this process.
pub(crate) fn own_usage() -> anyhow::Result<Usage> {
    usage("self")
}

fn usage(pid: &str) -> anyhow::Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name in parentheses and may contain blanks.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat has a name")?;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
    let user = ticks.next().context("utime")??;
    let system = ticks.next().context("stime")??;
    #[expect(clippy::cast_precision_loss, reason = "it is 100")]
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;

    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let bytes = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes: u64 = value
            .with_context(|| name.to_owned())?
            .trim()
            .trim_end_matches(" kB")
            .parse()?;
        anyhow::Ok(kibibytes * 1024)
    };
    let io = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(Usage {
        cpu_seconds: (user + system) / ticks_per_second,
        peak_memory: bytes("VmHWM:")?,
        memory: bytes("VmRSS:")?,
        written_bytes: written.context("write_bytes")?.parse()?,
    })
}

/// Bytes of the files in a folder and below it.
pub(crate) fn folder_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // The server deletes files meanwhile.
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes += folder_bytes(&entry.path())?,
            Ok(metadata) => bytes += metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
