//! A program that runs for a test and is killed when the test ends, however it ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, bail};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};

use crate::{program, wait};

/// A running program; its standard output and error go to a file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Runs a program of this workspace, with an environment that has no setting of ours.
    ///
    /// # Errors
    ///
    /// If it cannot be built or run.
    pub fn run<I, S>(name: &str, arguments: I, log: &Path) -> anyhow::Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Self::run_limited(name, arguments, log, None)
    }

    /// As [`Process::run`], with a limit of descriptors, soft and hard.
    ///
    /// # Errors
    ///
    /// As [`Process::run`].
    pub fn run_limited<I, S>(
        name: &str,
        arguments: I,
        log: &Path,
        descriptors: Option<u64>,
    ) -> anyhow::Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Self::run_program(&program::path(name)?, arguments, log, descriptors, &[])
    }

    /// As [`Process::run_limited`], of any program, with more variables.
    ///
    /// # Errors
    ///
    /// As [`Process::run`].
    pub fn run_program<I, S>(
        program: &Path,
        arguments: I,
        log: &Path,
        descriptors: Option<u64>,
        variables: &[(String, String)],
    ) -> anyhow::Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let output = File::options().create(true).append(true).open(log)?;
        let mut command = match descriptors {
            None => Command::new(program),
            Some(limit) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(script).arg(program);
                shell
            }
        };
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("OXTSDB_") {
                command.env_remove(variable);
            }
        }
        // Programs run side by side; tests that use an admin listener have a flag for it.
        command.env("OXTSDB_ADMIN_LISTEN", "none");
        // No load balancer has to be waited for.
        command.env("OXTSDB_LAME_DUCK_SECONDS", "0");
        let variables = variables.iter().map(|(name, value)| (name, value));
        let child = command
            .envs(variables)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("run {}", program.display()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
            ended: None,
        })
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns its exit status if it has exited.
    ///
    /// # Errors
    ///
    /// If the status cannot be read.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    ///
    /// If it has exited; with its output.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => bail!("the program exited with {status}; its output:\n{}", self.log()),
        }
    }

    /// `kill -9`.
    ///
    /// # Errors
    ///
    /// If it cannot be killed or waited for.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        if self.ended()?.is_none() {
            self.child.kill()?;
            self.ended = Some(self.child.wait()?);
        }
        Ok(())
    }

    /// Requests a shutdown (SIGTERM).
    ///
    /// # Errors
    ///
    /// If it has exited.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends a signal; STOP and CONT suspend and resume it.
    ///
    /// # Errors
    ///
    /// If it has exited.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid()?, signal).with_context(|| format!("{signal:?}"))
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        Pid::from_raw(i32::try_from(self.child.id())?).context("a process has a number")
    }

    /// Cuts the TCP connections that it has and `is_cut` selects, in both directions: by a copy of the socket, so that neither side
    /// notices before. Returns how many.
    ///
    /// # Errors
    ///
    /// If it does not run, or may not be traced.
    pub fn cut_connections(&self, is_cut: impl Fn(&TcpStream) -> bool) -> anyhow::Result<usize> {
        let process = pidfd_open(self.pid()?, PidfdFlags::empty())?;
        let mut cut = 0;
        for entry in fs::read_dir(format!("/proc/{}/fd", self.id()))? {
            let entry = entry?;
            // Another descriptor of the directory may be closed by now.
            let is_socket =
                fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
            if !is_socket {
                continue;
            }
            let number = entry.file_name().to_string_lossy().parse()?;
            let copy = match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
                Err(Errno::BADF) => continue,
                copy => TcpStream::from(copy?),
            };
            // Not a TCP socket with a peer: no address.
            if copy.peer_addr().is_ok() && is_cut(&copy) && copy.shutdown(Shutdown::Both).is_ok() {
                cut += 1;
            }
        }
        Ok(cut)
    }

    /// Returns the number of its open descriptors.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn descriptors(&self) -> anyhow::Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// Waits until it exits.
    ///
    /// # Errors
    ///
    /// If it does not exit in time.
    pub async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let waited = wait::until("the program ends", || {
            let ended = self.ended();
            async { ended?.context("it still runs") }
        })
        .await;
        waited.with_context(|| self.log())
    }

    /// Returns its peak resident memory, in bytes (`VmHWM` of Linux).
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn peak_memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .context("VmHWM")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has exited.
        let _ = self.kill9();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default();
            eprintln!("--- last lines of {}:\n{}", self.log.display(), last.join("\n"));
        }
    }
}
