//! `/api/histogram`: writes histograms from JSON.
//!
//! The same rules as for `/api/put`, with its flags.
//!
//! Source: OpenTSDB 2.4, `HistogramDataPointRpc`, `PutDataPointRpc.processDataPoint`.

mod body;

use std::time::Instant;

use futures::future::BoxFuture;
use http::StatusCode;
use oxtsdb_ingest::point_text::{self, NameOf};
use oxtsdb_ingest::{NewHistogram, RejectionKind, WriteError, WriteOutcome, Writer};
use oxtsdb_schema::{HistogramCodecs, Timestamp};

use self::body::SentHistogram;
use crate::front::counters::Counters;
use crate::front::histogram_text::{CheckedHistogram, DISABLED};
use crate::http::api_request::ApiRequest;
use crate::http::datum::{self, DatumKind};
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::put::outcome::{self, Flags, Violation};
use crate::http::reply::Reply;

/// Stores the histograms of a body.
pub(crate) async fn put(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        caller,
        parameters,
        mut body,
        ..
    } = request;
    let (writer, counters) = (&parts.writer, &parts.counters);
    Counters::count(&counters.puts);
    let Some(codecs) = writer.histograms() else {
        return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, DISABLED));
    };
    let flags = Flags::parse(parameters)?;
    if body.bytes.is_empty() {
        return Err(HttpError::bad_request("Missing request content"));
    }
    let histograms = parsed(&mut body, writer.compute(), body::parse)
        .await
        .inspect_err(|error| outcome::reject_body(counters, &caller, error, &body.bytes))?;
    if histograms.is_empty() {
        return Err(HttpError::bad_request("No datapoints found in content"));
    }
    let kind = Histograms { writer, codecs };
    datum::store(&kind, &histograms, (counters, &caller), flags).await
}

/// Histograms, as [`DatumKind`].
struct Histograms<'w> {
    writer: &'w Writer,
    codecs: HistogramCodecs,
}

impl DatumKind for Histograms<'_> {
    type Sent = SentHistogram;
    type Checked<'s> = CheckedHistogram<'s>;

    const BATCH: usize = 1000;

    fn check<'s>(&self, sent: &'s SentHistogram) -> Result<CheckedHistogram<'s>, Violation> {
        let histogram = sent.check(&self.codecs)?;
        let value = self
            .codecs
            .encode_cell(&histogram)
            .map_err(|error| Violation::IllegalArgument(RejectionKind::Histogram, error.to_string()))?;
        let metric = sent.metric.as_ref().map_or("", |metric| metric.0.as_str());
        let sent_tags = sent.tags.as_ref().map_or(&[][..], |tags| tags.0.as_slice());
        let timestamp = Timestamp::from_opentsdb(sent.timestamp).map_err(|_| {
            let tags = sent_tags.iter();
            let tags =
                tags.map(|(key, value)| (key.as_str(), value.as_ref().map_or("null", |value| &value.0)));
            let text = point_text::bad_timestamp_of(sent.timestamp, metric, tags, &value, 0);
            Violation::IllegalArgument(RejectionKind::Timestamp, text)
        })?;
        let mut tags = Vec::with_capacity(sent_tags.len());
        for (key, value) in sent_tags {
            let Some(value) = value else {
                let text = point_text::null_name(NameOf::TagValue(key));
                return Err(Violation::IllegalArgument(RejectionKind::Name, text));
            };
            tags.push((key.as_str(), value.0.as_str()));
        }
        Ok(CheckedHistogram {
            metric,
            tags,
            timestamp,
            value,
        })
    }

    fn tags<'c>(checked: &'c CheckedHistogram<'_>) -> &'c [(&'c str, &'c str)] {
        &checked.tags
    }

    fn write<'b>(
        &'b self,
        data: &'b [CheckedHistogram<'_>],
        deadline: Instant,
    ) -> BoxFuture<'b, Result<WriteOutcome, WriteError>> {
        let new: Vec<NewHistogram<'b>> = data.iter().map(CheckedHistogram::new_histogram).collect();
        Box::pin(async move { self.writer.write_histograms(&new, Some(deadline)).await })
    }

    fn write_json(sent: &SentHistogram, out: &mut Vec<u8>) {
        sent.write(out);
    }
}

#[cfg(test)]
mod tests;
