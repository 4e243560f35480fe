//! Writes rollups and pre-aggregates.
//!
//! ```text
//!   interval  group-by   table                                         cell
//!   yes       no         the interval's                                rollup
//!   yes       yes        the interval's, of pre-aggregates             rollup
//!   no        yes        the default interval's, of pre-aggregates     point
//! ```
//!
//! A pre-aggregate gets the tag of its group-by aggregator. Checks have OpenTSDB's order and texts. As in OpenTSDB, no
//! metadata of series is written. Of rollups with one interval, aggregator, width and type the later one replaces the
//! earlier.
//!
//! Source: OpenTSDB 2.4, `TSDB.addAggregatePointInternal`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use oxtsdb_access::MetricScope;
use oxtsdb_metadata::uids::series::{Requested, SeriesRef};
use oxtsdb_query::{Aggregator, Engine, Rollups};
use oxtsdb_row_store::{RowStore, TableName, WriteBatch};
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{Qualifier, RollupInterval, Timestamp, Value, rollup};

use crate::point_text;
use crate::{AggregateError, PointError, PointErrorReason, WriteError, WriteOutcome, Writer};

/// The aggregate that a value is: its interval and functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aggregate<'a> {
    /// Its interval, such as `1h`.
    pub interval: Option<&'a str>,
    /// The function over the interval.
    pub aggregator: Option<&'a str>,
    /// The function over series.
    pub group_by: Option<&'a str>,
}

/// A value as it was sent. No text is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAggregate<'a> {
    /// Metric name.
    pub metric: &'a str,
    /// Key and value of each tag, without the tag of the group-by aggregator.
    pub tags: Vec<(&'a str, &'a str)>,
    /// In seconds.
    pub timestamp: i64,
    /// The aggregated value.
    pub value: Value,
    /// The interval and functions that the value was computed with.
    pub aggregate: Aggregate<'a>,
}

/// A value with a known place.
#[derive(Debug)]
struct Placed<'a> {
    tags: Vec<(&'a str, String)>,
    table: &'a TableName,
    rollup: Option<(&'a RollupInterval, u8)>,
    seconds: u32,
}

/// Writes rollups. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct RollupWriter {
    store: Arc<dyn RowStore>,
    writer: Writer,
    rollups: Option<Arc<Rollups>>,
}

impl RollupWriter {
    /// Into the tables that queries read.
    pub fn from_engine(engine: &Engine, writer: &Writer) -> RollupWriter {
        let storage = engine.storage();
        RollupWriter {
            store: Arc::clone(&storage.store),
            writer: writer.clone(),
            rollups: storage.rollups.clone(),
        }
    }

    /// The same writer, which rejects metrics outside `scope`.
    pub fn limited_to(&self, scope: &MetricScope) -> RollupWriter {
        RollupWriter {
            writer: self.writer.limited_to(scope),
            ..self.clone()
        }
    }

    /// Whether there are rollups.
    pub const fn is_configured(&self) -> bool {
        self.rollups.is_some()
    }

    /// Writes values. `Ok` means that all that are not among the errors are in the store's log.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub async fn write(
        &self,
        values: &[NewAggregate<'_>],
        deadline: Option<Instant>,
    ) -> Result<WriteOutcome, WriteError> {
        let mut outcome = WriteOutcome::default();
        let mut placed = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            match place(value, self.rollups.as_deref()) {
                Ok(place) => placed.push((index, value, place)),
                Err(error) => outcome.errors.push(PointError::from_rollup(index, error)),
            }
        }
        if placed.is_empty() {
            return Ok(outcome);
        }
        let tags: Vec<Vec<(&str, &str)>> = placed
            .iter()
            .map(|(_, _, place)| {
                place
                    .tags
                    .iter()
                    .map(|(key, value)| (*key, value.as_str()))
                    .collect()
            })
            .collect();
        let requested = placed.iter().zip(&tags).map(|((_, value, _), tags)| {
            Requested::Series(SeriesRef::Names {
                metric: value.metric,
                tags,
            })
        });
        let series = self.writer.resolve_points(requested, deadline).await?;
        let _permit = self.writer.permit_in_time(placed.len(), deadline).await?;
        let layout = self.writer.uids().layout();
        let mut batches: BTreeMap<&TableName, WriteBatch> = BTreeMap::new();
        let mut key = Vec::new();
        let family = String::from_utf8_lossy(FAMILY);
        for ((index, value, place), series) in placed.iter().zip(&series) {
            let series = match series {
                Ok(series) => series,
                Err(reason) => {
                    outcome.errors.push(PointError {
                        index: *index,
                        reason: Arc::clone(reason),
                    });
                    continue;
                }
            };
            let batch = batches
                .entry(place.table)
                .or_insert_with_key(|table| WriteBatch::new((*table).clone()));
            let family = batch.family(&family);
            let bytes = value.value.encoded();
            key.clear();
            match place.rollup {
                Some((interval, id)) => {
                    let (base, offset) = match interval.place(place.seconds) {
                        Ok(position) => position,
                        Err(error) => {
                            outcome.errors.push(PointError::from_rollup(*index, error.into()));
                            continue;
                        }
                    };
                    write_row_key(layout, series.tsuid(), base, &mut key);
                    let qualifier = rollup::qualifier(id, offset, &value.value);
                    batch.row(&key).put(family, &qualifier, bytes.as_bytes());
                }
                None => {
                    let time = Timestamp::from_seconds(place.seconds);
                    write_row_key(layout, series.tsuid(), time.base_time(), &mut key);
                    let qualifier = Qualifier::new(time, &value.value);
                    batch
                        .row(&key)
                        .put(family, qualifier.as_bytes(), bytes.as_bytes());
                }
            }
            outcome.written += 1;
        }
        outcome.errors.sort_by_key(|error| error.index);
        let stored =
            futures::future::try_join_all(batches.into_values().map(|batch| self.store.write(batch)));
        match deadline {
            None => stored.await?,
            Some(deadline) => {
                let stored = tokio::time::timeout_at(deadline.into(), stored).await;
                stored.map_err(|_elapsed| WriteError::DeadlineExceeded)??
            }
        };
        Ok(outcome)
    }
}

