//! How a program starts, and how it reports a failure.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use crate::settings::{self, ArgumentsError, one_line};

/// Runs the program of a service: reads its settings, then calls `run`.
///
/// A failure is one line on standard error: exit code 2 for a wrong flag or variable, 1 otherwise.
pub fn main<P: Parser>(run: impl FnOnce(P) -> anyhow::Result<()>) -> ExitCode {
    let name = P::command().get_name().to_owned();
    let arguments: Vec<_> = std::env::args_os().collect();
    let program = match settings::parse(&arguments) {
        Ok(program) => program,
        // Help or the version.
        Err(ArgumentsError::Usage(error)) if !error.use_stderr() => error.exit(),
        Err(ArgumentsError::Usage(error)) => {
            eprintln!("{name}: {}", usage_line(&error));
            return ExitCode::from(2);
        }
        Err(ArgumentsError::File(error)) => return failed(&name, &error.into()),
        Err(ArgumentsError::PrintConfig(text)) => {
            // The reader may have closed its end.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
    };
    match run(program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&name, &error),
    }
}

/// Reports in one line, with all causes, why a program failed.
pub fn failed(name: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("{name}: {}", one_line(&format!("{error:#}")));
    ExitCode::FAILURE
}

/// The first paragraph of clap's message, which has the error, and the flag or value that it suggests.
fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let mut line = one_line(paragraph.trim_start_matches("error: "));
    let similar = [ContextKind::SuggestedArg, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(|kind| match error.get(kind)? {
            ContextValue::String(name) => Some(name),
            ContextValue::Strings(names) => names.first(),
            _ => None,
        });
    if let Some(similar) = similar {
        line += &format!(", did you mean '{similar}'?");
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn reports_a_wrong_flag_in_one_line() {
        let line = |argument| {
            let command =
                Command::new("program").arg(Arg::new("store").long("store").value_parser(["a", "b"]));
            usage_line(&command.try_get_matches_from(["program", argument]).unwrap_err())
        };
        assert_eq!(
            line("--stores"),
            "unexpected argument '--stores' found, did you mean '--store'?"
        );
        assert_eq!(line("--zzz"), "unexpected argument '--zzz' found");
        assert_eq!(
            line("--store=c"),
            "invalid value 'c' for '--store <store>' [possible values: a, b]"
        );
    }
}
