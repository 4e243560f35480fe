use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use oxtsdb_schema::{UidWidth, UidWidths};

use super::*;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

fn catalogue() -> SeriesCatalogue {
    let disk = Arc::new(SimulatedDisk::new());
    SeriesCatalogue::open(disk, Path::new("series.log"), UidWidths::default()).unwrap()
}

/// The key of a series: a host of its own, one of 10 racks, and every third has an owner.
fn key(metric: u8, host: u32) -> Vec<u8> {
    let hash = host.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let mut key = vec![0, 0, metric, 0, 0, 1, hash[0], hash[1], hash[2]];
    key.extend([0, 0, 2, 0, 0, hash[3] % 10]);
    if host.is_multiple_of(3) {
        key.extend([0, 0, 3, 0, 0, 1]);
    }
    key
}

fn add(catalogue: &SeriesCatalogue, metric: u8, hosts: std::ops::Range<u32>) {
    let keys: Vec<Vec<u8>> = hosts.map(|host| key(metric, host)).collect();
    catalogue
        .numbers(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())
        .unwrap();
}

fn keys(catalogue: &SeriesCatalogue, series: &[SeriesNumber]) -> Vec<Vec<u8>> {
    let key = |series: &SeriesNumber| {
        let mut key = Vec::new();
        assert!(catalogue.key(*series, &mut key));
        key
    };
    series.iter().map(key).collect()
}

fn tagk(number: u64) -> TagkUid {
    TagkUid::from_number(number, UidWidth::DEFAULT).unwrap()
}

fn rack(number: u64) -> TagTest {
    TagTest::In(
        tagk(2),
        vec![TagvUid::from_number(number, UidWidth::DEFAULT).unwrap()],
    )
}

#[test]
fn indexes_follow_new_series() {
    let catalogue = catalogue();
    let mut end = 0;
    for new in [1, 1, 3, 100, 2000, 3, 0, 90, 1, 700, 400, 400, 20, 66_000, 9] {
        add(&catalogue, 7, end..end + new);
        add(&catalogue, 9, end..end + new / 2);
        end += new;
        let metric = catalogue.metric_number(&[0, 0, 7]).unwrap();
        let expected: BTreeSet<Vec<u8>> = (0..end).map(|host| key(7, host)).collect();

        let tests = [rack(4), TagTest::Has(tagk(3))];
        let early = catalogue.select_few(metric, &tests, usize::MAX);
        assert_eq!(early.is_none(), new > 0, "new series are not in the index yet");
        let selected = catalogue.select(metric, &tests);
        assert_eq!(
            catalogue.select_few(metric, &tests, usize::MAX).as_ref(),
            Some(&selected)
        );
        assert!(selected.is_sorted());
        let selected: BTreeSet<Vec<u8>> = keys(&catalogue, &selected).into_iter().collect();
        let passing = expected.iter().filter(|key| key[14] == 4 && key.len() > 15);
        assert!(passing.eq(&selected), "{new} of {end}");

        let by_key = catalogue.metric_series(metric);
        assert!(keys(&catalogue, &by_key).iter().eq(&expected), "{new} of {end}");

        let mut racks = BTreeMap::new();
        expected
            .iter()
            .for_each(|key| *racks.entry(key[14]).or_insert(0) += 1);
        let values = catalogue.tag_values(metric, tagk(2));
        let values = values.iter().map(|(tagv, count)| (tagv.as_bytes()[2], *count));
        assert!(values.eq(racks), "{new} of {end}");
    }
    let metric = catalogue.metric_number(&[0, 0, 7]).unwrap();
    let hosts = u64::from(end);
    let counts = [(tagk(1), hosts), (tagk(2), hosts), (tagk(3), hosts.div_ceil(3))];
    assert_eq!(catalogue.tag_keys(metric), counts);
}

#[test]
fn queries_read_few_segments() {
    let catalogue = catalogue();
    for start in (0..3_000).step_by(10) {
        add(&catalogue, 1, start..start + 10);
        assert!(catalogue.segments(MetricNumber(0)).len() < 8);
    }
}

#[test]
fn a_metric_without_series_selects_none() {
    let catalogue = catalogue();
    let metric = MetricNumber(0);
    assert!(catalogue.metric_series(metric).is_empty());
    assert!(catalogue.select(metric, &[]).is_empty());
    assert!(catalogue.tag_keys(metric).is_empty());
}

