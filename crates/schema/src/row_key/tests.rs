use proptest::prelude::*;

use super::*;
use crate::uid::{TagkUid, TagvUid, UidWidth};

fn salted() -> RowKeyLayout {
    RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        widths: UidWidths::default(),
    }
}

fn decode(key: &str) -> Result<(), RowKeyError> {
    RowKeyRef::decode(&hex::decode(key).unwrap(), &RowKeyLayout::default()).map(|_| ())
}

#[test]
fn decodes_row_keys() {
    // V76
    let bytes = hex::decode("0a00000250e22700000001000001000002000003").unwrap();
    let key = RowKeyRef::decode(&bytes, &salted()).unwrap();
    assert_eq!(key.salt(), [0x0a]);
    assert_eq!(key.metric().to_string(), "000002");
    assert_eq!(key.metric_bytes(), [0, 0, 2]);
    assert_eq!(key.base_time().seconds(), 1_356_998_400);
    let tags: Vec<_> = key.tags().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(tags, ["000001=000001", "000002=000003"]);
    assert_eq!(key.tag_bytes(), [0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 3]);
    let mut tsuid = vec![9; 3];
    key.tsuid_bytes(&mut tsuid);
    assert_eq!(hex::encode(&tsuid), "000002000001000001000002000003");
    assert_eq!(key.tsuid().unwrap().as_bytes(), tsuid);
    assert!(key.has_valid_salt(&salted()) && !key.is_global());

    let mut wrong = bytes.clone();
    wrong[0] = 0x0b;
    assert!(
        !RowKeyRef::decode(&wrong, &salted())
            .unwrap()
            .has_valid_salt(&salted())
    );
}

#[test]
fn rejects_damaged_keys() {
    let shown = |key| decode(key).unwrap_err().to_string();
    assert_eq!(shown(""), "row key `` has 0 bytes, expected at least 7");
    assert_eq!(
        shown("00000150e227"),
        "row key `00000150E227` has 6 bytes, expected at least 7"
    );
    assert_eq!(
        shown("00000150e2270000000100"),
        "row key `00000150E2270000000100` has 4 bytes of tags, expected a multiple of 6"
    );
    assert_eq!(
        shown("00000150e22700"),
        "row key `00000150E22700` has no tags, at least 1 is needed"
    );
    assert_eq!(
        shown("00000150e22701000001000001"),
        "row key `00000150E22701000001000001` has the base time 1356998401, expected a multiple of \
         3600"
    );
}

#[test]
fn decodes_unordered_tags_but_yields_no_tsuid() {
    let bytes = hex::decode("00000150e22700000002000001000001000003").unwrap();
    let key = RowKeyRef::decode(&bytes, &RowKeyLayout::default()).unwrap();
    assert_eq!(key.tags().count(), 2);
    assert!(matches!(key.tsuid(), Err(TsuidError::NotAscending { .. })));
    let global = hex::decode("00000050e22700").unwrap();
    let key = RowKeyRef::decode(&global, &RowKeyLayout::default()).unwrap();
    assert!(key.is_global() && key.tsuid().is_err());
}

#[test]
fn range_includes_its_start_and_excludes_its_stop() {
    let layout = salted();
    let metric = MetricUid::from_number(1, layout.widths.metric).unwrap();
    let hour = BaseTime::from_seconds(1_356_998_400);
    let (start, stop) = metric_range(&layout, metric, hour, hour.next_hour(), 8);
    assert_eq!(hex::encode(&start), "0800000150e22700");
    assert_eq!(hex::encode(&stop), "0800000150e23510");
    let first = hex::decode("0800000150e22700000001000001").unwrap();
    let after = hex::decode("0800000150e23510000001000001").unwrap();
    assert!(start <= first && first < stop && stop <= after);
}

#[test]
fn range_up_to_the_maximum_includes_the_last_hour() {
    let layout = RowKeyLayout::default();
    let metric = MetricUid::from_number(3, layout.widths.metric).unwrap();
    let stop = BaseTime::MAX.next_hour();
    let (start, stop) = metric_range(&layout, metric, BaseTime::MIN, stop, 0);
    assert_eq!(hex::encode(&start), "00000300000000");
    // V39, and the first row of the next metric.
    let last = hex::decode("000003fffff960000001000001").unwrap();
    let next = hex::decode("00000400000000000001000001").unwrap();
    assert!(start <= last && last < stop && stop <= next);
}

