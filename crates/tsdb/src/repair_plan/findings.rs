//! The report of a check: counts of findings.

use comfy_table::{CellAlignment, Table, presets};

/// A table of findings: severity, type, count; empty without findings.
pub(crate) fn table(counts: impl Iterator<Item = (&'static str, String, u64)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["severity", "finding", "count"]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (severity, finding, count) in counts {
        table.add_row([severity.to_owned(), finding, count.to_string()]);
    }
    if table.is_empty() {
        return String::new();
    }
    format!("{table}\n")
}

/// The part of the last line that counts what was too young for a check.
pub(crate) fn left_alone(count: u64) -> String {
    match count {
        0 => String::new(),
        count => format!(", {count} too young to tell"),
    }
}

/// The name of a type of findings without the prefix of its enum; `name` is `None` for types of a newer server.
pub(crate) fn type_name(name: Option<&str>, prefix: &str, number: i32) -> String {
    match name {
        Some(name) => name.strip_prefix(prefix).unwrap_or(name).to_owned(),
        None => format!("TYPE_{number}"),
    }
}
