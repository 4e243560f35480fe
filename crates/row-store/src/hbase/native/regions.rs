//! Regions, and a cache of their places.
//!
//! A region is the rows of a table from a first key (inside) to a last one (outside; empty: to the end of the table).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::RwLock;
use rustc_hash::FxBuildHasher;

use super::messages::{BY_REGION_NAME, RegionSpecifier};
use crate::TableName;

/// A region and its server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) table: TableName,
    /// `table,start,number.hash.`
    pub(super) name: Bytes,
    pub(super) start: Bytes,
    pub(super) end: Bytes,
    /// `host:port`.
    pub(super) server: String,
}

impl Region {
    pub(super) fn specifier(&self) -> RegionSpecifier {
        RegionSpecifier {
            kind: BY_REGION_NAME,
            value: self.name.clone(),
        }
    }

    fn is_before(&self, end: &[u8]) -> bool {
        !self.end.is_empty() && *self.end <= *end
    }
}

/// A place among the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// The region of a row.
    Of(&'a [u8]),
    /// The region of the rows directly before a key.
    Before(&'a [u8]),
    /// The last region.
    Last,
}

/// The regions that are known.
#[derive(Debug, Default)]
pub(super) struct Regions(RwLock<HashMap<TableName, Table, FxBuildHasher>>);

/// The regions of a table by their first keys; no two overlap.
type Table = BTreeMap<Bytes, Arc<Region>>;

impl Regions {
    /// The region at a place; `None`: it is not known.
    pub(super) fn find(&self, table: &TableName, place: Place<'_>) -> Option<Arc<Region>> {
        let tables = self.0.read();
        let regions = tables.get(table)?;
        let region = match place {
            Place::Of(row) => {
                let (_, region) = regions
                    .range::<[u8], _>((Bound::Unbounded, Bound::Included(row)))
                    .next_back()?;
                (!region.is_before(row)).then_some(region)
            }
            Place::Before(key) => {
                let before = (Bound::Unbounded, Bound::Excluded(key));
                let (_, region) = regions.range::<[u8], _>(before).next_back()?;
                (region.end.is_empty() || *region.end >= *key).then_some(region)
            }
            Place::Last => {
                let (_, region) = regions.last_key_value()?;
                region.end.is_empty().then_some(region)
            }
        };
        region.cloned()
    }

    /// Adds a region in place of those that overlap it.
    pub(super) fn insert(&self, region: Region) -> Arc<Region> {
        let region = Arc::new(region);
        let mut tables = self.0.write();
        let regions = tables.entry(region.table.clone()).or_default();
        let is_apart = |other: &Region| other.is_before(&region.start) || region.is_before(&other.start);
        regions.retain(|_, other| is_apart(other));
        regions.insert(region.start.clone(), Arc::clone(&region));
        region
    }

    /// Forgets a region, unless its place was found anew meanwhile.
    pub(super) fn remove(&self, region: &Arc<Region>) {
        let mut tables = self.0.write();
        if let Some(regions) = tables.get_mut(&region.table)
            && regions
                .get(&region.start)
                .is_some_and(|known| Arc::ptr_eq(known, region))
        {
            regions.remove(&region.start);
        }
    }

    /// Forgets all regions of a server.
    pub(super) fn remove_server(&self, server: &str) {
        for regions in self.0.write().values_mut() {
            regions.retain(|_, region| region.server != server);
        }
    }

    /// Forgets all regions of a table.
    pub(super) fn remove_table(&self, table: &TableName) {
        self.0.write().remove(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &str, end: &str, server: &str) -> Region {
        Region {
            table: "t".parse().unwrap(),
            name: format!("t,{start},1").into(),
            start: start.to_owned().into(),
            end: end.to_owned().into(),
            server: server.to_owned(),
        }
    }

    fn place_of(regions: &Regions, place: Place<'_>) -> Option<String> {
        let known_region = regions.find(&"t".parse().unwrap(), place)?;
        Some(String::from_utf8(known_region.start.to_vec()).unwrap())
    }

    #[test]
    fn a_row_is_in_the_region_that_begins_before_it() {
        let regions = Regions::default();
        regions.insert(region("", "c", "a:1"));
        regions.insert(region("m", "", "b:1"));
        for (place, start) in [
            (Place::Of(b""), Some("")),
            (Place::Of(b"bzz"), Some("")),
            (Place::Of(b"c"), None),
            (Place::Of(b"m"), Some("m")),
            (Place::Of(b"zz"), Some("m")),
            (Place::Before(b"c"), Some("")),
            (Place::Before(b"d"), None),
            (Place::Before(b"m"), None),
            (Place::Before(b"m\0"), Some("m")),
            (Place::Last, Some("m")),
        ] {
            assert_eq!(place_of(&regions, place).as_deref(), start, "{place:?}");
        }
    }

    #[test]
    fn a_region_replaces_the_regions_that_it_overlaps() {
        let regions = Regions::default();
        let old = regions.insert(region("", "", "a:1"));
        regions.insert(region("k", "", "b:1"));
        assert_eq!(
            place_of(&regions, Place::Of(b"a")),
            None,
            "the parent of a split is gone"
        );
        let first = regions.insert(region("", "k", "b:1"));
        regions.remove(&old);
        assert_eq!(
            place_of(&regions, Place::Of(b"a")).as_deref(),
            Some(""),
            "another region with its first key"
        );
        regions.remove(&first);
        assert_eq!(place_of(&regions, Place::Of(b"a")), None);
        regions.remove_server("b:1");
        assert_eq!(place_of(&regions, Place::Last), None);
    }
}
