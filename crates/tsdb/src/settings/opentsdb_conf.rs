//! An `opentsdb.conf`: which of its settings we have, and which not.
//!
//! Source: OpenTSDB 2.4, `Config.setDefaults`, and the calls that read each setting.

use std::path::Path;

use anyhow::Context as _;
use oxtsdb_server::settings::{FileSetting, FileSettings};

use super::properties;

/// The settings of an `opentsdb.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The settings that apply.
    pub(crate) settings: FileSettings,
    /// The keys that set something, in their order.
    pub(crate) used: Vec<String>,
    /// The keys that do not, in their order. Values are left out: some are secrets.
    pub(crate) unused: Vec<String>,
}

/// How a value is written in our settings.
#[derive(Clone, Copy, Debug)]
enum Form {
    AsIs,
    Boolean,
    /// A boolean that is the choice between two values here: for true, for false.
    Choice(&'static str, &'static str),
}

/// Settings that OpenTSDB and we both have: its key, ours, and the form of the value.
const KNOWN: &[(&str, &str, Form)] = &[
    ("hbase.rpc.timeout", "hbase_request_timeout_ms", Form::AsIs),
    (
        "tsd.core.auto_create_metrics",
        "auto_create_metrics",
        Form::Boolean,
    ),
    ("tsd.core.auto_create_tagks", "auto_create_tagks", Form::Boolean),
    ("tsd.core.auto_create_tagvs", "auto_create_tagvs", Form::Boolean),
    ("tsd.core.connections.limit", "max_connections", Form::AsIs),
    ("tsd.core.histograms.config", "histograms_config", Form::AsIs),
    (
        "tsd.core.meta.enable_realtime_ts",
        "enable_realtime_ts",
        Form::Boolean,
    ),
    (
        "tsd.core.meta.enable_realtime_uid",
        "enable_realtime_uid",
        Form::Boolean,
    ),
    (
        "tsd.core.meta.enable_tsuid_incrementing",
        "enable_tsuid_incrementing",
        Form::Boolean,
    ),
    (
        "tsd.core.meta.enable_tsuid_tracking",
        "enable_tsuid_tracking",
        Form::Boolean,
    ),
    ("tsd.core.socket.timeout", "idle_timeout_seconds", Form::AsIs),
    (
        "tsd.core.tag.allow_specialchars",
        "extra_name_characters",
        Form::AsIs,
    ),
    (
        "tsd.core.tree.enable_processing",
        "enable_tree_processing",
        Form::Boolean,
    ),
    ("tsd.core.uid.random_metrics", "random_metric_uids", Form::Boolean),
    ("tsd.http.query.allow_delete", "http_allow_delete", Form::Boolean),
    ("tsd.http.request.cors_domains", "cors_domains", Form::AsIs),
    (
        "tsd.http.show_stack_trace",
        "http_show_stack_trace",
        Form::Boolean,
    ),
    ("tsd.mode", "mode", Form::AsIs),
    ("tsd.query.limits.bytes.default", "query_max_bytes", Form::AsIs),
    (
        "tsd.query.limits.data_points.default",
        "query_max_points",
        Form::AsIs,
    ),
    (
        "tsd.storage.enable_appends",
        "write_form",
        Form::Choice("appends", "auto"),
    ),
    ("tsd.rollups.agg_tag_key", "rollups_agg_tag_key", Form::AsIs),
    (
        "tsd.rollups.block_derived",
        "rollups_block_derived",
        Form::Boolean,
    ),
    ("tsd.rollups.config", "rollups_config", Form::AsIs),
    (
        "tsd.rollups.raw_agg_tag_value",
        "rollups_raw_agg_tag_value",
        Form::AsIs,
    ),
    ("tsd.rollups.tag_raw", "rollups_tag_raw", Form::Boolean),
    ("tsd.storage.fix_duplicates", "fix_duplicates", Form::Boolean),
    ("tsd.storage.hbase.data_table", "data_table", Form::AsIs),
    ("tsd.storage.hbase.meta_table", "meta_table", Form::AsIs),
    ("tsd.storage.hbase.tree_table", "tree_table", Form::AsIs),
    ("tsd.storage.hbase.uid_table", "uid_table", Form::AsIs),
    ("tsd.storage.max_tags", "max_tags", Form::AsIs),
    ("tsd.storage.salt.buckets", "salt_buckets", Form::AsIs),
    ("tsd.storage.salt.width", "salt_width", Form::AsIs),
    ("tsd.storage.uid.width.metric", "uid_width_metric", Form::AsIs),
    ("tsd.storage.uid.width.tagk", "uid_width_tagk", Form::AsIs),
    ("tsd.storage.uid.width.tagv", "uid_width_tagv", Form::AsIs),
    (
        "tsd.storage.use_otsdb_timestamp",
        "use_otsdb_timestamp",
        Form::Boolean,
    ),
    (
        "tsd.uidfilter.whitelist.delimiter",
        "uid_whitelist_delimiter",
        Form::AsIs,
    ),
    (
        "tsd.uidfilter.whitelist.metric_patterns",
        "uid_whitelist_metrics",
        Form::AsIs,
    ),
    (
        "tsd.uidfilter.whitelist.tagk_patterns",
        "uid_whitelist_tagks",
        Form::AsIs,
    ),
    (
        "tsd.uidfilter.whitelist.tagv_patterns",
        "uid_whitelist_tagvs",
        Form::AsIs,
    ),
];

