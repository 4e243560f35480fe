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

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Command, Parser};
use thiserror::Error;

pub(crate) use self::error::one_line;
pub use self::error::{FileError, SettingError, in_range};
pub use self::file::{FileSetting, FileSettings, check, is_setting, read_toml};

/// Arguments of a program that are not valid.
#[derive(Debug, Error)]
pub enum ArgumentsError {
    /// A flag or an environment variable; or a request for help or the version.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The file of `--config`.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Parses the arguments of program `P`, with the settings of its `--config` file as defaults.
///
/// # Errors
///
/// As [`ArgumentsError`] says.
pub fn parse<P: Parser>(arguments: &[OsString]) -> Result<P, ArgumentsError> {
    let mut command = P::command();
    // Names the file, whose values are the defaults of the second pass.
    let given = command.clone().try_get_matches_from(arguments)?;
    if let Some(path) = given.get_one::<PathBuf>("config") {
        let file = read_toml(path, &command)?;
        command = with_defaults(command, &file);
    }
    Ok(P::from_arg_matches(&command.try_get_matches_from(arguments)?)?)
}

/// `command` with the checked values of a file as defaults of its flags. Of several files, apply the one with
/// the highest precedence last.
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
