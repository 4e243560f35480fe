//! The live view: draws frames in a terminal, and handles keys.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear, ClearType};
use crossterm::{cursor, execute, queue};
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::frame::{Frame, Sort};
use super::layout::{Choice, Line, Screen, Style};
use super::server::{Scrape, Server};
use crate::admin::{AdminError, AdminListener};

/// The last line.
const KEYS: &str = "q quit  p pause  s sort  arrows scroll";

/// The terminal has to be restored.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// Scrapes that were not taken yet: one of each server, as more servers than these wait.
const QUEUE: usize = 16;

/// Draws until a key or a signal ends it; the terminal is then as before.
///
/// # Errors
///
/// If the terminal cannot be used.
pub(super) async fn run(
    listeners: Vec<AdminListener>,
    servers: Vec<Server>,
    interval: Duration,
    sort: Sort,
) -> io::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let terminal = Terminal::enter()?;
    let mut keys = keys();
    let mut polling = JoinSet::new();
    let (sender, mut scrapes) = mpsc::channel(QUEUE);
    for (at, listener) in listeners.into_iter().enumerate() {
        polling.spawn(poll(at, listener, interval, sender.clone()));
    }
    let mut view = View::new(servers, sort);
    loop {
        terminal.draw(&mut view)?;
        tokio::select! {
            biased;
            number = signals.next() => return Ok(ExitCode::from(128 + number)),
            event = keys.recv() => match event {
                Some(event) => {
                    if view.handle(&event?) == Next::Quit {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                None => return Err(io::Error::other("the terminal has no more input")),
            },
            Some((at, scrape)) = scrapes.recv() => view.update(at, scrape),
        }
    }
}

/// Reads a server again and again. Each has a task, so that one that hangs holds up no other.
async fn poll(
    at: usize,
    listener: AdminListener,
    interval: Duration,
    scrapes: mpsc::Sender<(usize, Result<Scrape, AdminError>)>,
) {
    loop {
        tokio::time::sleep(interval).await;
        let scrape = Scrape::read(&listener).await;
        if scrapes.send((at, scrape)).await.is_err() {
            return;
        }
    }
}

/// Events of the terminal, read by a thread: the end of the process does not wait for it.
fn keys() -> mpsc::UnboundedReceiver<io::Result<Event>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let has_failed = event.is_err();
            if sender.send(event).is_err() || has_failed {
                return;
            }
        }
    });
    receiver
}

/// Signals that end the program. Ctrl-C is a key while the terminal is in raw mode.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The number of the next one.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hang_up.recv() => 1,
        }
    }
}

/// The reaction to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Quit,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct View {
    servers: Vec<Server>,
    at: Timestamp,
    choice: Choice,
    /// Lines of the body above the first one that is shown.
    scrolled: usize,
    /// Lines of the body that fit.
    height: usize,
}

impl View {
    pub(super) fn new(servers: Vec<Server>, sort: Sort) -> Self {
        Self {
            servers,
            at: Timestamp::now(),
            choice: Choice {
                sort,
                is_paused: false,
            },
            scrolled: 0,
            height: 0,
        }
    }

    /// Takes a scrape. One that comes in a pause is dropped; the rates after it are over the whole time.
    pub(super) fn update(&mut self, at: usize, scrape: Result<Scrape, AdminError>) {
        if self.choice.is_paused {
            return;
        }
        if let Some(server) = self.servers.get_mut(at) {
            server.update(scrape);
            self.at = Timestamp::now();
        }
    }

    pub(super) fn handle(&mut self, event: &Event) -> Next {
        let Event::Key(KeyEvent {
            code,
            modifiers,
            kind: KeyEventKind::Press | KeyEventKind::Repeat,
            ..
        }) = event
        else {
            return Next::Continue;
        };
        let page = self.height.max(1);
        match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
            KeyCode::Char('p' | ' ') => self.choice.is_paused = !self.choice.is_paused,
            KeyCode::Char('s') => self.choice.sort = self.choice.sort.next(),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down => self.scrolled += 1,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(page),
            KeyCode::PageDown => self.scrolled += page,
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = usize::MAX - page,
            _ => {}
        }
        Next::Continue
    }

    /// The lines for a screen: the title, a part of the body, the keys.
    pub(super) fn lines(&mut self, width: usize, height: usize) -> Vec<Line> {
        self.height = height.saturating_sub(2);
        let frame = Frame::new(&self.servers, self.choice.sort, self.at);
        let Screen { title, body } = Screen::new(&frame, self.choice, width, self.height);
        let hidden = body.len().saturating_sub(self.height);
        self.scrolled = self.scrolled.min(hidden);
        let mut keys = KEYS.to_owned();
        if hidden > 0 {
            let last = self.scrolled + self.height;
            keys += &format!("  (lines {}-{last} of {})", self.scrolled + 1, body.len());
        }
        let mut lines = vec![title];
        lines.extend(body.into_iter().skip(self.scrolled).take(self.height));
        lines.resize(height.saturating_sub(1).max(1), Line::empty());
        lines.push(Line::footer(&keys, width));
        lines.truncate(height);
        lines
    }
}

