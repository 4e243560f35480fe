//! The TOML file of `--config`.
//!
//! A key of the TOML file is a flag's name with `_` for `-`. Keys stand at the top of the file, or in the
//! table that is named after the flag's heading in `--help`:
//!
//! ```text
//!   data_dir = "/var/lib/oxtsdb"        --data-dir, which is under "Store"
//!   [write_streams]                     "Write streams"
//!   stream_window_frames = 128          --stream-window-frames
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Arg, ArgAction, Command};

use super::error::{FileError, one_line};

/// Flags that cannot be keys of the file: the first names the file, the others print and exit.
const NOT_IN_A_FILE: [&str; 5] = ["config", "help", "help_all", "print_config", "version"];

/// The settings of a file, by the identifier of the flag, which is the TOML key.
pub type FileSettings = BTreeMap<String, FileSetting>;

/// A setting of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSetting {
    /// The value, as an argument of the flag.
    pub value: String,
    /// File and key, for errors: "oxtsdb.toml: max_tags".
    pub origin: String,
}

/// Reads a TOML file of settings of `command`, and checks them as their flags would.
///
/// # Errors
///
/// [`FileError`], which names the file and the key.
pub fn read_toml(path: &Path, command: &Command) -> Result<FileSettings, FileError> {
    let text = std::fs::read_to_string(path).map_err(|error| FileError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    from_toml(path, &text, command)
}

fn from_toml(path: &Path, text: &str, command: &Command) -> Result<FileSettings, FileError> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| FileError::NotToml {
            path: path.to_owned(),
            message: toml_message(&error, text),
        })?;
    let mut settings = FileSettings::new();
    let tables = table_names(command);
    // "Store" is a group and a setting.
    let is_group = |key: &str| tables.contains(key) || !is_setting(command, key);
    let (groups, top): (Vec<_>, Vec<_>) = table
        .into_iter()
        .partition(|(key, value)| value.is_table() && is_group(key));
    for (key, value) in top {
        let setting = setting_of(path, &key, &key, value, command)?;
        settings.insert(key, setting);
    }
    for (table, values) in groups {
        let toml::Value::Table(values) = values else {
            continue;
        };
        check_group(path, &table, command)?;
        for (key, value) in values {
            let setting = setting_of(path, &key, &format!("{table}.{key}"), value, command)?;
            check_place(path, &table, &key, command)?;
            if settings.contains_key(&key) {
                let path = path.to_owned();
                return Err(FileError::Duplicate { path, key, table });
            }
            settings.insert(key, setting);
        }
    }
    check(command, &settings)?;
    Ok(settings)
}

/// The setting at `place`, the key or `table.key`.
fn setting_of(
    path: &Path,
    key: &str,
    place: &str,
    value: toml::Value,
    command: &Command,
) -> Result<FileSetting, FileError> {
    let path = path.to_owned();
    if !is_setting(command, key) {
        let settings = command.get_arguments().map(|arg| arg.get_id().as_str());
        let settings = settings.filter(|id| is_setting(command, id));
        let nearest = nearest(key, settings.map(str::to_owned));
        let key = place.to_owned();
        return Err(FileError::UnknownKey { path, key, nearest });
    }
    let value = match value {
        toml::Value::String(text) => text,
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(boolean) => boolean.to_string(),
        other => {
            let (key, type_name) = (place.to_owned(), other.type_str());
            return Err(FileError::WrongType { path, key, type_name });
        }
    };
    let origin = format!("{}: {place}", path.display());
    Ok(FileSetting { value, origin })
}

/// The table of the settings under a heading: "Write streams" is `write_streams`.
pub(super) fn table_name(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "_")
}

/// The tables of the settings of `command`.
fn table_names(command: &Command) -> BTreeSet<String> {
    let settings = command
        .get_arguments()
        .filter(|arg| is_setting(command, arg.get_id().as_str()));
    settings
        .filter_map(Arg::get_help_heading)
        .map(table_name)
        .collect()
}

/// Checks that there are settings for a table.
fn check_group(path: &Path, table: &str, command: &Command) -> Result<(), FileError> {
    let tables = table_names(command);
    if tables.contains(table) {
        return Ok(());
    }
    Err(FileError::UnknownTable {
        path: path.to_owned(),
        table: table.to_owned(),
        nearest: nearest(table, tables.into_iter()),
    })
}

/// Checks that a setting belongs to a table.
fn check_place(path: &Path, table: &str, key: &str, command: &Command) -> Result<(), FileError> {
    let heading = setting(command, key).and_then(Arg::get_help_heading);
    let own = heading.map(table_name);
    if own.as_deref() == Some(table) {
        return Ok(());
    }
    Err(FileError::OtherTable {
        path: path.to_owned(),
        key: key.to_owned(),
        table: table.to_owned(),
        place: own.map_or_else(|| "at the top".to_owned(), |own| format!("in `[{own}]`")),
    })
}

/// The error with its line.
fn toml_message(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| format!("line {}: ", before.matches('\n').count() + 1));
    format!("{}{}", line.unwrap_or_default(), one_line(error.message()))
}

/// The flag of a key, if it can be set in a file.
fn setting<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command
        .get_arguments()
        .find(|arg| arg.get_id() == key && arg.get_long().is_some() && !NOT_IN_A_FILE.contains(&key))
}

/// Whether a flag of `command` can be set by this key of a file.
pub fn is_setting(command: &Command, key: &str) -> bool {
    setting(command, key).is_some()
}

/// The most similar name, if there is one.
pub(super) fn nearest(name: &str, names: impl Iterator<Item = String>) -> Option<String> {
    names
        .map(|other| (strsim::jaro_winkler(name, &other), other))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, other)| other)
}

/// Checks values of a file by the rules of their flags.
///
/// # Errors
///
/// [`FileError::BadValue`], for a value that the flag rejects.
pub fn check(command: &Command, settings: &FileSettings) -> Result<(), FileError> {
    for (id, FileSetting { value, origin }) in settings {
        let Some(arg) = setting(command, id) else { continue };
        check_alone(arg, value).map_err(|rule| FileError::BadValue {
            origin: origin.clone(),
            value: value.clone(),
            rule,
        })?;
    }
    Ok(())
}

/// The rule that the value breaks, if it breaks one.
fn check_alone(arg: &Arg, value: &str) -> Result<(), String> {
    if matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) {
        return match value {
            "true" | "false" => Ok(()),
            _ => Err("expected true or false".to_owned()),
        };
    }
    let alone = Command::new("file")
        .no_binary_name(true)
        .arg(arg.clone().global(false));
    let flag = format!("--{}={value}", arg.get_long().unwrap_or_default());
    let parsed = alone.try_get_matches_from([flag]);
    parsed.map(|_| ()).map_err(|error| reason_of(&error))
}

/// The rule that a value breaks, in one line.
fn reason_of(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    if let Some(source) = std::error::Error::source(error) {
        return one_line(&source.to_string());
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) => format!("expected {}", values.join(" or ")),
        _ => one_line(&error.to_string()),
    }
}

#[cfg(test)]
mod tests;
