//! The TOML file that `--print-config` prints.
//!
//! ```text
//!   #data_dir = "./oxtsdb-data"         a default
//!   data_dir = "/var/lib/oxtsdb"        a value from a flag, a variable or a file
//!   # access_policy = "FILE"            a setting without a default
//! ```
//!
//! A table has its common settings first. A file that has every `#key = default` uncommented is valid.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueEnum};

use super::file::{is_setting, table_name};
use super::help::is_common;

/// Columns of the comments.
const WIDTH: usize = 100;

/// The settings that `--print-config` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrintConfig {
    /// Those that people change, and those that are not at their default
    Common,
    /// All
    All,
}

/// A settings file for `command` with the values of `matches`.
///
/// `command` has the defaults of the program, `matches` is from `command` with the defaults of files.
pub fn settings_file(command: &Command, matches: &ArgMatches, selection: PrintConfig) -> String {
    let name = command.get_name();
    let mut text = format!(
        "# Settings of `{name}`, a file for --config. Lines `#key = value` have the defaults: uncomment a\n\
         # line to change it. Flags take precedence over variables, variables over this file.\n"
    );
    if selection == PrintConfig::Common {
        text.push_str("# --print-config=all prints all settings.\n");
    }
    let settings: Vec<Setting<'_>> = command
        .get_arguments()
        .filter(|arg| is_setting(command, arg.get_id().as_str()))
        .map(|arg| Setting::new(arg, matches))
        .filter(|setting| selection == PrintConfig::All || setting.is_common || setting.is_changed())
        .collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for setting in &settings {
        let heading = setting.arg.get_help_heading();
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    // Keys after a table header belong to the table.
    headings.sort_by_key(Option::is_some);
    for heading in headings {
        if let Some(heading) = heading {
            let _ = write!(text, "\n[{}]\n", table_name(heading));
        }
        let of_table = |setting: &&Setting<'_>| setting.arg.get_help_heading() == heading;
        let (common, others): (Vec<_>, Vec<_>) = settings
            .iter()
            .filter(of_table)
            .partition(|setting| setting.is_common);
        common.iter().for_each(|setting| setting.write(&mut text));
        if !common.is_empty() && !others.is_empty() {
            text.push_str("\n# ---- changed less often ----\n");
        }
        others.iter().for_each(|setting| setting.write(&mut text));
    }
    text
}

/// A setting with its values.
struct Setting<'a> {
    arg: &'a Arg,
    is_common: bool,
    default: Option<String>,
    value: Option<String>,
}

impl<'a> Setting<'a> {
    fn new(arg: &'a Arg, matches: &ArgMatches) -> Self {
        let id = arg.get_id().as_str();
        let mut defaults = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy());
        let default = match arg.get_action() {
            ArgAction::SetTrue => Some("false".to_owned()),
            _ => defaults.next().map(String::from),
        };
        let values = matches.try_get_raw(id).ok().flatten();
        let value = values.and_then(|mut values| Some(values.next()?.to_string_lossy().into_owned()));
        Self {
            arg,
            is_common: is_common(id),
            default,
            value,
        }
    }

    fn is_changed(&self) -> bool {
        self.value.is_some() && self.value != self.default
    }

    /// Writes the help text and the line of the key.
    fn write(&self, text: &mut String) {
        text.push('\n');
        let help = self.arg.get_long_help().or(self.arg.get_help());
        let mut help = help.map(ToString::to_string).unwrap_or_default();
        let values = self.arg.get_possible_values();
        let is_switch = matches!(self.arg.get_action(), ArgAction::SetTrue);
        if !values.is_empty() && !is_switch && !self.arg.is_hide_possible_values_set() {
            let names: Vec<&str> = values
                .iter()
                .map(clap::builder::PossibleValue::get_name)
                .collect();
            let _ = write!(help, " [{}]", names.join(" or "));
        }
        write_comment(text, &help);
        let key = self.arg.get_id().as_str();
        let _ = match (&self.value, &self.default) {
            (Some(value), _) if self.is_changed() => writeln!(text, "{key} = {}", toml_value(value)),
            (_, Some(default)) => writeln!(text, "#{key} = {}", toml_value(default)),
            (_, None) => {
                let names = self.arg.get_value_names().unwrap_or_default();
                let name = names.first().map_or("VALUE", |name| name.as_str());
                writeln!(text, "# {key} = \"{name}\"")
            }
        };
    }
}

