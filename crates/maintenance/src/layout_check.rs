//! Checks that the table of points was written with the configured salt and UID widths.
//!
//! Storage does not record the layout of row keys, and no query finds points that were written with another one. On
//! start the service therefore samples a few row keys, however large the table is: some of each of the first and
//! last buckets and metrics.
//!
//! ```text
//!   length and base time     determine salt width and UID widths: a base time is a whole hour
//!   salt of the series       determines the buckets: with another number, half of the series or more differ
//! ```
//!
//! The check misses UID widths that differ while tag key and value together have the same length (table `tsdb-uid`
//! shows those), and another number of buckets if all sampled series have the same bucket in both. Global
//! annotations have zeros in every layout and are ignored.
//!
//! The service rejects a table if a quarter of the sampled keys or more do not fit. Fewer are leftovers of a writer
//! with other settings and are logged.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{DamageLog, RowStore, Scan, StoreError, TableName};
use oxtsdb_schema::{RowKeyLayout, RowKeyRef, SaltLayout, UidWidths};
use tracing::warn;

/// Buckets, and metrics, that are sampled from each end of the table.
const STEPS: usize = 4;

/// Rows that are sampled at each step: a few that do not fit, as `tsdb fsck` repairs, must not decide for a table of one
/// metric.
const ROWS: usize = 8;

/// The largest number of buckets that is tried as an explanation.
const MOST_BUCKETS: u32 = 4096;

/// Why the service cannot run on a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LayoutError {
    /// Row keys of another shape.
    #[error(
        "table `{table}` was not written with --salt-width {width} and the UID widths {widths}: {example}; {hint}"
    )]
    Shape {
        /// The table.
        table: TableName,
        /// The width of the settings.
        width: usize,
        /// The widths of the UID service.
        widths: String,
        /// The fault of one of its keys.
        example: String,
        /// The advice to the operator.
        hint: String,
    },
    /// Series in other buckets.
    #[error(
        "table `{table}` was not written with --salt-buckets {buckets}: row key `{example}` is in another bucket; {hint}"
    )]
    Buckets {
        /// The table.
        table: TableName,
        /// The buckets of the settings.
        buckets: u32,
        /// One of its keys.
        example: String,
        /// The advice to the operator.
        hint: String,
    },
}

/// Compares the table with the layout.
///
/// # Errors
///
/// `LayoutError`, or the store fails.
pub async fn check(store: &dyn RowStore, table: &TableName, layout: &RowKeyLayout) -> anyhow::Result<()> {
    let keys = match sample(store, table, layout).await {
        Ok(keys) => keys,
        // Where many rows have expired or were deleted, the scan of the first row may take long.
        Err(error @ StoreError::TimedOut { .. }) => {
            warn!(%table, %error, "salt and UID widths are not compared with the table's rows");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    Ok(check_keys(table, &keys, layout)?)
}

/// Samples row keys of all parts of the table.
async fn sample(
    store: &dyn RowStore,
    table: &TableName,
    layout: &RowKeyLayout,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let bucket = layout.salt.width();
    let metric = bucket + layout.widths.metric.bytes();
    let mut keys = BTreeSet::new();
    // Without salt there is one bucket, which the metrics sample.
    for length in [bucket, metric].into_iter().filter(|length| *length > 0) {
        for reverse in [false, true] {
            let mut scan = Scan::range([], []);
            scan.reverse = reverse;
            for _ in 0..STEPS {
                let first = first_keys(store, table, scan.clone()).await?;
                let Some(key) = first.first() else {
                    break;
                };
                let beyond = Scan::prefix(&key[..length.min(key.len())]);
                keys.extend(first);
                // Nothing lies beyond the last, or the first, prefix.
                let limit = if reverse {
                    scan.stop = beyond.start;
                    &scan.stop
                } else {
                    scan.start = beyond.stop;
                    &scan.start
                };
                if limit.is_empty() {
                    break;
                }
            }
        }
    }
    keys.retain(|key| !is_global(key));
    Ok(keys.into_iter().collect())
}

/// The keys of the first rows of a range.
async fn first_keys(
    store: &dyn RowStore,
    table: &TableName,
    mut scan: Scan,
) -> Result<Vec<Vec<u8>>, StoreError> {
    scan.limit = Some(ROWS as u64);
    scan.batch_rows = ROWS;
    // Damaged rows must not keep the service from starting.
    scan.skip_damaged = Some(DamageLog::default());
    let mut batches = store.scan(table, scan).await?;
    let mut keys = Vec::with_capacity(ROWS);
    while let Some(rows) = batches.try_next().await? {
        keys.extend(rows.iter().map(|row| row.key().to_vec()));
    }
    Ok(keys)
}

/// Whether a key belongs to global annotations in some layout: zeros, and a base time.
fn is_global(key: &[u8]) -> bool {
    let before_base_time = key.len().saturating_sub(size_of::<u32>());
    key[..before_base_time].iter().all(|byte| *byte == 0)
}

/// Checks the sampled keys of a table against a layout.
fn check_keys(table: &TableName, keys: &[Vec<u8>], layout: &RowKeyLayout) -> Result<(), Box<LayoutError>> {
    let misfits: Vec<&Vec<u8>> = keys.iter().filter(|key| !fits(key, layout)).collect();
    let Some(example) = misfits.first() else {
        return Ok(());
    };
    if misfits.len() * 4 < keys.len() {
        warn!(%table, row_key = hex::encode_upper(example), rows = misfits.len(), of = keys.len(), "some rows were written with other settings, no query finds them");
        return Ok(());
    }
    let shape = misfits
        .iter()
        .find_map(|key| RowKeyRef::decode(key, layout).err());
    let fit_all = |layout: &RowKeyLayout| keys.iter().all(|key| fits_shape(key, layout));
    let error = match shape {
        Some(error) => {
            let width = layout.salt.width();
            let another = (0..=8).find(|width| {
                SaltLayout::new(*width, layout.salt.bucket_count())
                    .is_ok_and(|salt| fit_all(&RowKeyLayout { salt, ..*layout }))
            });
            LayoutError::Shape {
                table: table.clone(),
                width,
                widths: widths_text(&layout.widths),
                example: error.to_string(),
                hint: match another {
                    Some(width) => format!("--salt-width {width} fits"),
                    None => "no --salt-width fits, so the UID widths are others too".to_owned(),
                },
            }
        }
        None => {
            let another = (1..=MOST_BUCKETS).find(|buckets| {
                SaltLayout::new(layout.salt.width(), *buckets).is_ok_and(|salt| {
                    keys.iter()
                        .all(|key| fits(key, &RowKeyLayout { salt, ..*layout }))
                })
            });
            LayoutError::Buckets {
                table: table.clone(),
                buckets: layout.salt.bucket_count(),
                example: hex::encode_upper(example),
                hint: match another {
                    Some(buckets) => format!("--salt-buckets {buckets} fits the sampled rows"),
                    None => "set it to what OpenTSDB has as tsd.storage.salt.buckets".to_owned(),
                },
            }
        }
    };
    Err(error.into())
}

fn fits(key: &[u8], layout: &RowKeyLayout) -> bool {
    RowKeyRef::decode(key, layout).is_ok_and(|key| key.has_valid_salt(layout))
}

fn fits_shape(key: &[u8], layout: &RowKeyLayout) -> bool {
    RowKeyRef::decode(key, layout).is_ok()
}

fn widths_text(widths: &UidWidths) -> String {
    format!("{}/{}/{}", widths.metric, widths.tagk, widths.tagv)
}

#[cfg(test)]
mod tests;
