//! A pseudo-terminal with a program in it.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::until;

/// A program with a terminal of 24 lines; dropping it kills the program.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keys: File,
    /// The program's end, open so that its modes can be read.
    terminal: File,
    before: Termios,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a command in a new terminal with this many columns.
    ///
    /// # Errors
    ///
    /// If there is no terminal, or the command cannot be run.
    pub fn run(mut command: Command, columns: u16) -> anyhow::Result<Self> {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&keys)?;
        unlockpt(&keys)?;
        let name = ptsname(&keys, Vec::new())?;
        let terminal = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
        let (keys, terminal) = (File::from(keys), File::from(terminal));
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size)?;
        let before = tcgetattr(&terminal)?;

        let child = command
            .stdin(Stdio::from(terminal.try_clone()?))
            .stdout(Stdio::from(terminal.try_clone()?))
            .stderr(Stdio::from(terminal.try_clone()?))
            .spawn()?;
        // It holds copies of the terminal.
        drop(command);
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let (mut output, copy) = (keys.try_clone()?, Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            loop {
                match output.read(&mut bytes) {
                    Ok(read) if read > 0 => lock(&copy).extend_from_slice(&bytes[..read]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    _ => return,
                }
            }
        });
        Ok(Self {
            child,
            keys,
            terminal,
            before,
            shown,
        })
    }

    /// Types.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub fn keys(&mut self, keys: &str) -> anyhow::Result<()> {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }

    /// All that the program has written.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&lock(&self.shown)).into_owned()
    }

    /// Waits until the program writes a text anew.
    ///
    /// # Errors
    ///
    /// If it does not, within a minute.
    pub async fn wait_for(&self, text: &str) -> anyhow::Result<()> {
        let before = self.shown().len();
        until(&format!("the terminal shows `{text}`"), || async {
            let shown = self.shown();
            let new = shown.get(before..).unwrap_or_default();
            ensure!(new.contains(text), "{shown}");
            Ok(())
        })
        .await
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = Pid::from_raw(i32::try_from(self.child.id())?).context("an id")?;
        Ok(kill_process(id, signal)?)
    }

    /// Waits until the program ends, and checks that the terminal is as before: its modes, the main screen, the
    /// cursor, line wrap. Returns the status, and what the program wrote to the main screen at its end.
    ///
    /// # Errors
    ///
    /// If it does not end, or leaves the terminal otherwise.
    pub async fn ended(mut self) -> anyhow::Result<(ExitStatus, String)> {
        let status = {
            let child = Mutex::new(&mut self.child);
            until("the program ends", || async {
                let status = lock(&child).try_wait()?;
                status.context("it still runs")
            })
            .await?
        };
        let leave = "\u{1b}[?1049l";
        let shown = until("the end of the output", || async {
            let shown = self.shown();
            ensure!(shown.contains(leave), "the alternate screen is left: {shown}");
            Ok(shown)
        })
        .await?;
        for (on, off) in [
            ("\u{1b}[?1049h", leave),
            ("\u{1b}[?25l", "\u{1b}[?25h"),
            ("\u{1b}[?7l", "\u{1b}[?7h"),
        ] {
            let (on, off) = (shown.rfind(on), shown.rfind(off));
            ensure!(on.is_some() && on < off, "{on:?} {off:?} in {shown}");
        }
        let after = tcgetattr(&self.terminal)?;
        let modes = |termios: &Termios| {
            (
                termios.local_modes,
                termios.input_modes,
                termios.output_modes,
                termios.control_modes,
            )
        };
        ensure!(
            modes(&after) == modes(&self.before),
            "{after:?}, before {:?}",
            self.before
        );
        let rest = shown.rsplit_once(leave).map_or("", |(_, rest)| rest);
        Ok((status, rest.to_owned()))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
