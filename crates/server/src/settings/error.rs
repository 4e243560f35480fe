//! Errors of settings. Each is one line that names the setting, its value and the rule.

use std::fmt::Display;
use std::path::PathBuf;

use thiserror::Error;

/// A setting that breaks a rule, from any source: `--max-tags 0: expected 1 to 64`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting} {value}: {rule}")]
pub struct SettingError {
    /// The flag.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// The allowed values.
    pub rule: String,
}

impl SettingError {
    /// `setting` was set to `value`, which `rule` does not allow.
    pub fn new(setting: &'static str, value: impl Display, rule: impl Display) -> Self {
        Self {
            setting,
            value: value.to_string(),
            rule: rule.to_string(),
        }
    }
}

/// Checks that a setting is one of `least` to `most`.
///
/// # Errors
///
/// If it is not.
pub fn in_range<T: PartialOrd + Display>(
    setting: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), SettingError> {
    if (&least..=&most).contains(&&value) {
        return Ok(());
    }
    Err(SettingError::new(
        setting,
        value,
        format_args!("expected {least} to {most}"),
    ))
}

/// A file of settings that is not valid.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: {message}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// The line and the error.
        message: String,
    },
    /// A table that is not a heading of flags.
    #[error("{}: `[{table}]` is not a group of settings{}", path.display(), similar_table(table, nearest.as_deref()))]
    UnknownTable {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
        /// A group with a similar name.
        nearest: Option<String>,
    },
    /// A key of another table.
    #[error("{}: `{key}` is not a setting of `[{table}]`, expected it {place}", path.display())]
    OtherTable {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The table that has it.
        table: String,
        /// The place where it belongs.
        place: String,
    },
    /// A key that is at the top and in a table.
    #[error("{}: `{key}` is set twice, at the top and in `[{table}]`", path.display())]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The table.
        table: String,
    },
    /// A key that no flag has.
    #[error("{}: `{key}` is not a setting{}", path.display(), did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// A setting with a similar name.
        nearest: Option<String>,
    },
    /// A value that is an array, a date or a nested table.
    #[error("{}: {key} is of type {type_name}, expected a string, a number or a boolean", path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its type.
        type_name: &'static str,
    },
    /// A value that the flag rejects.
    #[error("{origin} = `{value}`: {rule}")]
    BadValue {
        /// File and key.
        origin: String,
        /// The value.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },
}

fn similar_table(table: &str, nearest: Option<&str>) -> String {
    match table {
        // `tsd.storage.max_tags = 9` is a table in TOML.
        "tsd" => "; OpenTSDB's settings are for a file of `tsdb serve --opentsdb-conf`".to_owned(),
        _ => did_you_mean(nearest),
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `--print-config=all` lists the settings".to_owned(),
        |nearest| format!(", did you mean `{nearest}`?"),
    )
}

/// Joins the lines of a message: tools show a failed start as one line.
pub(crate) fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
