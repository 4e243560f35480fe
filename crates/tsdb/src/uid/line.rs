//! The line that `tsdb uid` prints for a mapping.

use std::process::ExitCode;

use oxtsdb_client::{Uid, UidKind};
use oxtsdb_command::stdout::print;

pub(super) fn line(kind: UidKind, name: &str, uid: Uid) -> String {
    format!("{kind} {name}: {uid}\n")
}

/// Prints the mappings found; fails without any.
///
/// # Errors
///
/// Standard output cannot be written.
pub(super) fn print_found(lines: &str) -> anyhow::Result<ExitCode> {
    print(lines)?;
    Ok(if lines.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_one_line_each() {
        assert_eq!(
            line(UidKind::Metric, "sys.cpu", Uid::from_bytes(&[0, 15, 66]).unwrap()),
            "metrics sys.cpu: 000F42\n"
        );
    }
}
