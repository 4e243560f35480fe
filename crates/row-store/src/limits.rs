//! Size limits of the data model, the same in every backend.

/// The longest row key, in bytes; HBase's limit.
pub(crate) const MAX_ROW_KEY: usize = 32_767;
/// The longest qualifier, in bytes. OpenTSDB's compaction makes long ones: 144,000 bytes for an hour of ten
/// points a second. HBase stores less, 10 MiB in a whole cell.
pub(crate) const MAX_QUALIFIER: usize = (16 << 20) - 1;
/// The largest value, in bytes.
pub(crate) const MAX_VALUE: usize = 16 << 20;
/// The most families of a table; a [`crate::FamilyId`] is an index below it.
pub(crate) const MAX_FAMILIES: usize = 16;
