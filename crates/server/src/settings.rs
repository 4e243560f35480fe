//! Where settings come from, for all our programs.
//!
//! ```text
//!   flag  >  OXTSDB_… environment variable  >  --config (TOML)  >  default
//! ```
//!
//! A key of the TOML file is a flag's name with `_` in place of `-`. What the file says becomes the
//! default of the flag, so nothing else has to know the settings: a flag that is added to a service
//! can be set in the file at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, Parser};
use thiserror::Error;

/// Flags that cannot be keys of the file: the first names the file.
const NOT_IN_A_FILE: [&str; 3] = ["config", "help", "version"];

/// What a file sets: by the identifier of the flag, which is the TOML key.
pub type FileSettings = BTreeMap<String, FileSetting>;

/// One setting of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSetting {
    /// The value as it would stand behind the flag.
    pub value: String,
    /// Where it is from, for errors: "oxtsdb.toml: max_tags".
    pub origin: String,
}

/// Why a setting cannot be used, wherever it is from: `--max-tags 0: expected 1 to 64`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting} {value}: {rule}")]
pub struct SettingError {
    /// The flag.
    pub setting: &'static str,
    /// What it was set to.
    pub value: String,
    /// What is allowed.
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

/// Why the arguments of a program cannot be used.
#[derive(Debug, Error)]
pub enum ArgumentsError {
    /// A flag or an environment variable; or help or the version was asked for.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The file that `--config` names.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The program `P` of these arguments, with what its `--config` file says for what they leave open.
///
/// # Errors
///
/// As [`ArgumentsError`] says.
pub fn parse<P: Parser>(arguments: &[OsString]) -> Result<P, ArgumentsError> {
    let mut command = P::command();
    // The file is named by a flag, and is the default of all others.
    let given = command.clone().try_get_matches_from(arguments)?;
    if let Some(path) = given.get_one::<PathBuf>("config") {
        let file = read_toml(path, &command)?;
        command = with_defaults(command, &file);
    }
    Ok(P::from_arg_matches(&command.try_get_matches_from(arguments)?)?)
}

/// Why the settings of a file cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: {message}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// Line, column and what is wrong.
        message: String,
    },
    /// A key that no flag has.
    #[error("{}: `{key}` is not a setting{}", path.display(), did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// A setting of nearly that name.
        nearest: Option<String>,
    },
    /// A value that is a table, an array or a date.
    #[error("{}: {key} is of type {found}, expected a string, a number or a boolean", path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What stands there.
        found: &'static str,
    },
    /// A value that the flag does not take.
    #[error("{origin} = `{value}`: {rule}")]
    BadValue {
        /// File and key.
        origin: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        rule: String,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(", did you mean `{nearest}`?"))
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
    for (key, value) in table {
        if !is_setting(command, &key) {
            let nearest = nearest(&key, command);
            let path = path.to_owned();
            return Err(FileError::UnknownKey { path, key, nearest });
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(boolean) => boolean.to_string(),
            other => {
                let found = other.type_str();
                let path = path.to_owned();
                return Err(FileError::WrongType { path, key, found });
            }
        };
        let origin = format!("{}: {key}", path.display());
        settings.insert(key, FileSetting { value, origin });
    }
    check(command, &settings)?;
    Ok(settings)
}

/// What is wrong, and in which line.
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

/// The setting whose name differs least, if it does not differ much.
fn nearest(key: &str, command: &Command) -> Option<String> {
    command
        .get_arguments()
        .map(|arg| arg.get_id().as_str())
        .filter(|id| is_setting(command, id))
        .map(|id| (strsim::jaro_winkler(key, id), id))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, id)| id.to_owned())
}

/// Checks values that a file sets as if they stood behind their flags.
///
/// # Errors
///
/// [`FileError::BadValue`], for a value that the flag would refuse too.
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

/// `command` with checked values of a file as the defaults of the flags that it has. Apply the file
/// that counts most last.
pub fn with_defaults(mut command: Command, settings: &FileSettings) -> Command {
    for (id, FileSetting { value, .. }) in settings {
        if is_setting(&command, id) {
            // clap keeps texts that live as long as the program, as these do.
            let value: &'static str = value.clone().leak();
            command = command.mut_arg(id, |arg| arg.default_value(value));
        }
    }
    command
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

/// Joins the lines of a message; tools show a failed start as one.
pub(crate) fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests;
