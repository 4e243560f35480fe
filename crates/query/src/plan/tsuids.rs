//! TSUIDs of requests.

use oxtsdb_schema::{RowKeyLayout, Tsuid};

use crate::error::QueryError;

/// Checks the TSUIDs of one sub-query and removes duplicates.
pub(super) fn check_tsuids(tsuids: &[Vec<u8>], layout: &RowKeyLayout) -> Result<Vec<Tsuid>, QueryError> {
    let mut checked = Vec::with_capacity(tsuids.len());
    for bytes in tsuids {
        checked.push(check_tsuid(bytes, layout)?);
    }
    checked.sort_unstable();
    checked.dedup();
    let metrics = checked.iter().map(|tsuid| tsuid.metric(&layout.widths));
    for (first, second) in metrics.clone().zip(metrics.skip(1)) {
        if first != second {
            return Err(QueryError::TsuidMetrics {
                first: first.uid(),
                second: second.uid(),
            });
        }
    }
    Ok(checked)
}

/// Checks the bytes of a TSUID.
///
/// # Errors
///
/// [`QueryError::Tsuid`].
pub fn check_tsuid(bytes: &[u8], layout: &RowKeyLayout) -> Result<Tsuid, QueryError> {
    Tsuid::from_bytes(bytes, &layout.widths).map_err(|error| QueryError::Tsuid {
        reason: error.to_string(),
    })
}
