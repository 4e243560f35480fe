use super::*;

/// 2013-01-01 00:00:00 UTC, an exact hour and day.
const T: i64 = 1_356_998_400;

fn hours(start: i64, end: i64, downsample: Option<&str>) -> (i64, i64) {
    let downsample = downsample.map(|text| Downsample::parse(text).unwrap());
    let hours = Hours::of_query((T + start) * 1000, (T + end) * 1000, downsample.as_ref());
    (
        i64::from(hours.start.seconds()) - T,
        i64::try_from(hours.stop_seconds).unwrap() - T,
    )
}

#[test]
fn ranges_are_widened_to_hours() {
    for (start, end, downsample, expected) in [
        (0, 3595, None, (0, 3600)),
        // The last second of an hour reads the next one as well.
        (0, 3599, None, (0, 7200)),
        (0, 3600, None, (0, 7200)),
        (150, 400, None, (0, 3600)),
        (3600, 3800, None, (3600, 7200)),
        (3605, 3700, Some("1h-avg"), (3600, 7200)),
        (0, 3599, Some("1m-avg"), (0, 7200)),
        (0, 3538, Some("1m-avg"), (0, 3600)),
        (0, 3598, Some("0all-sum"), (0, 3600)),
        (0, 3599, Some("0all-sum"), (0, 3600)),
        (90_000, 90_001, Some("1d-sum"), (86_400, 172_800)),
        (10, 20, Some("500ms-sum"), (0, 3600)),
    ] {
        assert_eq!(
            hours(start, end, downsample),
            expected,
            "{start} {end} {downsample:?}"
        );
    }
}

#[test]
fn hours_end_with_the_last_that_a_row_key_can_hold() {
    let hours = Hours::of_query(0, i64::MAX, None);
    assert_eq!(hours.start, BaseTime::MIN);
    assert_eq!(hours.count(), 1_193_047);
    assert_eq!(hours.iter().next_back(), Some(BaseTime::MAX));
    assert!(hours.contains(BaseTime::MAX));
    let long = Downsample::parse("290000000y-sum").unwrap();
    assert_eq!(
        Hours::of_query(T * 1000, T * 1000, Some(&long)).start,
        BaseTime::MIN
    );
    let negative = Hours::of_query(-5000, -1000, None);
    assert!(negative.count() <= 1);
}

#[test]
fn overlapping_hours_hold_both_ends() {
    let hours = Hours::overlapping(T * 1000 + 10, (T + 3600) * 1000);
    let seconds: Vec<i64> = hours.iter().map(|hour| i64::from(hour.seconds()) - T).collect();
    assert_eq!(seconds, [0, 3600]);
    assert!(!hours.contains(BaseTime::of_seconds(u32::try_from(T).unwrap() + 7200)));
}

#[test]
fn salted_series_are_looked_for_in_their_bucket_only() {
    use oxtsdb_schema::SaltLayout;
    let layout = RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        ..RowKeyLayout::default()
    };
    let tsuid = check_tsuid(&[0, 0, 1, 0, 0, 1, 0, 0, 1], &layout).unwrap();
    let hours = Hours::of_query(T * 1000, (T + 10) * 1000, None);
    let Read::Ranges(ranges) = series_ranges(std::slice::from_ref(&tsuid), &layout, hours) else {
        panic!()
    };
    assert_eq!(ranges.len(), 1);
    let rows = single_rows(&[tsuid], &layout, hours);
    assert_eq!(rows.len(), 1);
    assert!(
        ranges[0].0 <= rows[0] && rows[0] < ranges[0].1,
        "the range holds the row"
    );
}

#[test]
fn tsuids_of_a_question_share_their_metric() {
    let layout = RowKeyLayout::default();
    let tsuid = |metric: u8, value: u8| vec![0, 0, metric, 0, 0, 1, 0, 0, value];
    let checked = check_tsuids(&[tsuid(1, 2), tsuid(1, 1), tsuid(1, 2)], &layout).unwrap();
    assert_eq!(checked.len(), 2);
    let error = check_tsuids(&[tsuid(1, 1), tsuid(9, 1)], &layout)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "TSUIDs have the metrics 000001 and 000009, expected one metric"
    );
    assert!(matches!(
        check_tsuids(&[vec![1]], &layout),
        Err(QueryError::Tsuid { .. })
    ));
}
