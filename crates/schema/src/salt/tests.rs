use proptest::prelude::*;

use super::*;

fn salt(layout: SaltLayout, tsuid: &str) -> String {
    let mut out = Vec::new();
    layout.salt(&hex::decode(tsuid).unwrap(), &mut out);
    hex::encode(out)
}

#[test]
fn salts_match_opentsdb() {
    let layout = SaltLayout::new(1, 20).unwrap();
    // V73, V75, V76, V77, and the negative hashes of V78.
    assert_eq!(salt(layout, "000001000001000001"), "08");
    assert_eq!(salt(layout, "000001000001000002"), "09");
    assert_eq!(salt(layout, "000002000001000001000002000003"), "0a");
    assert_eq!(salt(layout, "000002000001000002000002000003"), "0b");
    assert_eq!(salt(layout, "fedc8100000180ff80"), "02");
    assert_eq!(salt(layout, "fedc8100000180ff7f"), "07");
    // V81, V82
    let layout = SaltLayout::new(2, 1000).unwrap();
    assert_eq!(salt(layout, "0000000100010000000001"), "00ce");
    assert_eq!(salt(layout, "000000010001000000000200020000000003"), "0186");
}

#[test]
fn truncates_buckets_wider_than_the_salt() {
    let layout = SaltLayout::new(1, 300).unwrap();
    assert_eq!(layout.bytes_of(256).as_bytes(), [0x00]);
    assert_eq!(layout.bytes_of(299).as_bytes(), [0x2b]);
    // Buckets share salts, and each salt is scanned once.
    assert_eq!(layout.buckets(), 0..256);
}

#[test]
fn one_empty_bucket_without_salt() {
    assert_eq!(salt(SaltLayout::OFF, "000001000001000001"), "");
    assert_eq!(SaltLayout::default().buckets(), 0..1);
    assert_eq!(SaltLayout::default().bytes_of(0).as_bytes(), [0_u8; 0]);
}

#[test]
fn rejects_settings_out_of_range() {
    assert_eq!(
        SaltLayout::new(9, 20).unwrap_err().to_string(),
        "9 bytes is not a salt width, expected 0 to 8"
    );
    for buckets in [0, 1 << 31] {
        assert_eq!(
            SaltLayout::new(1, buckets).unwrap_err().to_string(),
            format!("{buckets} is not a number of salt buckets, expected 1 to 2147483647")
        );
    }
    assert!(SaltLayout::new(8, i32::MAX.cast_unsigned()).is_ok());
}

proptest! {
    #[test]
    fn scan_buckets_cover_every_salt(
        tsuid in prop::collection::vec(any::<u8>(), 0..60),
        width in 0_usize..=8,
        buckets in prop_oneof![1..1000_u32, 1..=i32::MAX.cast_unsigned()],
    ) {
        let layout = SaltLayout::new(width, buckets).unwrap();
        let mut salt = Vec::new();
        layout.salt(&tsuid, &mut salt);
        prop_assert_eq!(salt.len(), width);
        let number = salt.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let scanned = layout.buckets();
        prop_assert!(number < u64::from(scanned.end));
        let visited = layout.bytes_of(u32::try_from(number).unwrap());
        prop_assert_eq!(visited.as_bytes(), salt);
    }
}
