//! `tsdb uid usage`: how many UIDs are in use and left.

use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use oxtsdb_client::{UidClient, UidKind};

use crate::stdout::print;
use crate::target::Server;

/// Runs `tsdb uid usage`.
///
/// # Errors
///
/// If the call fails.
pub(super) async fn run(server: &Server<UidClient>) -> anyhow::Result<ExitCode> {
    let usage = server.client.get_uid_usage().await;
    let usage = usage.map_err(|error| server.error("uid usage", &error))?;
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["kind", "used", "available"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for kind in UidKind::ALL {
        for usage in usage.iter().filter(|usage| usage.kind == kind) {
            table.add_row([
                kind.to_string(),
                usage.used.to_string(),
                usage.available.to_string(),
            ]);
        }
    }
    print(&format!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}