#[test]
fn bytes_of_indexes_are_counted() {
    let catalogue = catalogue();
    add(&catalogue, 1, 0..50_000);
    let before = catalogue.byte_len();
    catalogue.metric_series(MetricNumber(0));
    let indexed = catalogue.byte_len() - before;
    assert!((50_000 * 30..50_000 * 80).contains(&indexed), "{indexed}");
    catalogue.select(MetricNumber(0), &[rack(1)]);
    assert_eq!(catalogue.byte_len() - before, indexed);
}

#[test]
fn queries_run_while_series_are_added() {
    let catalogue = catalogue();
    add(&catalogue, 1, 0..1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for start in (1..20_000).step_by(100) {
                add(&catalogue, 1, start..start + 100);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut known = 0;
                while known < 20_001 {
                    let all = catalogue.select(MetricNumber(0), &[]);
                    assert!(all.len() >= known && all.is_sorted());
                    known = all.len();
                    let by_key = catalogue.metric_series(MetricNumber(0));
                    assert!(by_key.len() >= known);
                }
            });
        }
    });
    let by_key = catalogue.metric_series(MetricNumber(0));
    assert!(keys(&catalogue, &by_key).is_sorted());
}

#[test]
fn uids_of_other_widths_are_returned_as_they_are() {
    let width = |bytes| UidWidth::new(bytes).unwrap();
    let widths = UidWidths {
        metric: width(1),
        tagk: width(2),
        tagv: width(8),
    };
    let disk = Arc::new(SimulatedDisk::new());
    let catalogue = SeriesCatalogue::open(disk, Path::new("series.log"), widths).unwrap();
    let tags: [[u8; 10]; 2] = [[9, 1, 0xff, 2, 3, 4, 5, 6, 7, 8], [9, 2, 0, 0, 0, 0, 0, 0, 0, 1]];
    let key = [&[200], tags.as_flattened()].concat();
    catalogue
        .numbers(&[&key, &[&[100], &tags[1][..]].concat()])
        .unwrap();
    let metric = catalogue.metric_number(&[200]).unwrap();
    let tagk = |tag: &[u8; 10]| TagkUid::from_bytes(&tag[..2]).unwrap();
    let tagv = |tag: &[u8; 10]| TagvUid::from_bytes(&tag[2..]).unwrap();
    assert_eq!(catalogue.tag_keys(metric), tags.map(|tag| (tagk(&tag), 1)));
    for tag in &tags {
        assert_eq!(catalogue.tag_values(metric, tagk(tag)), [(tagv(tag), 1)]);
        let test = TagTest::In(tagk(tag), vec![tagv(tag)]);
        assert_eq!(catalogue.select(metric, &[test]), [SeriesNumber(0)]);
    }
    let uids = [100, 200].map(|uid| (oxtsdb_schema::MetricUid::from_bytes(&[uid]).unwrap(), 1));
    assert_eq!(catalogue.metrics(), uids);
}

#[test]
fn indexes_that_no_query_uses_give_their_memory_back() {
    let catalogue = catalogue();
    add(&catalogue, 7, 0..5000);
    add(&catalogue, 9, 0..5000);
    let without = catalogue.byte_len();
    let [metric, other] = [7, 9].map(|uid| catalogue.metric_number(&[0, 0, uid]).unwrap());
    let by_key = catalogue.metric_series(metric);
    catalogue.metric_series(other);
    let with_both = catalogue.byte_len();
    assert_eq!(catalogue.drop_unused_indexes(), 0, "both were used");
    let selected = catalogue.select(metric, &[rack(4)]);
    assert_eq!(catalogue.drop_unused_indexes(), 1, "the other one");
    let with_one = catalogue.byte_len();
    assert!(without < with_one && with_one < with_both);
    assert_eq!(catalogue.drop_unused_indexes(), 1);
    assert_eq!(catalogue.byte_len(), without);
    assert_eq!(catalogue.select(metric, &[rack(4)]), selected);
    assert_eq!(catalogue.metric_series(metric), by_key);
    assert_eq!(catalogue.byte_len(), with_one);
}
