//! The series to look up, as names, and their resolution to UIDs.

use std::fmt;

use oxtsdb_query::{QueryError, ResolvedNames};
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, UidKind};

use super::SeriesLookup;
use super::matcher::{SeriesMatcher, TagCondition};

/// Series by metric and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesSelector {
    /// The metric; `None`: any.
    pub metric: Option<String>,
    /// Tags that a series must have, all of them.
    pub tags: Vec<TagSelector>,
}

/// A tag that a series must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagSelector {
    /// Its key; `None`: any.
    pub key: Option<String>,
    /// Its value is one of these; empty: any.
    pub values: Vec<String>,
}

impl SeriesSelector {
    /// All names.
    fn names(&self) -> Vec<(UidKind, &str)> {
        let mut names: Vec<(UidKind, &str)> = Vec::new();
        names.extend(self.metric.iter().map(|name| (UidKind::Metric, name.as_str())));
        for tag in &self.tags {
            names.extend(tag.key.iter().map(|name| (UidKind::Tagk, name.as_str())));
            names.extend(tag.values.iter().map(|name| (UidKind::Tagv, name.as_str())));
        }
        names
    }
}

impl SeriesLookup {
    /// Resolves the names of a selector with one call.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`] for the first unknown name, and when names cannot be resolved.
    pub(super) async fn resolve(&self, selector: &SeriesSelector) -> Result<SeriesMatcher, QueryError> {
        let directory = &*self.storage.directory;
        let names = ResolvedNames::resolve(selector.names(), directory, self.context.deadline()).await?;
        let metric = selector.metric.as_ref();
        let metric = metric.map(|name| names.uid(UidKind::Metric, name)).transpose()?;
        let condition = |tag: &TagSelector| {
            let tagk = tag.key.as_ref();
            let tagk = tagk.map(|name| names.uid(UidKind::Tagk, name)).transpose()?;
            let tagvs = tag.values.iter().map(|name| names.uid(UidKind::Tagv, name));
            let tagvs = tagvs.map(|uid| Ok(TagvUid::new(uid?)));
            Ok(TagCondition {
                tagk: tagk.map(TagkUid::new),
                tagvs: tagvs.collect::<Result<_, QueryError>>()?,
            })
        };
        let conditions = selector.tags.iter().map(condition);
        Ok(SeriesMatcher::new(
            self.storage.layout.widths,
            metric.map(MetricUid::new),
            conditions.collect::<Result<_, QueryError>>()?,
        ))
    }
}

/// Values that are shown of a tag.
const SHOWN_VALUES: usize = 4;

impl fmt::Display for SeriesSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.as_deref().unwrap_or("*"))?;
        for (place, tag) in self.tags.iter().enumerate() {
            f.write_str(if place == 0 { "{" } else { "," })?;
            write!(f, "{}=", tag.key.as_deref().unwrap_or("*"))?;
            if tag.values.is_empty() {
                f.write_str("*")?;
            }
            for (place, value) in tag.values.iter().take(SHOWN_VALUES).enumerate() {
                write!(f, "{}{value}", if place == 0 { "" } else { "|" })?;
            }
            if tag.values.len() > SHOWN_VALUES {
                write!(f, "|... ({} values)", tag.values.len())?;
            }
        }
        f.write_str(if self.tags.is_empty() { "" } else { "}" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_like_a_query() {
        let tag = |key: Option<&str>, values: &[&str]| TagSelector {
            key: key.map(str::to_owned),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        let selector = SeriesSelector {
            metric: Some("sys.cpu".to_owned()),
            tags: vec![
                tag(Some("host"), &["a", "b"]),
                tag(None, &["x"]),
                tag(Some("dc"), &[]),
            ],
        };
        assert_eq!(selector.to_string(), "sys.cpu{host=a|b,*=x,dc=*}");
        assert_eq!(SeriesSelector::default().to_string(), "*");
        let many = SeriesSelector {
            metric: None,
            tags: vec![tag(Some("k"), &["1", "2", "3", "4", "5"])],
        };
        assert_eq!(many.to_string(), "*{k=1|2|3|4|... (5 values)}");
    }
}
