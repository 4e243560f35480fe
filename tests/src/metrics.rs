//! Metrics as a scraper reads them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};

use crate::http::Http;
use crate::paths;

/// All samples of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Values by `NAME{LABEL="VALUE",...}`, labels in the order of the text.
    samples: BTreeMap<String, f64>,
    /// The names of families, as `# TYPE` has them.
    families: BTreeSet<String>,
}

impl Metrics {
    /// Scrapes an admin listener.
    ///
    /// # Errors
    ///
    /// If it does not respond, or the text is not OpenMetrics.
    pub async fn scrape(admin: &Http) -> anyhow::Result<Self> {
        let response = admin.get("/metrics").await?;
        ensure!(response.status == 200, "{response:?}");
        Self::parse(&response.body)
    }

    /// Parses the text format.
    ///
    /// # Errors
    ///
    /// If a line has another form, a sample is there twice or belongs to no family, or the end is missing.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut metrics = Self::default();
        let text = text.strip_suffix("# EOF\n").context("no `# EOF` at the end")?;
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.split(' ');
                if words.next() == Some("TYPE") {
                    let name = words.next().context("a type has a name")?.to_owned();
                    ensure!(metrics.families.insert(name), "`{line}` comes twice");
                }
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').with_context(|| format!("`{line}`"))?;
            let value = value.parse().with_context(|| format!("`{line}`"))?;
            let name = sample.split('{').next().unwrap_or_default();
            let family = ["_total", "_bucket", "_count", "_sum"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .filter(|family| metrics.families.contains(*family))
                .unwrap_or(name);
            ensure!(metrics.families.contains(family), "`{line}` has no type");
            let before = metrics.samples.insert(sample.to_owned(), value);
            ensure!(before.is_none(), "`{sample}` comes twice");
        }
        Ok(metrics)
    }

    /// The value of a sample; 0 if there is none, as of a counter with labels that did not count yet.
    pub fn value(&self, sample: &str) -> f64 {
        self.samples.get(sample).copied().unwrap_or_default()
    }

    /// The sum of all samples of a name with labels that contain `label`.
    pub fn sum(&self, name: &str, label: &str) -> f64 {
        let of_name = self
            .samples
            .iter()
            .filter(|(sample, _)| sample.split('{').next() == Some(name) && sample.contains(label));
        of_name.map(|(_, value)| value).sum()
    }

    /// The names of families.
    pub fn families(&self) -> &BTreeSet<String> {
        &self.families
    }

    /// All samples.
    pub fn samples(&self) -> &BTreeMap<String, f64> {
        &self.samples
    }
}

/// A metric of the table in `docs/operate.md`.
#[derive(Clone, Debug)]
pub struct Documented {
    /// Its labels.
    pub labels: Vec<String>,
    /// Which processes report it.
    pub when: String,
    /// Its meaning, beginning with its type unless it is a gauge.
    pub meaning: String,
}

/// The metrics of the table in `docs/operate.md`, by the names of their families.
///
/// # Errors
///
/// If the table is not there, or has a metric twice or for processes that do not exist.
pub fn documented() -> anyhow::Result<BTreeMap<String, Documented>> {
    let text = std::fs::read_to_string(paths::workspace().join("docs/operate.md"))?;
    let mut metrics = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, labels, when, meaning, ""] = *cells else {
            continue;
        };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else {
            continue;
        };
        ensure!(
            ["always", "used", "data", "uid", "embedded", "HBase", "TLS"].contains(&when),
            "{name}: `{when}`"
        );
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`'));
        let metric = Documented {
            labels: labels
                .filter(|label| !label.is_empty())
                .map(str::to_owned)
                .collect(),
            when: when.to_owned(),
            meaning: meaning.to_owned(),
        };
        let before = metrics.insert(name.to_owned(), metric);
        ensure!(before.is_none(), "{name} is documented twice");
    }
    ensure!(metrics.len() > 20, "{metrics:?}");
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_samples_and_rejects_other_text() {
        let text = "# HELP a Help.\n# TYPE a counter\na_total{x=\"1\"} 2\na_total{x=\"2\"} 3.5\n# EOF\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.value("a_total{x=\"1\"}"), 2.0);
        assert_eq!(metrics.value("a_total{x=\"3\"}"), 0.0);
        assert_eq!(metrics.sum("a_total", ""), 5.5);
        assert_eq!(metrics.sum("a_total", "x=\"2\""), 3.5);
        assert!(metrics.families().contains("a"));
        for wrong in [
            "# TYPE a counter\na_total 1\n",
            "a_total 1\n# EOF\n",
            "# TYPE a counter\na_total one\n# EOF\n",
            "# TYPE a counter\n# TYPE a counter\n# EOF\n",
            "# TYPE a counter\na_total 1\na_total 1\n# EOF\n",
        ] {
            assert!(Metrics::parse(wrong).is_err(), "{wrong}");
        }
    }
}
