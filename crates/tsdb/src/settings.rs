//! The settings of `tsdb serve`: as all our programs, and from an `opentsdb.conf`.
//!
//! ```text
//!   flag  >  OXTSDB_… environment variable  >  --config (TOML)  >  --opentsdb-conf  >  default
//! ```

pub(crate) mod opentsdb_conf;
pub(crate) mod properties;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args as _, Command};
use data_service::UidAccess;
use oxtsdb_server::settings::{self, FileSettings, PrintConfig};

/// The commands that read settings from files. Files have the settings of `serve`; another command uses the ones that it
/// has a flag for.
const WITH_FILES: [&[&str]; 3] = [&["serve"], &["tables", "create"], &["doctor"]];

/// The matches of `root` for `arguments`, with what the files say that the arguments name.
///
/// Also returns what `opentsdb.conf` said, for the log.
///
/// # Errors
///
/// If a file cannot be used; a wrong argument ends the program as clap does, with its usage.
pub(crate) fn matches(
    root: &Command,
    arguments: &[OsString],
) -> anyhow::Result<(ArgMatches, Option<opentsdb_conf::Outcome>)> {
    let first = root.clone().get_matches_from(arguments);
    let subcommand = WITH_FILES
        .iter()
        .find_map(|path| Some((*path, matches_of(&first, path)?)));
    let Some((path, given)) = subcommand else {
        return Ok((first, None));
    };
    let serve = serve_command(root);
    // Of any of the programs: a data service has settings of its client of the UID service, too.
    let known = match path {
        ["doctor"] => {
            UidAccess::augment_args(serve.clone()).arg(Arg::new("uid_endpoint").long("uid-endpoint"))
        }
        _ => serve.clone(),
    };
    let toml = match given.get_one::<PathBuf>("config") {
        Some(path) => settings::read_toml(path, &known)?,
        None => FileSettings::new(),
    };
    let conf_path = given.get_one::<PathBuf>("opentsdb_conf").cloned();
    let conf_path = conf_path.or_else(|| toml.get("opentsdb_conf").map(|set| PathBuf::from(&set.value)));
    let conf = conf_path.map(|path| opentsdb_conf::read(&path)).transpose()?;

    let mut command = root.clone();
    if let Some(conf) = &conf {
        settings::check(&serve, &conf.settings)?;
        command = with_defaults(command, path, &conf.settings);
    }
    command = with_defaults(command, path, &toml);
    Ok((command.get_matches_from(arguments), conf))
}

/// The settings file of `--print-config`, with the values of `matches`.
pub(crate) fn file(root: &Command, matches: &ArgMatches, selection: PrintConfig) -> String {
    let serve = serve_command(root).name("tsdb serve");
    let matches = matches.subcommand_matches("serve").unwrap_or(matches);
    settings::settings_file(&serve, matches, selection)
}

/// `serve`, with the global flags, which stand at the root.
fn serve_command(root: &Command) -> Command {
    let globals = root.get_arguments().filter(|arg| arg.is_global_set());
    let serve = root.find_subcommand("serve").cloned().unwrap_or_default();
    serve.args(globals.cloned())
}

/// The matches of the command at `path`, if that one was called.
fn matches_of<'a>(matches: &'a ArgMatches, path: &[&str]) -> Option<&'a ArgMatches> {
    path.iter()
        .try_fold(matches, |matches, name| matches.subcommand_matches(name))
}

fn with_defaults(command: Command, path: &[&str], file: &FileSettings) -> Command {
    let command = settings::with_defaults(command, file);
    match path {
        [] => command,
        [name, rest @ ..] => command.mut_subcommand(*name, |inner| with_defaults(inner, rest, file)),
    }
}
