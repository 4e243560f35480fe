//! Writes sub-queries back into the response (`showQuery`).
//!
//! ```text
//!   "query":{"aggregator":"sum","metric":"m","tsuids":null,"downsample":"1m-avg","rate":false,
//!     "filters":[{"tagk":"host","filter":"*","group_by":true,"type":"wildcard"}],"percentiles":null,
//!     "index":0,"rateOptions":null,"filterTagKs":["AAAB"],…,"tags":{"host":"wildcard(*)"},…}
//! ```
//!
//! `filterTagKs` are the UIDs of the filters' tag keys in base64, ascending; a sub-query by TSUIDs has none.
//! Options that this server does not implement appear with OpenTSDB's defaults.
//!
//! Source: OpenTSDB 2.4, the JSON of `TSSubQuery`.

use std::collections::BTreeSet;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use oxtsdb_query::ResolvedNames;
use oxtsdb_query::filter::TagFilter;
use oxtsdb_query::language::{Expression, SeriesExpression};
use oxtsdb_query::{Engine, QueryError, QuerySpec, RateOptions, RollupUsage, Source, SubQuery};
use oxtsdb_schema::{Uid, UidKind, java};
use rustc_hash::FxHashMap;

use crate::http::json;

/// The parts of a sub-query that the response repeats verbatim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct QueryEcho {
    /// The metric; repeated also if TSUIDs are requested, which take precedence over it.
    pub(super) metric: Option<String>,
    /// The requested TSUIDs.
    pub(super) tsuids: Option<Vec<String>>,
    /// The downsampling specification.
    pub(super) downsample: Option<String>,
    /// Whether the sub-query has rate options.
    pub(super) with_rate_options: bool,
}

impl QueryEcho {
    /// The echo of a parameter `m` or `tsuid`.
    pub(super) fn from_expression(expression: &Expression) -> QueryEcho {
        let (metric, tsuids) = match &expression.series {
            SeriesExpression::Metric(metric) => (Some(metric.clone()), None),
            SeriesExpression::Tsuids(tsuids) => (None, Some(tsuids.clone())),
        };
        QueryEcho {
            metric,
            tsuids,
            downsample: expression.downsample.clone(),
            with_rate_options: expression.with_rate_options,
        }
    }
}

/// UIDs of tag keys, by name.
pub(super) type TagkUids = FxHashMap<String, Uid>;

/// Resolves the tag keys of all filters.
///
/// # Errors
///
/// When the UID service is unavailable.
pub(super) async fn tagk_uids(engine: &Engine, spec: &QuerySpec) -> Result<TagkUids, QueryError> {
    let filters = spec.sub_queries.iter().flat_map(|query| &query.filter.tags);
    let keys: BTreeSet<&str> = filters.map(|filter| filter.key.as_str()).collect();
    let names = keys.iter().map(|key| (UidKind::Tagk, *key));
    let known = ResolvedNames::resolve(names, &*engine.storage().directory, None).await?;
    let uids = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), known.find(UidKind::Tagk, key)?)));
    Ok(uids.collect())
}

/// Writes the JSON of a sub-query. Returns where `rollupTable` has its value, which is known with the result.
pub(super) fn write(
    out: &mut Vec<u8>,
    index: usize,
    query: &SubQuery,
    echo: &QueryEcho,
    uids: &TagkUids,
) -> usize {
    let filters = &query.filter.tags;
    out.extend_from_slice(b"{\"aggregator\":");
    json::write_string(out, query.aggregator.name());
    out.extend_from_slice(b",\"metric\":");
    or_null(out, echo.metric.as_deref(), json::write_string);
    out.extend_from_slice(b",\"tsuids\":");
    or_null(out, echo.tsuids.as_ref(), json::write_strings);
    out.extend_from_slice(b",\"downsample\":");
    or_null(out, echo.downsample.as_deref(), json::write_string);
    out.extend_from_slice(b",\"rate\":");
    boolean(out, query.rate.is_some());
    out.extend_from_slice(b",\"filters\":[");
    for (place, filter) in filters.iter().enumerate() {
        out.extend_from_slice(if place > 0 { b",{\"tagk\":" } else { b"{\"tagk\":" });
        json::write_string(out, &filter.key);
        out.extend_from_slice(b",\"filter\":");
        json::write_string(out, &filter.echo.1);
        out.extend_from_slice(b",\"group_by\":");
        boolean(out, filter.group_by);
        out.extend_from_slice(b",\"type\":");
        json::write_string(out, filter.echo.0);
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"percentiles\":");
    let percentiles = query.histogram.as_ref().map(|results| &results.percentiles);
    or_null(
        out,
        percentiles.filter(|percentiles| !percentiles.is_empty()),
        |out, percentiles| {
            let texts: Vec<String> = percentiles.iter().copied().map(java::float_to_string).collect();
            out.extend_from_slice(format!("[{}]", texts.join(",")).as_bytes());
        },
    );
    out.extend_from_slice(b",\"index\":");
    json::write_integer(out, index);
    out.extend_from_slice(b",\"rateOptions\":");
    let options = query.rate.filter(|_| echo.with_rate_options);
    or_null(out, options, rate_options);
    out.extend_from_slice(b",\"filterTagKs\":");
    // OpenTSDB does not resolve them for TSUIDs.
    let known = filters
        .iter()
        .filter(|_| matches!(query.source, Source::Metric(_)));
    let keys: BTreeSet<Uid> = known
        .filter_map(|filter| uids.get(&filter.key).copied())
        .collect();
    let keys = (!filters.is_empty()).then_some(keys);
    or_null(out, keys, |out, keys| {
        json::write_strings(out, keys.iter().map(|uid| BASE64_STANDARD.encode(uid.as_bytes())));
    });
    out.extend_from_slice(b",\"explicitTags\":");
    boolean(out, query.filter.explicit_tags);
    out.extend_from_slice(b",\"useFuzzyFilter\":true,\"preAggregate\":");
    boolean(out, query.rollup.pre_aggregate);
    out.extend_from_slice(b",\"rollupUsage\":");
    or_null(out, query.rollup.usage.map(RollupUsage::name), json::write_string);
    out.extend_from_slice(b",\"rollupTable\":");
    let table_at = out.len();
    out.extend_from_slice(b",\"showHistogramBuckets\":");
    boolean(
        out,
        query.histogram.as_ref().is_some_and(|results| results.buckets),
    );
    out.extend_from_slice(b",\"useMultiGets\":true,\"tags\":");
    let tags = filters.iter().filter(|filter| filter.group_by);
    let text = |filter: &TagFilter| format!("{}({})", filter.echo.0, filter.echo.1);
    json::write_map(out, tags.map(|filter| (&filter.key, text(filter))));
    out.extend_from_slice(b",\"histogramQuery\":");
    boolean(out, query.histogram.is_some());
    out.push(b'}');
    table_at
}

fn rate_options(out: &mut Vec<u8>, options: RateOptions) {
    out.extend_from_slice(b"{\"counter\":");
    boolean(out, options.counter);
    out.extend_from_slice(b",\"counterMax\":");
    json::write_integer(out, options.counter_max);
    out.extend_from_slice(b",\"resetValue\":");
    json::write_integer(out, options.reset_value);
    out.extend_from_slice(b",\"dropResets\":");
    boolean(out, options.drop_resets);
    out.push(b'}');
}

fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

fn or_null<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => out.extend_from_slice(b"null"),
    }
}
