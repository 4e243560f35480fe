//! Any columns at all.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn series() -> impl Strategy<Value = SeriesDeclaration> {
    let tsuid = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..12)];
    (0..6_u32, vec(0..6_u32, 0..20), tsuid).prop_map(|(metric_symbol, tag_symbols, tsuid)| {
        SeriesDeclaration {
            metric_symbol,
            tag_symbols,
            tsuid: tsuid.into(),
        }
    })
}

fn blocks() -> impl Strategy<Value = Block> {
    let timestamp = || prop_oneof![any::<i64>(), 0..4_294_967_296_000_i64];
    let deltas = vec(prop_oneof![any::<i64>(), -5000..5000_i64], 0..4);
    let delta_timestamps = (timestamp(), deltas, any::<bool>()).prop_map(|(first, deltas, adds_up)| {
        let sum = deltas.iter().fold(first, |sum, delta| sum.wrapping_add(*delta));
        let last = if adds_up { sum } else { first };
        DeltaTimestamps { first, deltas, last }
    });
    let columns = (
        vec(0..4_u32, 0..4),
        vec(timestamp(), 0..4),
        proptest::option::of(delta_timestamps),
        vec(any::<f64>(), 0..4),
        vec(any::<i64>(), 0..4),
        0..4_u8,
    );
    columns.prop_map(
        |(series, timestamps, delta_timestamps, values, int_values, form)| {
            // Blocks with both forms of a column are rare enough by chance.
            let mut block = Block {
                series,
                timestamps,
                delta_timestamps,
                values,
                int_values,
            };
            match form {
                0 => block.delta_timestamps = None,
                1 | 2 => block.timestamps.clear(),
                _ => {}
            }
            if form % 2 == 0 {
                block.values.clear();
            } else {
                block.int_values.clear();
            }
            block
        },
    )
}

proptest! {
    #[test]
    fn every_point_is_stored_or_listed(
        new_symbols in vec("[a-c é日 ]{0,3}", 0..8),
        new_series in vec(series(), 0..4),
        blocks in vec(blocks(), 0..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let columns = Columns { new_symbols, new_series, blocks, ..Columns::default() };
        let count = point_count(&columns) as u64;
        runtime.block_on(async {
            let stack = TestStack::start().await;
            let request = WriteColumnsRequest { columns: Some(columns), ..Default::default() };
            match stack.client().write_columns(request).await {
                Ok(response) => {
                    let response = response.into_inner();
                    assert_eq!(response.written + response.failed, count);
                    let failures = response.failures.unwrap_or_default();
                    assert_eq!(failures.retryable, None);
                    let listed: u64 = failures.permanent.iter().flat_map(|runs| &runs.count).sum();
                    assert_eq!(listed, response.failed, "all failed points are listed");
                    let described: u64 = failures.errors.iter().map(|error| error.count).sum();
                    assert_eq!(described, response.failed, "there are fewer than 100 points");
                    let cells = stack.cells("tsdb").await.len() as u64;
                    assert!(cells <= response.written && (cells > 0) == (response.written > 0));
                }
                Err(status) => {
                    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
                    assert_eq!(stack.cells("tsdb").await, Vec::<String>::new());
                }
            }
        });
    }
}
