//! `tsdb top`: rates, latencies, running queries, memory and the store of servers, live.
//!
//! ```text
//!   admin listeners ─► Scrape ─► Server (the last two) ─► Frame (sections of figures) ─┬─► layout ─► screen, text
//!                                                                                      └─► JSON
//! ```

mod figure;
mod frame;
mod layout;
mod screen;
mod section;
mod server;

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use self::frame::{Frame, Sort};
use self::server::{Scrape, Server};
use crate::admin::{AdminListener, AdminTargets};

/// The width of frames that are not for a terminal.
const TEXT_WIDTH: usize = 120;

/// Show what servers do: rates, latencies, running queries, memory and store, live
///
/// Reads the admin listeners of servers, and adds up their counts; each server has a line with its health, and a
/// server that does not respond is shown as away. Rates are over the time since the last frame; rates of the first
/// frame, and of a server that has restarted, are since the start of the server. Quantiles are estimates within the
/// buckets of a histogram.
///
/// In a terminal it is a live view. Keys: q, Esc and Ctrl-C quit; p pauses; s changes the order of requests; arrows,
/// Page Up, Page Down, Home and End scroll. With --once, --count or --format, or if standard output is no terminal, it
/// prints frames. `tsdb queries --end` cancels a query.
///
/// Exit status: 0 done; 1 if a URL belongs to no admin listener, or if a server was away in the last frame that was
/// printed; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    admin: AdminTargets,

    /// Time between frames, seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    interval: Duration,

    /// Print one frame; its rates are since the start of the servers
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Print this many frames [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print frames in this form [default: text]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Order of requests
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,

    /// Time-out of each request to a server, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// How frames are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables, an empty line between frames
    Text,
    /// An object a line; numbers are exact, in seconds and bytes
    Json,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected seconds, for example 0.5".to_owned())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("expected 0.1 to 3600 seconds".to_owned()),
    }
}

/// Shows or prints frames.
///
/// # Errors
///
/// If a URL belongs to no admin listener, or the terminal or standard output fails.
pub(crate) async fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    let listeners = args.admin.listeners(Duration::from_secs(args.timeout));
    let mut servers: Vec<Server> = listeners.iter().map(Server::new).collect();
    for (server, scrape) in servers.iter_mut().zip(scrape(&listeners).await) {
        match scrape {
            // Waiting does not help.
            Err(error) if !error.is_away() => return Err(error.into()),
            scrape => server.update(scrape),
        }
    }
    let is_live = !args.once && args.count.is_none() && args.format.is_none() && io::stdout().is_terminal();
    match is_live {
        true => Ok(screen::run(listeners, servers, args.interval, args.sort).await?),
        false => print_frames(&args, &listeners, servers).await,
    }
}

async fn scrape(listeners: &[AdminListener]) -> Vec<Result<Scrape, crate::admin::AdminError>> {
    join_all(listeners.iter().map(Scrape::read)).await
}

async fn print_frames(
    args: &TopArgs,
    listeners: &[AdminListener],
    mut servers: Vec<Server>,
) -> anyhow::Result<ExitCode> {
    let mut next = Instant::now();
    for number in 0..args.count.unwrap_or(1) {
        if number > 0 {
            next += args.interval;
            sleep_until(next).await;
            for (server, scrape) in servers.iter_mut().zip(scrape(listeners).await) {
                server.update(scrape);
            }
        }
        let frame = Frame::new(&servers, args.sort, Timestamp::now());
        let text = match args.format.unwrap_or(Format::Text) {
            Format::Json => format!("{}\n", frame.json()),
            Format::Text => {
                let lines = layout::whole(&frame, TEXT_WIDTH).into_iter();
                let lines: String = lines.map(|line| line.text + "\n").collect();
                let separator = if number > 0 { "\n" } else { "" };
                format!("{separator}{lines}")
            }
        };
        let mut output = io::stdout().lock();
        match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
            // The reader has enough (`| head`).
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            written => written?,
        }
    }
    let is_away = servers.iter().any(|server| server.last.is_none());
    Ok(ExitCode::from(u8::from(is_away)))
}