/// The port and the address of the HTTP and telnet listener, which are one setting here.
const PORT: &str = "tsd.network.port";
const BIND: &str = "tsd.network.bind";

/// Whether a filter of names is on, and its class: ours is the class of the whitelists.
const FILTER: &str = "tsd.uidfilter.enable";
const FILTER_CLASS: &str = "tsd.uidfilter.plugin";
const WHITELIST: &str = "tsd.uidfilter.whitelist.";
const WHITELIST_CLASS: &str = "UniqueIdWhitelistFilter";

/// Whether rollups are on; without it their configuration is not used.
const ROLLUPS: &str = "tsd.rollups.enable";
const ROLLUPS_CONFIG: &str = "tsd.rollups.config";

/// Reads a file.
///
/// # Errors
///
/// If it cannot be read, or is no properties file.
pub(crate) fn read(path: &Path) -> anyhow::Result<Outcome> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    from_bytes(path, &bytes)
}

fn from_bytes(path: &Path, bytes: &[u8]) -> anyhow::Result<Outcome> {
    let properties = properties::parse(bytes).with_context(|| path.display().to_string())?;
    let mut outcome = Outcome::default();
    let filters = properties.get(FILTER).is_some_and(|value| boolean(value.trim()));
    let class = properties
        .get(FILTER_CLASS)
        .map_or(WHITELIST_CLASS, |class| class.trim());
    let whitelists = filters && class.ends_with(WHITELIST_CLASS);
    let rolls_up = properties.get(ROLLUPS).is_some_and(|value| boolean(value.trim()));
    for (key, value) in &properties {
        let value = value.trim();
        if key == ROLLUPS {
            outcome.used.push(key.clone());
            continue;
        }
        if !rolls_up && key == ROLLUPS_CONFIG {
            outcome.unused.push(key.clone());
            continue;
        }
        if whitelists && [FILTER, FILTER_CLASS].contains(&key.as_str()) {
            outcome.used.push(key.clone());
            continue;
        }
        if !whitelists && key.starts_with(WHITELIST) {
            outcome.unused.push(key.clone());
            continue;
        }
        let (id, value) = match KNOWN.iter().find(|(theirs, ..)| theirs == key) {
            // 0 is OpenTSDB's word for no limit.
            Some((_, "max_connections" | "hbase_request_timeout_ms", _)) if value == "0" => {
                outcome.unused.push(key.clone());
                continue;
            }
            Some((_, ours, Form::AsIs)) => (*ours, value.to_owned()),
            Some((_, ours, Form::Boolean)) => (*ours, boolean(value).to_string()),
            Some((_, ours, Form::Choice(yes, no))) => {
                let chosen = if boolean(value) { yes } else { no };
                (*ours, (*chosen).to_owned())
            }
            None if key == PORT => {
                let bind = properties.get(BIND).map_or("0.0.0.0", |bind| bind.trim());
                ("http_listen", format!("{bind}:{value}"))
            }
            // Used together with the port.
            None if key == BIND && properties.contains_key(PORT) => {
                outcome.used.push(key.clone());
                continue;
            }
            None => {
                outcome.unused.push(key.clone());
                continue;
            }
        };
        let origin = format!("{}: {key}", path.display());
        outcome
            .settings
            .insert(id.to_owned(), FileSetting { value, origin });
        outcome.used.push(key.clone());
    }
    Ok(outcome)
}

