use oxtsdb_storage_file::disk::real::RealDisk;

use super::*;
use crate::TableDef;

fn gap(start: &[u8], stop: &[u8]) -> Gap {
    Gap {
        start: start.to_vec(),
        stop: stop.to_vec(),
        detail: "offset 7: a\ttab".to_owned(),
    }
}

/// A store's folder with tables 1 to 3, and its damage.
fn set_aside(folder: &Path) -> (SetAside, Vec<Arc<Table>>) {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let catalog = Catalog::open(Arc::clone(&disk), folder.join("TABLES")).unwrap();
    for name in ["one", "two", "three"] {
        catalog
            .create(&TableDef::new(name.parse().unwrap(), &["f"]))
            .unwrap();
    }
    let tables = catalog.by_id().into_values().collect();
    let set_aside = SetAside::open(disk, folder, Arc::new(catalog), |gap| gap, None);
    (set_aside.unwrap(), tables)
}

#[test]
fn damage_record_survives_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let (damage, tables) = set_aside(folder.path());
    // From row `x` of table 1 to row `b` of table 3; the rest of table 3.
    let gaps = [gap(b"\0\x01x", b"\0\x03b"), gap(b"\0\x03y\xff", b"")];
    damage.add(&gaps, Path::new("set-aside/table-1-0")).unwrap();
    damage.add(&gaps, Path::new("again")).unwrap();
    let range_tuples = |damage: &SetAside| -> Vec<(String, Vec<u8>, Vec<u8>)> {
        let ranges = damage.ranges().into_iter();
        ranges
            .map(|range| (range.table.to_string(), range.start, range.stop))
            .collect()
    };
    let expected = [
        ("one".to_owned(), b"x".to_vec(), vec![]),
        ("two".to_owned(), vec![], vec![]),
        ("three".to_owned(), vec![], b"b".to_vec()),
        ("three".to_owned(), b"y\xff".to_vec(), vec![]),
    ];
    assert_eq!(range_tuples(&damage), expected);
    let (again, _) = set_aside(folder.path());
    assert_eq!(range_tuples(&again), expected);
    assert!(again.row_damage(&tables[1], b"any").is_some());
    assert!(again.row_damage(&tables[0], b"w").is_none());
    assert!(again.row_damage(&tables[0], b"x").is_some());
    assert!(again.row_damage(&tables[2], b"b").is_none());

    std::fs::write(folder.path().join("DAMAGE"), "something else").unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let catalog = Arc::new(Catalog::open(Arc::clone(&disk), folder.path().join("TABLES")).unwrap());
    let error = SetAside::open(disk, folder.path(), catalog, |gap| gap, None).unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt { place, .. } if place.ends_with("DAMAGE")),
        "{error}"
    );
}

#[test]
fn unbounded_damage_excludes_later_tables() {
    let folder = tempfile::tempdir().unwrap();
    let (damage, tables) = set_aside(folder.path());
    damage.add(&[gap(b"", b"")], Path::new("file")).unwrap();
    assert_eq!(damage.ranges().len(), tables.len());
    damage
        .catalog
        .create(&TableDef::new("four".parse().unwrap(), &["f"]))
        .unwrap();
    assert_eq!(damage.ranges().len(), tables.len());
}

#[test]
fn splits_reads_at_the_bounds_of_damage() {
    let folder = tempfile::tempdir().unwrap();
    let (damage, tables) = set_aside(folder.path());
    let gaps = [gap(b"\0\x01d", b"\0\x01f"), gap(b"\0\x01m", b"\0\x01p")];
    damage.add(&gaps, Path::new("file")).unwrap();
    let subranges = |start: &[u8], stop: &[u8], reverse: bool| {
        let (mut start, mut stop) = (start.to_vec(), stop.to_vec());
        let mut ends = Vec::new();
        loop {
            let subrange = damage.first_subrange(&tables[0], &start, &stop, reverse);
            let end = subrange.end.clone().unwrap_or_default();
            ends.push((String::from_utf8(end).unwrap(), subrange.damage.is_some()));
            match subrange.end {
                Some(end) if reverse => stop = end,
                Some(end) => start = end,
                None => return ends,
            }
        }
    };
    let owned = |subranges: &[(&str, bool)]| -> Vec<(String, bool)> {
        subranges
            .iter()
            .map(|(end, damaged)| ((*end).to_owned(), *damaged))
            .collect()
    };
    let all = [("d", false), ("f", true), ("m", false), ("p", true), ("", false)];
    assert_eq!(subranges(b"", b"", false), owned(&all));
    let reversed = [("p", false), ("m", true), ("f", false), ("d", true), ("", false)];
    assert_eq!(subranges(b"", b"", true), owned(&reversed));
    assert_eq!(
        subranges(b"e", b"n", false),
        owned(&[("f", true), ("m", false), ("", true)])
    );
    assert_eq!(
        subranges(b"e", b"n", true),
        owned(&[("m", true), ("f", false), ("", true)])
    );
    assert_eq!(subranges(b"f", b"m", false), owned(&[("", false)]));
    assert_eq!(subranges(b"d", b"f", true), owned(&[("", true)]));
    assert!(
        damage
            .first_subrange(&tables[1], b"", b"", false)
            .damage
            .is_none()
    );
}
