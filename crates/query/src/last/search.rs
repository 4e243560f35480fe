//! Searches for last points. A reader chooses how: see `LastPointReader`.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{Tsuid, Uid, UidKind};

use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::names::Names;
pub use crate::reader::last::{LastPoint, LookBack};
use crate::storage::Storage;

/// A series by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesNames {
    /// The metric.
    pub metric: Arc<str>,
    /// Tag keys and values, by tag key UID.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

/// The last point of one series; `None` if it has none in the range.
///
/// # Errors
///
/// When the store fails or a row cannot be decoded; [`QueryError::OverBudget`].
pub async fn find_last_point(
    storage: &Storage,
    tsuid: &Tsuid,
    look_back: LookBack,
    context: &QueryContext,
    compute: &ComputePool,
) -> Result<Option<LastPoint>, QueryError> {
    let context = storage.read_context(compute, context);
    let searches = vec![(tsuid.clone(), look_back)];
    let points = storage.reader.last_points(searches, &context).await?;
    Ok(points.into_iter().flatten().next())
}

/// The last points of series, each in a range of its own, in the order of the searches; series without one are left
/// out.
///
/// # Errors
///
/// As [`find_last_point`].
pub async fn find_last_points(
    storage: &Storage,
    searches: Vec<(Tsuid, LookBack)>,
    context: &QueryContext,
    compute: &ComputePool,
) -> Result<Vec<LastPoint>, QueryError> {
    let bytes = size_of::<(Tsuid, LookBack, Option<LastPoint>)>() * searches.len();
    let _held = context.budget().hold(bytes as u64)?;
    let context = storage.read_context(compute, context);
    let points = storage.reader.last_points(searches, &context).await?;
    Ok(points.into_iter().flatten().collect())
}

/// The names of series, in their order.
///
/// # Errors
///
/// [`QueryError::UidWithoutName`], and when names cannot be looked up.
pub async fn names_of(
    storage: &Storage,
    tsuids: &[Tsuid],
    context: &QueryContext,
) -> Result<Vec<SeriesNames>, QueryError> {
    let widths = storage.layout.widths;
    let mut needed: [Vec<Uid>; 3] = Default::default();
    for tsuid in tsuids {
        needed[0].push(tsuid.metric(&widths).uid());
        for (tagk, tagv) in tsuid.tags(&widths) {
            needed[1].push(tagk.uid());
            needed[2].push(tagv.uid());
        }
    }
    let names = Names::resolve(needed, &*storage.directory, context).await?;
    tsuids
        .iter()
        .map(|tsuid| {
            let tags = tsuid.tags(&widths).map(|(tagk, tagv)| {
                Ok((
                    names.name(UidKind::Tagk, tagk.uid())?,
                    names.name(UidKind::Tagv, tagv.uid())?,
                ))
            });
            Ok(SeriesNames {
                metric: names.name(UidKind::Metric, tsuid.metric(&widths).uid())?,
                tags: tags.collect::<Result<_, QueryError>>()?,
            })
        })
        .collect()
}
