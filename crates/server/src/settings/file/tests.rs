use std::path::PathBuf;

use clap::Parser;
use clap::parser::ValueSource;

use super::*;
use crate::settings::{ArgumentsError, in_range, parse, with_defaults};

fn command() -> Command {
    let number = |text: &str| -> Result<u8, String> {
        match text.parse() {
            Ok(bytes @ 1..=8) => Ok(bytes),
            _ => Err(format!("{text} bytes is not a UID width, expected 1 to 8")),
        }
    };
    Command::new("serve")
        .arg(Arg::new("config").long("config"))
        .arg(
            Arg::new("uid_width")
                .long("uid-width")
                .value_parser(number)
                .default_value("3"),
        )
        .arg(
            Arg::new("log_format")
                .long("log-format")
                .help_heading("Logs and traces")
                .value_parser(["text", "json"])
                .default_value("text"),
        )
        .arg(
            Arg::new("fix_duplicates")
                .long("fix-duplicates")
                .action(ArgAction::SetTrue),
        )
        .arg(Arg::new("expected").long("expected"))
}

fn from_file(text: &str) -> Result<FileSettings, FileError> {
    from_toml(Path::new("oxtsdb.toml"), text, &command())
}

fn rejection(text: &str) -> String {
    from_file(text).unwrap_err().to_string()
}

fn width(text: &str, arguments: &[&str]) -> (u8, ValueSource) {
    let command = with_defaults(command(), &from_file(text).unwrap());
    let matches = command
        .no_binary_name(true)
        .try_get_matches_from(arguments)
        .unwrap();
    (
        *matches.get_one("uid_width").unwrap(),
        matches.value_source("uid_width").unwrap(),
    )
}

#[test]
fn flags_take_precedence_over_the_file_and_the_file_over_defaults() {
    assert_eq!(width("", &[]).0, 3);
    assert_eq!(width("uid_width = 4", &[]), (4, ValueSource::DefaultValue));
    assert_eq!(width("uid_width = '4'", &[]).0, 4);
    assert_eq!(width("uid_width = 4", &["--uid-width", "5"]).0, 5);
}

#[test]
fn file_sets_switches_and_options_without_a_default() {
    let settings = from_file("fix_duplicates = true\nexpected = '3/3/3'").unwrap();
    let matches = with_defaults(command(), &settings).get_matches_from(["serve"]);
    assert!(matches.get_flag("fix_duplicates"));
    assert_eq!(matches.get_one::<String>("expected").unwrap(), "3/3/3");
}

#[test]
fn a_table_may_have_the_name_of_a_setting() {
    let store = Arg::new("store").long("store").help_heading("Store");
    let command = command().arg(store);
    let read = |text| from_toml(Path::new("oxtsdb.toml"), text, &command);
    assert_eq!(read("store = 'a'").unwrap()["store"].value, "a");
    assert_eq!(read("[store]\nstore = 'a'").unwrap()["store"].value, "a");
    assert!(matches!(
        read("[uid_width]\nstore = 'a'"),
        Err(FileError::WrongType { .. })
    ));
}

#[test]
fn last_applied_file_takes_precedence() {
    let one = with_defaults(command(), &from_file("uid_width = 4").unwrap());
    let both = with_defaults(one, &from_file("uid_width = 5").unwrap());
    assert_eq!(
        both.get_matches_from(["serve"]).get_one::<u8>("uid_width"),
        Some(&5)
    );
}

#[test]
fn rejects_unknown_keys_and_suggests_a_similar_one() {
    assert_eq!(
        rejection("uid_widht = 4"),
        "oxtsdb.toml: `uid_widht` is not a setting, did you mean `uid_width`?"
    );
    assert_eq!(
        rejection("zzz = 4"),
        "oxtsdb.toml: `zzz` is not a setting; `--print-config=all` lists the settings"
    );
    assert_eq!(
        rejection("config = 'other.toml'"),
        "oxtsdb.toml: `config` is not a setting; `--print-config=all` lists the settings"
    );
}

