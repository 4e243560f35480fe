use proptest::prelude::*;

use super::*;

#[test]
fn upper_32_bits_select_milliseconds() {
    let read = |value| Timestamp::from_opentsdb(value).unwrap();
    assert_eq!(read(1), Timestamp::from_seconds(1));
    assert_eq!(read(4_294_967_295), Timestamp::from_seconds(u32::MAX));
    assert_eq!(
        read(4_294_967_296),
        Timestamp::from_millis(4_294_967_296).unwrap()
    );
    assert_eq!(read(4_294_967_296).base_time().seconds(), 4_294_800);
    assert_eq!(read(MAX_MILLIS).base_time(), BaseTime::MAX);
    assert_eq!(read(MAX_MILLIS).offset_ms(), 1_695_999);
}

#[test]
fn errors_name_the_rejected_number() {
    let shown = |value| Timestamp::from_opentsdb(value).unwrap_err().to_string();
    assert_eq!(shown(0), "timestamp 0 is not positive");
    assert_eq!(shown(i64::MIN), "timestamp -9223372036854775808 is not positive");
    assert_eq!(
        shown(MAX_MILLIS + 1),
        "timestamp 4294967296000 ms is after 4294967295999, the last that can be stored"
    );
    assert_eq!(
        Timestamp::from_millis(-1).unwrap_err().to_string(),
        "timestamp -1 ms is negative"
    );
    assert_eq!(
        BaseTime::from_seconds_exact(3601).unwrap_err().to_string(),
        "base time 3601 is not a multiple of 3600 seconds"
    );
}

#[test]
fn whole_seconds_in_milliseconds_keep_their_resolution() {
    let millis = Timestamp::from_millis(1_356_998_400_000).unwrap();
    let seconds = Timestamp::from_seconds(1_356_998_400);
    assert_eq!(millis.as_millis(), seconds.as_millis());
    assert_ne!(millis, seconds);
    assert!(millis.is_millis() && !seconds.is_millis());
    assert_eq!(
        (millis.to_string(), seconds.to_string()),
        ("1356998400000".into(), "1356998400".into())
    );
    // Both resolutions can represent the epoch, although it cannot be sent.
    assert_eq!(Timestamp::from_millis(0).unwrap().as_millis(), 0);
}

#[test]
fn telnet_timestamps_drop_dots() {
    let read = |text| Timestamp::parse_telnet(text).unwrap().as_millis();
    assert_eq!(read("1356998400"), 1_356_998_400_000);
    assert_eq!(read("1356998400.250"), 1_356_998_400_250);
    assert_eq!(read("1356998400.5"), 13_569_984_005);
    assert_eq!(read("+1"), 1000);
    let shown = |text| Timestamp::parse_telnet(text).unwrap_err().to_string();
    assert_eq!(shown("x"), "Invalid character 'x' in x");
    assert_eq!(shown("."), "Empty string");
    assert_eq!(shown("-5"), "timestamp -5 is not positive");
}

#[test]
fn next_hour_saturates() {
    assert_eq!(BaseTime::MAX.seconds(), 4_294_965_600);
    assert_eq!(BaseTime::MAX.next_hour(), BaseTime::MAX);
    assert_eq!(BaseTime::MIN.next_hour().seconds(), 3600);
    let last_but_one = BaseTime::from_seconds(4_294_965_599);
    assert_eq!(last_but_one.next_hour(), BaseTime::MAX);
}

proptest! {
    #[test]
    fn base_time_plus_offset_is_the_instant(value in 1..=MAX_MILLIS) {
        for timestamp in [Timestamp::from_opentsdb(value), Timestamp::from_millis(value)] {
            let timestamp = timestamp.unwrap();
            let base = timestamp.base_time();
            prop_assert_eq!(base.millis() + i64::from(timestamp.offset_ms()), timestamp.as_millis());
            prop_assert!(timestamp.offset_ms() < HOUR_SECONDS * 1000);
            prop_assert_eq!(BaseTime::from_seconds_exact(base.seconds()), Ok(base));
        }
    }

    #[test]
    fn arbitrary_numbers_convert_to_a_timestamp_or_an_error(value in any::<i64>()) {
        let is_valid = (1..=MAX_MILLIS).contains(&value);
        prop_assert_eq!(Timestamp::from_opentsdb(value).is_ok(), is_valid);
    }
}
