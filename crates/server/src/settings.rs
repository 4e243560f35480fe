//! Sources of settings, for all programs.
//!
//! ```text
//!   flag  >  OXTSDB_… environment variable  >  --config (TOML)  >  default
//! ```
//!
//! A value of the file becomes the default of its flag. The definition of the flag is the only place that
//! knows a setting: a new flag can be set in the file without further code.

mod error;
mod file;
mod help;
mod template;
mod variables;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Command, Parser};
use thiserror::Error;

pub(crate) use self::error::one_line;
pub use self::error::{FileError, SettingError, in_range};
pub use self::file::{FileSetting, FileSettings, check, is_setting, read_toml};
pub use self::help::with_short_help;
pub use self::template::{PrintConfig, settings_file};
pub use self::variables::unknown_variables;

/// Arguments of a program that are not valid.
#[derive(Debug, Error)]
pub enum ArgumentsError {
    /// A flag or an environment variable; or a request for help or the version.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The file of `--config`.
    #[error(transparent)]
    File(#[from] FileError),
    /// A request for a settings file, which is the text.
    #[error("{0}")]
    PrintConfig(String),
}

/// Parses the arguments of program `P`, with the settings of its `--config` file as defaults.
///
/// `--help` lists the common settings ([`with_short_help`]).
///
/// # Errors
///
/// As [`ArgumentsError`] says.
pub fn parse<P: Parser>(arguments: &[OsString]) -> Result<P, ArgumentsError> {
    let program = with_short_help(P::command());
    let mut command = program.clone();
    // Names the file; its values are the defaults of the second pass.
    let given = command.clone().try_get_matches_from(arguments)?;
    if let Some(path) = given.get_one::<PathBuf>("config") {
        let file = read_toml(path, &command)?;
        command = with_defaults(command, &file);
    }
    let matches = command.try_get_matches_from(arguments)?;
    if let Ok(Some(selection)) = matches.try_get_one("print_config") {
        let text = settings_file(&program, &matches, *selection);
        return Err(ArgumentsError::PrintConfig(text));
    }
    Ok(P::from_arg_matches(&matches)?)
}

/// `command` with the checked values of a file as defaults of its flags. Of several files, apply the highest
/// precedence last.
pub fn with_defaults(mut command: Command, settings: &FileSettings) -> Command {
    for (id, FileSetting { value, .. }) in settings {
        if is_setting(&command, id) {
            // clap requires a static lifetime; settings live as long as the program.
            let value: &'static str = value.clone().leak();
            command = command.mut_arg(id, |arg| arg.default_value(value));
        }
    }
    command
}
