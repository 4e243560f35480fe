//! Repeated numbers are encoded packed, as proto3 does unless a field says otherwise.

use oxtsdb_proto::data::v1::DeltaTimestamps;
use oxtsdb_proto::data::v1::columns::Block;
use prost::Message as _;

#[test]
fn packs_columns() {
    let block = Block {
        series: vec![1, 2],
        timestamps: vec![3, 4],
        delta_timestamps: Some(DeltaTimestamps {
            first: 5,
            deltas: vec![-1, 1],
            last: 5,
        }),
        values: vec![0.0, 2.0],
        int_values: vec![-2, 2],
    };
    let doubles = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40];
    let expected = [
        &[0x0a, 2, 1, 2][..],
        &[0x12, 2, 3, 4],
        &[0x1a, 8, 0x08, 5, 0x12, 2, 1, 2, 0x18, 5],
        &[0x22, 16],
        &doubles,
        &[0x2a, 2, 3, 4],
    ];
    assert_eq!(block.encode_to_vec(), expected.concat());
}
