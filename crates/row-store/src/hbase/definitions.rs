//! Definitions of tables, as HBase counts and compares them.

use std::time::Duration;

use crate::{FamilyDef, StoreError, TableDef, rules};

/// HBase's time to live of families without one, in seconds.
pub(super) const FOR_EVER: i32 = i32::MAX;

/// How long the creation of a table may take: HBase creates its regions on region servers, and a busy one takes
/// longer than a request of rows may.
pub(super) const CREATION: Duration = Duration::from_secs(60);

/// The number of versions that a family keeps, as HBase counts it.
pub(super) fn max_versions(family: &FamilyDef) -> Result<i32, StoreError> {
    i32::try_from(family.max_versions).map_err(|_| StoreError::Invalid {
        detail: format!(
            "family `{}` keeps {} versions, HBase counts them up to {}",
            family.name,
            family.max_versions,
            i32::MAX
        ),
    })
}

/// The time to live in whole seconds, as HBase counts it.
pub(super) fn ttl_seconds(family: &FamilyDef) -> Result<i32, StoreError> {
    let Some(ttl) = family.ttl else {
        return Ok(FOR_EVER);
    };
    let seconds = i32::try_from(ttl.as_secs()).unwrap_or(FOR_EVER);
    if seconds == 0 || seconds == FOR_EVER || ttl.subsec_nanos() > 0 {
        return Err(StoreError::Invalid {
            detail: format!(
                "family `{}` keeps cells for {ttl:?}, HBase needs whole seconds, 1 to {}",
                family.name,
                FOR_EVER - 1
            ),
        });
    }
    Ok(seconds)
}

/// `Ok(false)` if the existing table has the requested families; HBase does not keep their order.
pub(super) fn same(existing: &TableDef, requested: &TableDef) -> Result<bool, StoreError> {
    let mut requested = requested.clone();
    requested.families.sort_by(|a, b| a.name.cmp(&b.name));
    rules::check_same_table(existing, &requested)?;
    Ok(false)
}
