//! The help texts: `--help` lists the settings that people change, `--help-all` every setting.

use clap::{Arg, ArgAction, Command};

/// Settings that `--help` lists, by the identifiers of their flags, for all programs. Each program has some of them.
const COMMON: &[&str] = &[
    "config",
    "opentsdb_conf",
    "print_config",
    "log",
    "http_listen",
    "data_listen",
    "uid_listen",
    "admin_listen",
    "mode",
    "access_policy",
    "tls_certificate",
    "tls_key",
    "store",
    "data_dir",
    "retention",
    "hbase_quorum",
    "hbase_thrift",
    "uid_table",
    "data_table",
    "salt_width",
    "memory_limit_mib",
    "max_connections",
    "max_concurrent_queries",
    "query_timeout_seconds",
    "extra_name_characters",
    "auto_create_metrics",
    "cors_domains",
    "uid_endpoint",
];

/// Whether `--help` and `--print-config` show a setting.
pub(super) fn is_common(id: &str) -> bool {
    COMMON.contains(&id)
}

/// `command` with a `--help` for its common settings and a `--help-all` for all of them.
pub fn with_short_help(command: Command) -> Command {
    command
        .disable_help_flag(true)
        .next_line_help(true)
        .mut_args(|arg| {
            if is_common(arg.get_id().as_str()) {
                return with_first_sentence(arg);
            }
            arg.hide_short_help(true)
        })
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::HelpShort)
                .help("Print the settings that people change")
                .help_heading("Help"),
        )
        .arg(
            Arg::new("help_all")
                .long("help-all")
                .action(ArgAction::HelpLong)
                .help("Print all settings")
                .help_heading("Help"),
        )
        .after_help("`--help-all` lists all settings, `--print-config` prints them as a file for `--config`.")
        .after_long_help("`--help` lists the settings that people change.")
}

/// `arg` with the first sentence of its help in `--help`, and all of it in `--help-all`.
fn with_first_sentence(arg: Arg) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // A sentence begins with no small letter.
    let ends = help.match_indices(". ").map(|(end, _)| help.split_at(end));
    let is_end = |(_, rest): &(&str, &str)| !rest.starts_with(|c: char| c.is_lowercase());
    match ends
        .map(|(first, rest)| (first, rest.trim_start_matches(". ")))
        .find(is_end)
    {
        Some((first, _)) if arg.get_long_help().is_none() => {
            let first = first.to_owned();
            arg.help(first).long_help(help)
        }
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(flag: &str) -> String {
        let command = Command::new("serve")
            .arg(
                Arg::new("data_dir")
                    .long("data-dir")
                    .help("Folder, e.g. of a disk. Not for HBase"),
            )
            .arg(Arg::new("linger_ms").long("linger-ms").help("Delay"));
        let matched = with_short_help(command).try_get_matches_from(["serve", flag]);
        matched.unwrap_err().to_string()
    }

    #[test]
    fn help_lists_common_settings_and_help_all_every_setting() {
        assert_eq!(help("-h"), help("--help"));
        let (short, all) = (help("--help"), help("--help-all"));
        assert!(
            short.contains("--data-dir") && !short.contains("--linger-ms"),
            "{short}"
        );
        assert!(short.contains("`--help-all` lists all settings"), "{short}");
        assert!(all.contains("--data-dir") && all.contains("--linger-ms"), "{all}");
        assert!(short.contains("Folder, e.g. of a disk\n"), "{short}");
        assert!(all.contains("Folder, e.g. of a disk. Not for HBase"), "{all}");
    }
}
