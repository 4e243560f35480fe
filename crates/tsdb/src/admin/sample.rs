//! The samples of a scrape.

/// Labels that samples have: names and values.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Names and values of the labels of a sample, in the order of the names.
pub(super) type LabelSet = Vec<(String, String)>;

/// A value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(super) labels: LabelSet,
    pub(crate) value: f64,
}

impl Sample {
    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.labels.iter();
        labels
            .find(|(label, _)| label == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether it has labels.
    pub(super) fn has(&self, labels: Labels<'_>) -> bool {
        labels.iter().all(|(name, value)| self.label(name) == Some(value))
    }
}
