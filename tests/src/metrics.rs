//! Metrics as a scraper reads them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};

use crate::http::Http;

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

    /// The sum of all samples of a name whose labels contain `label`.
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