/// Writes lines of a comment of at most [`WIDTH`] columns.
fn write_comment(text: &mut String, comment: &str) {
    for paragraph in comment.lines().filter(|line| !line.trim().is_empty()) {
        let mut columns = 0;
        for word in paragraph.split_whitespace() {
            let length = word.chars().count() + 1;
            if columns == 0 || columns + length > WIDTH {
                text.push_str(if columns == 0 { "#" } else { "\n#" });
                columns = 1;
            }
            text.push(' ');
            text.push_str(word);
            columns += length;
        }
        text.push('\n');
    }
}

/// A value in TOML: numbers and booleans without quotes.
fn toml_value(value: &str) -> String {
    let is_integer = value
        .parse::<i64>()
        .is_ok_and(|number| number.to_string() == value);
    let is_decimal = || {
        let number = value.parse::<f64>();
        value.contains('.') && number.is_ok_and(|number| number.to_string() == value)
    };
    if is_integer || matches!(value, "true" | "false") || is_decimal() {
        return value.to_owned();
    }
    toml::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::new("serve")
            .no_binary_name(true)
            .arg(Arg::new("config").long("config"))
            .arg(
                Arg::new("data_dir")
                    .long("data-dir")
                    .help("Folder")
                    .help_heading("Point store")
                    .default_value("./data"),
            )
            .arg(
                Arg::new("ratio")
                    .long("ratio")
                    .help("Part of calls")
                    .help_heading("Point store")
                    .default_value("0.5"),
            )
            .arg(Arg::new("journal").long("journal").help("Size").value_name("MIB"))
            .arg(
                Arg::new("store")
                    .long("store")
                    .help("Kind")
                    .value_parser(["a", "b"])
                    .default_value("a"),
            )
            .arg(
                Arg::new("accept")
                    .long("accept")
                    .help("Accept")
                    .action(ArgAction::SetTrue),
            )
    }

    /// The lines below the introduction.
    fn printed(arguments: &[&str], selection: PrintConfig) -> String {
        let matches = command().try_get_matches_from(arguments).unwrap();
        let text = settings_file(&command(), &matches, selection);
        text.split_once("\n\n").unwrap().1.to_owned()
    }

    #[test]
    fn prints_defaults_as_comments_with_keys_before_tables() {
        let expected = [
            "# Kind [a or b]",
            "#store = \"a\"",
            "",
            "# ---- changed less often ----",
            "",
            "# Size",
            "# journal = \"MIB\"",
            "",
            "# Accept",
            "#accept = false",
            "",
            "[point_store]",
            "",
            "# Folder",
            "#data_dir = \"./data\"",
            "",
            "# ---- changed less often ----",
            "",
            "# Part of calls",
            "#ratio = 0.5",
            "",
        ];
        assert_eq!(printed(&[], PrintConfig::All), expected.join("\n"));
    }

    #[test]
    fn prints_values_that_are_not_the_default() {
        let text = printed(
            &["--data-dir=a\"b", "--journal=8", "--accept"],
            PrintConfig::Common,
        );
        for line in [
            "\ndata_dir = 'a\"b'\n",
            "\njournal = 8\n",
            "\naccept = true\n",
            "\n#store = \"a\"\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("ratio"), "{text}");
    }

    #[test]
    fn wraps_comments() {
        let mut text = String::new();
        write_comment(&mut text, &"word ".repeat(50));
        assert!(
            text.lines().count() == 3 && text.lines().all(|line| line.len() <= WIDTH),
            "{text}"
        );
    }
}
