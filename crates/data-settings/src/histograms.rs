//! Histograms.

use clap::Args;
use oxtsdb_schema::HistogramCodecs;
use oxtsdb_server::settings::SettingError;

/// Histograms of all protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Histograms")]
pub struct HistogramSettings {
    /// Codec ids of histograms: a JSON object from decoder class to id, or the path of a file with one that ends in
    /// .json (tsd.core.histograms.config). The one decoder is net.opentsdb.core.SimpleHistogramDecoder. Unset:
    /// histograms are rejected
    #[arg(long, env = "OXTSDB_HISTOGRAMS_CONFIG", value_name = "JSON|FILE")]
    pub histograms_config: Option<String>,
}

impl HistogramSettings {
    /// The codecs; `None`: no histograms.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the JSON is no configuration.
    pub fn codecs(&self) -> Result<Option<HistogramCodecs>, SettingError> {
        // An empty text is OpenTSDB's default.
        let Some(config) = self
            .histograms_config
            .as_deref()
            .filter(|config| !config.is_empty())
        else {
            return Ok(None);
        };
        let wrong = |rule: String| SettingError::new("--histograms-config", format_args!("`{config}`"), rule);
        let codecs = if config.ends_with(".json") {
            let json = std::fs::read_to_string(config).map_err(|error| wrong(error.to_string()))?;
            HistogramCodecs::parse(&json)
        } else {
            HistogramCodecs::parse(config)
        };
        codecs.map(Some).map_err(|error| wrong(error.to_string()))
    }

    pub(super) fn check(&self) -> Result<(), SettingError> {
        self.codecs().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codecs(config: &str) -> Result<Option<HistogramCodecs>, String> {
        let settings = HistogramSettings {
            histograms_config: Some(config.to_owned()),
        };
        settings.codecs().map_err(|error| error.to_string())
    }

    #[test]
    fn reads_json_or_a_file() {
        let json = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;
        let expected = Ok(Some(HistogramCodecs::with_simple(42)));
        assert_eq!(codecs(json), expected);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("histograms.json");
        std::fs::write(&file, json).unwrap();
        assert_eq!(codecs(file.to_str().unwrap()), expected);
        assert_eq!(codecs(""), Ok(None));
        assert_eq!(HistogramSettings::default().codecs(), Ok(None));
    }

    #[test]
    fn errors_name_setting_and_rule() {
        let error = codecs("{}").unwrap_err();
        assert!(
            error.starts_with("--histograms-config `{}`: has no decoder"),
            "{error}"
        );
        let error = codecs("/nowhere/histograms.json").unwrap_err();
        assert!(error.contains("/nowhere/histograms.json"), "{error}");
    }
}