impl PointError {
    fn from_rollup(index: usize, error: AggregateError) -> Self {
        let reason = Arc::new(PointErrorReason::InvalidRollup(error));
        Self { index, reason }
    }
}

/// Checks a value and finds its table, in OpenTSDB's order.
fn place<'a>(value: &NewAggregate<'a>, rollups: Option<&'a Rollups>) -> Result<Placed<'a>, AggregateError> {
    let rule = |text: String| Err(AggregateError::Rule(text));
    let Aggregate {
        interval,
        aggregator,
        group_by,
    } = value.aggregate;
    let rollups = rollups.ok_or(AggregateError::NotConfigured)?;
    let rules = rollups.rules();
    let tags = || point_text::tag_map(value.tags.iter().copied());
    let Ok(seconds) = u32::try_from(value.timestamp) else {
        let tags = value.tags.iter().copied();
        return rule(point_text::bad_timestamp(
            value.timestamp,
            value.metric,
            tags,
            &value.value,
        ));
    };
    let mut placed: Vec<(&str, String)> = Vec::with_capacity(value.tags.len() + 1);
    placed.extend(value.tags.iter().map(|(key, value)| (*key, (*value).to_owned())));
    let key = rules.aggregate_tag.as_str();
    match (placed.iter_mut().find(|(tagk, _)| *tagk == key), group_by) {
        (None, None) if rules.tag_raw => placed.push((key, rules.raw_value.clone())),
        (None, None) => {}
        (None, Some(group_by)) => placed.push((key, group_by.to_uppercase())),
        (Some((_, given)), Some(group_by)) if given.eq_ignore_ascii_case(group_by) => {
            *given = group_by.to_uppercase();
        }
        (Some((_, given)), group_by) => {
            return rule(format!(
                "Given tag value for {key} of {given} did not match the group by aggregator of {} for {} {}",
                group_by.unwrap_or("null"),
                value.metric,
                tags()
            ));
        }
    }
    let is_derived = |name: &str| {
        rules.block_derived && (name.eq_ignore_ascii_case("avg") || name.eq_ignore_ascii_case("dev"))
    };
    // From here on with the tag that was added.
    let tags = || point_text::tag_map(placed.iter().map(|(key, value)| (*key, value.as_str())));
    if let Some(group_by) = group_by {
        if Aggregator::parse(&group_by.to_lowercase()).is_none() {
            return rule(format!(
                "Invalid group by aggregator {group_by} with metric {} {}",
                value.metric,
                tags()
            ));
        }
        if is_derived(group_by) {
            return rule(format!(
                "Derived group by aggregations are not allowed {group_by} with metric {} {}",
                value.metric,
                tags()
            ));
        }
    }
    let config = rollups.config();
    let (table, rollup) = match interval {
        Some(name) => {
            let interval = config
                .interval(name)
                .ok_or_else(|| AggregateError::NoSuchInterval {
                    interval: name.to_owned(),
                })?;
            let Some(aggregator) = aggregator.filter(|name| !name.is_empty()) else {
                return rule("Aggregator cannot be null or empty.".to_owned());
            };
            let id = config.id(aggregator);
            let id = id.map_err(|error| AggregateError::Rule(error.to_string()))?;
            let table = match group_by {
                Some(_) => interval.pre_aggregation_table(),
                None => interval.table(),
            };
            (table, Some((interval, id)))
        }
        None if group_by.is_none() => {
            return Err(AggregateError::NoInterval);
        }
        None => {
            let interval = config.default_interval().ok_or(AggregateError::NotConfigured)?;
            (interval.pre_aggregation_table(), None)
        }
    };
    if let Some(aggregator) = aggregator.filter(|name| is_derived(name)) {
        return rule(format!(
            "Derived rollup aggregations are not allowed {} with metric {} {}",
            aggregator.to_uppercase(),
            value.metric,
            tags()
        ));
    }
    Ok(Placed {
        tags: placed,
        // Tables of the configuration have been parsed.
        table: rollups.table(table).ok_or(AggregateError::NotConfigured)?,
        rollup,
        seconds,
    })
}
