//! Look-up of series: which there are, and how many.

use bytes::Bytes;
use oxtsdb_proto::data::v1::series_selector::TagSelector;
use oxtsdb_proto::data::v1::{
    self as pb, CountSeriesRequest, CountSeriesResponse, ExportSeriesRequest, ExportSeriesResponse,
    LookupSeriesRequest,
};

use crate::results::Progress;
use crate::{DataClient, Error, Results, SeriesName};

/// Selects series by metric and tags; without either all series.
///
/// ```
/// // Series of the metric on one of two hosts that have a tag `dc`.
/// let selector = oxtsdb_client::SeriesSelector::metric("sys.cpu.nice")
///     .tag("host", ["web01", "web02"])
///     .tag_key("dc");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesSelector(pb::SeriesSelector);

impl SeriesSelector {
    /// All series.
    pub fn all() -> Self {
        Self::default()
    }

    /// Series of a metric.
    pub fn metric(name: impl Into<String>) -> Self {
        Self(pb::SeriesSelector {
            metric: name.into(),
            tags: Vec::new(),
        })
    }

    /// Only series in which this tag key has one of these values.
    #[must_use]
    pub fn tag(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(key.into(), values.into_iter().map(Into::into).collect())
    }

    /// Only series that have this tag key.
    #[must_use]
    pub fn tag_key(self, key: impl Into<String>) -> Self {
        self.with(key.into(), Vec::new())
    }

    /// Only series in which some tag key has one of these values.
    #[must_use]
    pub fn tag_value(self, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(String::new(), values.into_iter().map(Into::into).collect())
    }

    fn with(mut self, key: String, values: Vec<String>) -> Self {
        self.0.tags.push(TagSelector { key, values });
        self
    }
}

impl From<SeriesSelector> for pb::SeriesSelector {
    fn from(selector: SeriesSelector) -> Self {
        selector.0
    }
}

/// A series that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSeries {
    /// TSUID.
    pub tsuid: Bytes,
    /// Names; `None` if one of its UIDs has no name.
    pub name: Option<SeriesName>,
}

impl From<pb::FoundSeries> for FoundSeries {
    fn from(series: pb::FoundSeries) -> Self {
        let name = series.name.map(|name| {
            let tags = name.tags.iter().map(|tag| (&tag.key, &tag.value));
            SeriesName::new(&name.metric, tags)
        });
        Self {
            tsuid: series.tsuid,
            name,
        }
    }
}

/// A page of series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesPage {
    /// Ascending by TSUID.
    pub series: Vec<FoundSeries>,
    /// The token of the next page; `None`: this is the last.
    pub next: Option<String>,
    /// Number of all series that match, if requested.
    pub total: u64,
    /// There may be more than `total`.
    pub total_is_lower_bound: bool,
}

/// `oxtsdb.data.v1.SeriesService`.
impl DataClient {
    /// Returns a page of series. [`export_series`](Self::export_series) returns all of them.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` for an unknown name; `INVALID_ARGUMENT` for the token of another selector.
    pub async fn lookup_series(&self, request: LookupSeriesRequest) -> Result<SeriesPage, Error> {
        let page = self.connection().call(&request).await?;
        Ok(SeriesPage {
            series: page.series.into_iter().map(Into::into).collect(),
            next: Some(page.next_page_token).filter(|token| !token.is_empty()),
            total: page.total_series,
            total_is_lower_bound: page.total_is_lower_bound,
        })
    }

    /// Streams all series in batches, ascending by TSUID. A stream that breaks is resumed behind its last series.
    pub fn export_series(&self, request: ExportSeriesRequest) -> Results<Vec<FoundSeries>> {
        let batches = Results::resumed(
            self.connection().clone(),
            request,
            |request, batch: &ExportSeriesResponse| {
                if let Some(last) = batch.series.last() {
                    request.start_after_tsuid.clone_from(&last.tsuid);
                }
                Progress::More
            },
        );
        batches.convert(|batch| Ok(batch.series.into_iter().map(Into::into).collect()))
    }

    /// Counts series: all of them, by metric, and by tag key with the number of distinct values.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` for an unknown name.
    pub async fn count_series(&self, request: CountSeriesRequest) -> Result<CountSeriesResponse, Error> {
        self.connection().call(&request).await
    }
}