prop_compose! {
    fn layouts()(
        salt in 0_usize..=8,
        buckets in 1..2000_u32,
        metric in 1_usize..=8,
        tagk in 1_usize..=8,
        tagv in 1_usize..=8,
    ) -> RowKeyLayout {
        let width = |bytes| UidWidth::new(bytes).unwrap();
        RowKeyLayout {
            salt: SaltLayout::new(salt, buckets).unwrap(),
            widths: UidWidths { metric: width(metric), tagk: width(tagk), tagv: width(tagv) },
        }
    }
}

proptest! {
    #[test]
    fn row_keys_round_trip_within_their_range(
        layout in layouts(),
        metric in 1..=127_u64,
        pairs in prop::collection::btree_map(1..=127_u64, 1..=127_u64, 1..9),
        seconds in any::<u32>(),
    ) {
        let widths = layout.widths;
        let metric = MetricUid::from_number(metric, widths.metric).unwrap();
        let mut tags: Vec<_> = pairs
            .iter()
            .map(|(k, v)| {
                let tagk = TagkUid::from_number(*k, widths.tagk).unwrap();
                (tagk, TagvUid::from_number(*v, widths.tagv).unwrap())
            })
            .collect();
        let tsuid = Tsuid::new(metric, &mut tags).unwrap();
        let base = BaseTime::from_seconds(seconds);
        let key = RowKey::new(&layout, &tsuid, base);
        let mut written = Vec::new();
        write_row_key(&layout, tsuid.as_bytes(), base, &mut written);
        prop_assert_eq!(key.as_bytes(), &written);

        let read = RowKeyRef::decode(&written, &layout).unwrap();
        prop_assert_eq!(read.metric(), metric);
        prop_assert_eq!(read.base_time(), base);
        prop_assert_eq!(read.tags().collect::<Vec<_>>(), tags);
        prop_assert_eq!(read.tsuid(), Ok(tsuid));
        prop_assert!(read.has_valid_salt(&layout));

        let holding = layout
            .salt
            .buckets()
            .map(|bucket| metric_range(&layout, metric, base, base.next_hour(), bucket))
            .filter(|(start, stop)| *start <= written && written < *stop)
            .count();
        prop_assert_eq!(holding, 1);
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_key_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        layout in layouts(),
    ) {
        if let Ok(key) = RowKeyRef::decode(&bytes, &layout) {
            let base = key.base_time().seconds().to_be_bytes();
            let parts = [key.salt(), key.metric_bytes(), &base, key.tag_bytes()];
            prop_assert_eq!(&parts.concat(), &bytes);
            let _ = (key.tsuid(), key.has_valid_salt(&layout));
        }
    }

    #[test]
    fn arbitrary_bytes_around_an_hour_decode_to_a_key_or_an_error(
        tags in prop::collection::vec(any::<u8>(), 0..30),
        hours in 0..1_193_046_u32,
    ) {
        let bytes = [&[0, 0, 1], &(hours * 3600).to_be_bytes()[..], &tags].concat();
        let read = RowKeyRef::decode(&bytes, &RowKeyLayout::default());
        prop_assert_eq!(read.is_ok(), !tags.is_empty() && tags.len() % 6 == 0);
    }
}

#[test]
fn ranges_of_a_metric_ascend_without_duplicates() {
    let metric = MetricUid::from_bytes(&[0, 0, 1]).unwrap();
    for (width, buckets, expected) in [(0, 20, 1), (1, 20, 20), (1, 300, 256)] {
        let layout = RowKeyLayout {
            salt: SaltLayout::new(width, buckets).unwrap(),
            ..RowKeyLayout::default()
        };
        let ranges = metric_ranges(&layout, metric, BaseTime::MIN, BaseTime::MAX);
        assert_eq!(ranges.len(), expected, "{buckets} buckets");
        assert!(ranges.is_sorted_by(|one, next| one < next));
    }
}
