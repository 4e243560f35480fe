use proptest::prelude::*;

use super::*;
use crate::uid::UidWidth;

fn tag(tagk: u64, tagv: u64) -> (TagkUid, TagvUid) {
    let width = UidWidth::DEFAULT;
    (
        TagkUid::from_number(tagk, width).unwrap(),
        TagvUid::from_number(tagv, width).unwrap(),
    )
}

fn metric(number: u64) -> MetricUid {
    MetricUid::from_number(number, UidWidth::DEFAULT).unwrap()
}

#[test]
fn sorts_tags_by_unsigned_tagk() {
    let mut tags = [tag(0x80_0000, 1), tag(3, 4), tag(1, 9)];
    let tsuid = Tsuid::new(metric(1), &mut tags).unwrap();
    assert_eq!(tsuid.to_string(), "000001000001000009000003000004800000000001");
    let widths = UidWidths::default();
    assert_eq!(tsuid.metric(&widths), metric(1));
    assert_eq!(tsuid.tags(&widths).len(), 3);
    assert_eq!(
        tsuid.tags(&widths).collect::<Vec<_>>(),
        [tag(1, 9), tag(3, 4), tag(0x80_0000, 1)]
    );
}

#[test]
fn rejects_missing_and_duplicate_tags() {
    let error = Tsuid::new(metric(7), &mut []).unwrap_err();
    assert_eq!(
        error.to_string(),
        "series of metric 000007 has no tags, at least 1 is needed"
    );
    let error = Tsuid::new(metric(7), &mut [tag(2, 5), tag(1, 1), tag(2, 4)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tag key 000002 is there twice, with the values 000004 and 000005"
    );
}

#[test]
fn rejects_damaged_tsuids() {
    let parse = |text| Tsuid::parse(text, &UidWidths::default()).unwrap_err().to_string();
    assert_eq!(
        parse("000001"),
        "TSUID `000001` has 3 bytes, expected 3 and one or more times 6 bytes"
    );
    assert_eq!(
        parse("0000010000010000"),
        "TSUID `0000010000010000` has 8 bytes, expected 3 and one or more times 6 bytes"
    );
    assert_eq!(
        parse("000001000002000001000001000001"),
        "TSUID `000001000002000001000001000001` has tag key 000001 after 000002, expected \
         ascending tag keys"
    );
    assert!(parse("000001000002000001000002000003").contains("000002 after 000002"));
    assert_eq!(parse("xyz"), "`xyz` is not a TSUID, expected hex");
    assert!(Tsuid::from_bytes(&[], &UidWidths::default()).is_err());
}

#[test]
fn accessors_tolerate_wrong_widths() {
    let tsuid = Tsuid::new(metric(1), &mut [tag(1, 1)]).unwrap();
    let wide = UidWidth::new(8).unwrap();
    let widths = UidWidths {
        metric: wide,
        tagk: wide,
        tagv: wide,
    };
    assert_eq!(tsuid.metric(&widths).as_bytes().len(), 8);
    assert_eq!(tsuid.tags(&widths).count(), 0);
}

fn widths() -> impl Strategy<Value = UidWidths> {
    (1_usize..=8, 1_usize..=8, 1_usize..=8).prop_map(|(metric, tagk, tagv)| {
        let width = |bytes| UidWidth::new(bytes).unwrap();
        UidWidths {
            metric: width(metric),
            tagk: width(tagk),
            tagv: width(tagv),
        }
    })
}

proptest! {
    #[test]
    fn built_keys_round_trip(
        widths in widths(),
        metric in 1..=255_u64,
        pairs in prop::collection::btree_map(1..=255_u64, 1..=255_u64, 1..9),
    ) {
        let metric = MetricUid::from_number(metric, widths.metric).unwrap();
        let sorted: Vec<_> = pairs
            .iter()
            .map(|(k, v)| {
                let tagk = TagkUid::from_number(*k, widths.tagk).unwrap();
                (tagk, TagvUid::from_number(*v, widths.tagv).unwrap())
            })
            .collect();
        let mut tags = sorted.clone();
        tags.reverse();
        let tsuid = Tsuid::new(metric, &mut tags).unwrap();
        prop_assert_eq!(tsuid.metric(&widths), metric);
        prop_assert_eq!(tsuid.tags(&widths).collect::<Vec<_>>(), sorted);
        prop_assert_eq!(Tsuid::from_bytes(tsuid.as_bytes(), &widths), Ok(tsuid.clone()));
        prop_assert_eq!(Tsuid::parse(&tsuid.to_string().to_lowercase(), &widths), Ok(tsuid));
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_tsuid_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        widths in widths(),
    ) {
        if let Ok(tsuid) = Tsuid::from_bytes(&bytes, &widths) {
            let mut tags: Vec<_> = tsuid.tags(&widths).collect();
            prop_assert_eq!(Tsuid::new(tsuid.metric(&widths), &mut tags).unwrap(), tsuid.clone());
            prop_assert_eq!(tsuid.as_bytes(), bytes);
        }
    }
}