/// Source: OpenTSDB 2.4, `Config.getBoolean`.
fn boolean(text: &str) -> bool {
    ["1", "true", "yes"]
        .iter()
        .any(|yes| text.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use oxtsdb_server::settings;

    use super::*;
    use crate::cli::Cli;

    fn outcome(text: &str) -> Outcome {
        from_bytes(Path::new("opentsdb.conf"), text.as_bytes()).unwrap()
    }

    #[test]
    fn every_known_setting_is_a_flag_of_serve() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for (theirs, ours, _) in KNOWN {
            assert!(settings::is_setting(serve, ours), "{theirs} -> {ours}");
        }
    }

    #[test]
    fn what_applies_is_used_and_what_does_not_is_listed() {
        let outcome = outcome(
            "tsd.network.port = 4242\ntsd.network.bind = 127.0.0.1\ntsd.storage.max_tags = 9 \n\
             tsd.core.auto_create_metrics = Yes\ntsd.http.cachedir = /tmp\ntsd.core.connections.limit = 0\n\
             hbase.rpc.timeout = 0\n",
        );
        let value = |id: &str| outcome.settings[id].value.as_str();
        assert_eq!(value("http_listen"), "127.0.0.1:4242");
        assert_eq!(value("max_tags"), "9");
        assert_eq!(value("auto_create_metrics"), "true");
        assert_eq!(
            outcome.unused,
            [
                "hbase.rpc.timeout",
                "tsd.core.connections.limit",
                "tsd.http.cachedir"
            ]
        );
        assert_eq!(
            outcome.used,
            [
                "tsd.core.auto_create_metrics",
                "tsd.network.bind",
                "tsd.network.port",
                "tsd.storage.max_tags"
            ]
        );
    }

    #[test]
    fn appends_are_a_form_of_writing() {
        let form = |text: &str| outcome(text).settings["write_form"].value.clone();
        assert_eq!(form("tsd.storage.enable_appends = true"), "appends");
        assert_eq!(form("tsd.storage.enable_appends = false"), "auto");
    }

    #[test]
    fn whitelists_apply_if_their_filter_is_on() {
        let patterns = "tsd.uidfilter.whitelist.metric_patterns = ^sys\n";
        let on = outcome(&format!("tsd.uidfilter.enable = true\n{patterns}"));
        assert_eq!(on.settings["uid_whitelist_metrics"].value, "^sys");
        assert_eq!(on.unused, [""; 0]);
        let class = "tsd.uidfilter.enable = true\ntsd.uidfilter.plugin = com.example.Filter\n";
        for off in [patterns.to_owned(), format!("{class}{patterns}")] {
            let outcome = outcome(&off);
            assert!(!outcome.settings.contains_key("uid_whitelist_metrics"));
            let unused: Vec<&String> = outcome
                .unused
                .iter()
                .filter(|key| key.ends_with("_patterns"))
                .collect();
            assert_eq!(unused.len(), 1, "{off}");
        }
    }

    #[test]
    fn a_port_alone_is_that_of_all_addresses_as_in_opentsdb() {
        assert_eq!(
            outcome("tsd.network.port=1").settings["http_listen"].value,
            "0.0.0.0:1"
        );
        assert_eq!(outcome("tsd.network.bind=1.2.3.4").unused, ["tsd.network.bind"]);
    }

    #[test]
    fn booleans_are_read_as_opentsdb_reads_them() {
        for (text, value) in [
            ("1", true),
            ("TRUE", true),
            ("yes", true),
            ("on", false),
            ("", false),
        ] {
            assert_eq!(boolean(text), value, "{text}");
        }
    }
}