#[test]
fn rejects_invalid_values_with_file_key_and_rule() {
    assert_eq!(
        rejection("uid_width = 9"),
        "oxtsdb.toml: uid_width = `9`: 9 bytes is not a UID width, expected 1 to 8"
    );
    assert_eq!(
        rejection("log_format = 'xml'"),
        "oxtsdb.toml: log_format = `xml`: expected text or json"
    );
    assert_eq!(
        rejection("fix_duplicates = 'maybe'"),
        "oxtsdb.toml: fix_duplicates = `maybe`: expected true or false"
    );
    assert_eq!(
        rejection("uid_width = [3]"),
        "oxtsdb.toml: uid_width is of type array, expected a string, a number or a boolean"
    );
}

#[test]
fn reports_toml_errors_in_one_line() {
    assert_eq!(
        rejection("uid_width = 3\nlog format"),
        "oxtsdb.toml: line 2: key with no value, expected `=`"
    );
    assert_eq!(
        rejection("uid_width = 3\n= 4"),
        "oxtsdb.toml: line 2: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`"
    );
}

#[test]
fn names_a_missing_file() {
    let error = read_toml(Path::new("/nowhere/oxtsdb.toml"), &command())
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("/nowhere/oxtsdb.toml: "), "{error}");
}

#[test]
fn reads_the_file_of_config() {
    #[derive(Parser)]
    struct Program {
        #[arg(long)]
        config: Option<PathBuf>,
        #[arg(long, default_value_t = 8)]
        max_tags: u8,
        #[arg(long, default_value_t = 20)]
        salt_buckets: u8,
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oxtsdb.toml");
    let parse = |text: &str, arguments: &str| {
        std::fs::write(&path, text).unwrap();
        let config = format!("--config={}", path.display());
        parse::<Program>(&["program".into(), config.into(), arguments.into()])
    };
    let program = parse("max_tags = 9\nsalt_buckets = 30", "--max-tags=10").unwrap();
    assert_eq!((program.max_tags, program.salt_buckets), (10, 30));
    assert!(program.config.is_some());
    assert!(matches!(
        parse("max_tag = 9", "--max-tags=10"),
        Err(ArgumentsError::File(FileError::UnknownKey { .. }))
    ));
    assert!(matches!(
        parse("max_tags = 9", "--max-tag=10"),
        Err(ArgumentsError::Usage(_))
    ));
}

#[test]
fn names_the_flag_of_a_value_out_of_range() {
    assert_eq!(in_range("--max-tags", 64, 1, 64), Ok(()));
    assert_eq!(
        in_range("--max-tags", 0, 1, 64).unwrap_err().to_string(),
        "--max-tags 0: expected 1 to 64"
    );
}

#[test]
fn tables_are_named_after_headings() {
    let settings = from_file("uid_width = 4\n[logs_and_traces]\nlog_format = 'json'").unwrap();
    assert_eq!(settings["log_format"].value, "json");
    assert_eq!(
        settings["log_format"].origin,
        "oxtsdb.toml: logs_and_traces.log_format"
    );
    assert_eq!(
        rejection("[logs_and_traces]\nlog_format = 'xml'"),
        "oxtsdb.toml: logs_and_traces.log_format = `xml`: expected text or json"
    );
}

#[test]
fn rejects_unknown_tables_and_keys_in_the_wrong_table() {
    assert_eq!(
        rejection("[logs_and_trace]\nlog_format = 'json'"),
        "oxtsdb.toml: `[logs_and_trace]` is not a group of settings, did you mean `logs_and_traces`?"
    );
    assert_eq!(
        rejection("tsd.storage.max_tags = 9"),
        "oxtsdb.toml: `[tsd]` is not a group of settings; OpenTSDB's settings are for a file of `tsdb serve \
         --opentsdb-conf`"
    );
    assert_eq!(
        rejection("[logs_and_traces]\nuid_width = 4"),
        "oxtsdb.toml: `uid_width` is not a setting of `[logs_and_traces]`, expected it at the top"
    );
    assert_eq!(
        rejection("[logs_and_traces]\nlog_formats = 'json'"),
        "oxtsdb.toml: `logs_and_traces.log_formats` is not a setting, did you mean `log_format`?"
    );
    assert_eq!(
        rejection("log_format = 'json'\n[logs_and_traces]\nlog_format = 'json'"),
        "oxtsdb.toml: `log_format` is set twice, at the top and in `[logs_and_traces]`"
    );
    assert_eq!(
        rejection("[uid_width]\nbytes = 4"),
        "oxtsdb.toml: uid_width is of type table, expected a string, a number or a boolean"
    );
}
