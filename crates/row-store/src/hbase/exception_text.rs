//! The texts of HBase's exceptions, which have facts that no field has.

use crate::{StoreError, TableName};

/// The most characters of a foreign message that are propagated.
const MAX_DETAIL: usize = 400;

/// The first line of a message, truncated.
pub(super) fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default().trim_end();
    match line.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// The error of an exception that rejects the request itself: its table, its family or its counter. `names` says whether the
/// exception is of a class.
pub(super) fn rejection(
    line: &str,
    names: impl Fn(&str) -> bool,
    table: Option<&TableName>,
) -> Option<StoreError> {
    if let Some(table) = table {
        if names("TableNotFoundException") {
            return Some(StoreError::NoSuchTable { table: table.clone() });
        }
        if names("NoSuchColumnFamilyException") {
            return Some(StoreError::NoSuchFamily {
                table: table.clone(),
                family: family_in(line),
            });
        }
    }
    counter_length(line).map(|length| StoreError::NotACounter { length })
}

/// The family in `Column family c does not exist in region ...`.
fn family_in(line: &str) -> String {
    line.split("olumn family ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_default()
        .to_owned()
}

/// The length in `Field is not a long, it's 7 bytes wide`.
fn counter_length(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("Field is not a long, it's ")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_messages_to_one_bounded_line() {
        assert_eq!(
            first_line("java.io.IOException: no\n\tat java.lang.Thread.run"),
            "java.io.IOException: no"
        );
        assert_eq!(first_line(""), "");
        let long = first_line(&"é".repeat(1_000));
        assert_eq!(long.chars().count(), MAX_DETAIL + 1);
        assert!(long.ends_with('…'));
    }
}
