//! `tsdb uid watch`.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::{UidClient, UidEvent, UidKind, UidMapping, WatchOptions, WatchUpdate};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;
use tracing::warn;

use super::line::line;

/// Print assignments, renames and deletes as they happen
///
/// A line for each event: `assigned`, `renamed OLD ->` or `deleted`, then the mapping. Reconnects
/// when the connection breaks; `resync` means that events were lost. Runs until it is interrupted.
#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Of these kinds only: metrics, tagk, tagv
    #[arg(value_name = "KIND")]
    kinds: Vec<UidKind>,
    /// Without assignments
    #[arg(long)]
    no_assigned: bool,
    /// Exit after this number of events
    #[arg(long, value_name = "COUNT")]
    count: Option<usize>,
}

/// Runs `tsdb uid watch`.
///
/// # Errors
///
/// The first connection fails, or standard output cannot be written.
pub(super) async fn run(server: &Server<UidClient>, args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let mut watch = server.client.watch(WatchOptions {
        kinds: args.kinds.clone(),
        skip_assigned: args.no_assigned,
        ..WatchOptions::default()
    });
    let mut left = args.count.unwrap_or(usize::MAX);
    let mut is_open = false;
    while left > 0 {
        match watch.next().await {
            WatchUpdate::Events { events, .. } => {
                for event in events.iter().take(left) {
                    print(&event_line(event))?;
                }
                left -= events.len().min(left);
            }
            WatchUpdate::Resync { .. } if is_open => print("resync\n")?,
            WatchUpdate::Resync { .. } | WatchUpdate::Heartbeat => {}
            WatchUpdate::Interrupted(error) if is_open => warn!("{}", server.error("uid watch", &error)),
            WatchUpdate::Interrupted(error) => return Err(server.error("uid watch", &error)),
        }
        is_open = true;
    }
    Ok(ExitCode::SUCCESS)
}

fn event_line(event: &UidEvent) -> String {
    let mapping = |mapping: &UidMapping| line(mapping.kind, &mapping.name, mapping.uid);
    match event {
        UidEvent::Assigned(assigned) => format!("assigned {}", mapping(assigned)),
        UidEvent::Renamed {
            mapping: now,
            old_name,
        } => format!("renamed {old_name} -> {}", mapping(now)),
        UidEvent::Deleted(deleted) => format!("deleted {}", mapping(deleted)),
    }
}