/// A terminal that shows an alternate screen, until it is dropped.
struct Terminal(());

impl Terminal {
    fn enter() -> io::Result<Self> {
        // The message of a panic would be lost with the alternate screen.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        terminal::enable_raw_mode()?;
        IS_ENTERED.store(true, Ordering::Release);
        let terminal = Self(());
        execute!(
            io::stdout(),
            terminal::EnterAlternateScreen,
            terminal::DisableLineWrap,
            cursor::Hide
        )?;
        Ok(terminal)
    }

    /// Draws all lines in one write.
    fn draw(&self, view: &mut View) -> io::Result<()> {
        let (width, height) = match terminal::size()? {
            // A terminal that does not know its size, such as a serial line.
            (0, _) | (_, 0) => (80, 24),
            size => size,
        };
        let mut bytes = Vec::new();
        queue!(bytes, terminal::BeginSynchronizedUpdate)?;
        for (row, line) in (0..height).zip(view.lines(usize::from(width), usize::from(height))) {
            queue!(bytes, cursor::MoveTo(0, row))?;
            match line.style {
                Style::Title => queue!(bytes, SetAttribute(Attribute::Reverse))?,
                Style::Header => queue!(bytes, SetAttribute(Attribute::Bold))?,
                Style::Alarm => queue!(bytes, SetForegroundColor(Color::Red))?,
                Style::Plain => {}
            }
            queue!(
                bytes,
                Print(&line.text),
                SetAttribute(Attribute::Reset),
                ResetColor,
                Clear(ClearType::UntilNewLine)
            )?;
        }
        queue!(bytes, terminal::EndSynchronizedUpdate)?;
        let mut output = io::stdout().lock();
        output.write_all(&bytes)?;
        output.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal once, as far as it can be written; a terminal that is gone needs nothing.
fn restore() {
    // A second time would move the cursor above the message of a panic.
    if !IS_ENTERED.swap(false, Ordering::AcqRel) {
        return;
    }
    let _ = execute!(
        io::stdout(),
        terminal::EndSynchronizedUpdate,
        terminal::EnableLineWrap,
        terminal::LeaveAlternateScreen,
        cursor::Show
    );
    let _ = terminal::disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::{data, scrape, server};
    use super::*;

    fn view() -> View {
        View::new(vec![server("a:1", None, &data(1000, 100, 0), 0.0)], Sort::Rate)
    }

    fn press(view: &mut View, code: KeyCode) -> Next {
        view.handle(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn text(view: &mut View, width: usize, height: usize) -> String {
        let lines = view.lines(width, height);
        assert_eq!(lines.len(), height);
        lines.into_iter().map(|line| line.text + "\n").collect()
    }

    #[test]
    fn keys_quit_sort_and_scroll() {
        let mut view = view();
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(press(&mut view, code), Next::Quit);
        }
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.handle(&Event::Key(interrupt)), Next::Quit);
        assert_eq!(press(&mut view, KeyCode::Char('c')), Next::Continue);
        assert_eq!(view.handle(&Event::Resize(10, 10)), Next::Continue);
        press(&mut view, KeyCode::Char('s'));
        assert!(text(&mut view, 100, 30).contains("sorted by errors"));
        let top = text(&mut view, 100, 6);
        assert!(top.contains("SERVER") && top.contains("(lines 1-4 of "), "{top}");
        press(&mut view, KeyCode::Down);
        let second = text(&mut view, 100, 6);
        assert!(
            !second.contains("SERVER") && second.contains("(lines 2-5 of "),
            "{second}"
        );
        press(&mut view, KeyCode::End);
        let end = text(&mut view, 100, 6);
        assert!(end.contains("UIDS") && end.starts_with("tsdb top"), "{end}");
        press(&mut view, KeyCode::Down);
        assert_eq!(text(&mut view, 100, 6), end);
        press(&mut view, KeyCode::PageUp);
        press(&mut view, KeyCode::Home);
        assert_eq!(text(&mut view, 100, 6), top);
        for (width, height) in [(0, 0), (1, 1), (3, 2)] {
            view.lines(width, height);
        }
    }

    #[test]
    fn a_pause_keeps_the_frame() {
        let mut view = view();
        let newer = || Ok(scrape(&data(1000, 4711, 0), std::time::Instant::now()));
        press(&mut view, KeyCode::Char('p'));
        view.update(0, newer());
        let paused = text(&mut view, 100, 30);
        assert!(paused.contains("PAUSED") && !paused.contains("4711"), "{paused}");
        press(&mut view, KeyCode::Char('p'));
        view.update(0, newer());
        let after = text(&mut view, 100, 30);
        assert!(!after.contains("PAUSED") && after.contains("4711"), "{after}");
    }
}
