use oxtsdb_schema::RowKeyLayout;

use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::tsuids::{check_tsuid, check_tsuids};
use crate::quirks::Quirks;
use crate::reader::range_scan::series_ranges;
use crate::reader::rows::single_rows::SingleRows;

/// 2013-01-01 00:00:00 UTC, an exact hour and day.
const T: i64 = 1_356_998_400;

#[test]
fn reads_salted_series_from_their_bucket_only() {
    use oxtsdb_schema::SaltLayout;
    let layout = RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        ..RowKeyLayout::default()
    };
    let tsuid = check_tsuid(&[0, 0, 1, 0, 0, 1, 0, 0, 1], &layout).unwrap();
    let hours = Hours::for_query(T * 1000, (T + 10) * 1000, None, Quirks::NONE);
    let ranges = series_ranges(std::slice::from_ref(&tsuid), &layout, hours);
    assert_eq!(ranges.len(), 1);
    let rows: Vec<_> = SingleRows::new(&layout, [tsuid], hours)
        .batches(10)
        .flatten()
        .collect();
    assert_eq!(rows.len(), 1);
    assert!(
        ranges[0].0 <= rows[0] && rows[0] < ranges[0].1,
        "the range holds the row"
    );
}

#[test]
fn rejects_tsuids_of_several_metrics() {
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
