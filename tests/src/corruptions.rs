//! Rows of table `tsdb` with corruptions of all kinds that a check finds, beside healthy ones.

use std::collections::BTreeMap;

use anyhow::Context as _;
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::data::v1::RowFindingType;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::Tsdb;

/// Cells by row and qualifier: timestamp, value.
pub type Cells = BTreeMap<(Vec<u8>, Vec<u8>), (i64, Vec<u8>)>;

/// Flags of a check while nothing writes, of all that it can repair.
pub const ALL: &[&str] = &[
    "--grace-seconds",
    "0",
    "--also",
    "UNKNOWN_UID",
    "--also",
    "TAG_ORDER",
    "--also",
    "FUTURE_CELL",
    "--also",
    "META_BYTE_MISMATCH",
    "--also",
    "LONG_INTEGER",
];

/// The first hour of the rows.
pub const HOUR: u32 = 1_356_998_400;
/// The timestamp of their cells.
pub const WRITTEN_MS: i64 = 1_357_100_000_000;

/// Corruptions of a row that has a point at the start of its hour and an annotation: cells, as hex; later ones are newer.
const CELLS: &[(RowFindingType, &[(&str, &str)])] = &[
    (RowFindingType::UnknownCell, &[("00", "01")]),
    (RowFindingType::UnknownCell, &[("f000", "01")]),
    (RowFindingType::FutureCell, &[("020000", "01")]),
    (RowFindingType::ValueLength, &[("0012", "010203")]),
    (RowFindingType::ValueLength, &[("001b", "0100000041200000")]),
    (RowFindingType::WrongFlags, &[("0017", "05")]),
    (RowFindingType::WrongFlags, &[("001f", "41200000")]),
    (RowFindingType::FloatLength, &[("001b", "0000000041200000")]),
    (RowFindingType::CompactedLength, &[("00100020", "06")]),
    (RowFindingType::MetaByte, &[("00100020", "060707")]),
    (RowFindingType::MetaByteMismatch, &[("00100020", "060701")]),
    (RowFindingType::CompactedOrder, &[("00200010", "060700")]),
    (RowFindingType::AppendedCutOff, &[("050000", "0010060020")]),
    (RowFindingType::BeyondHour, &[("e100", "01")]),
    (
        RowFindingType::Duplicate,
        &[("0010", "05"), ("00100020", "060700")],
    ),
    (RowFindingType::Duplicate, &[("0010", "05"), ("f000fa00", "06")]),
    (
        RowFindingType::Redundant,
        &[("0010", "06"), ("00100020", "060700")],
    ),
    (RowFindingType::LongInteger, &[("0017", "0000000000000005")]),
    (RowFindingType::UnreadableAnnotation, &[("010010", "7b22")]),
    (RowFindingType::UnreadableHistogram, &[("060010", "")]),
];

/// Corruptions of row keys.
pub const KEYS: &[RowFindingType] = &[
    RowFindingType::BadKey,
    RowFindingType::NoTags,
    RowFindingType::BaseTime,
    RowFindingType::TagOrder,
    RowFindingType::UnknownUid,
];

/// The cells that all rows have: a point, compacted ones, and an annotation.
fn healthy() -> [(Vec<u8>, Vec<u8>); 3] {
    let annotation = br#"{"startTime":1356998400,"description":"d"}"#.to_vec();
    [
        (vec![0, 0], vec![42]),
        (vec![0x10, 0, 0x10, 0x10], vec![1, 2, 0]),
        (vec![1, 0, 0], annotation),
    ]
}

/// The key of a row without salt, from the numbers of its UIDs.
pub fn row_key(metric: u32, seconds: u32, tags: &[(u32, u32)]) -> Vec<u8> {
    let uid = |uid: u32| uid.to_be_bytes()[1..].to_vec();
    let mut key = [uid(metric), seconds.to_be_bytes().to_vec()].concat();
    for (tag_key, value) in tags {
        key.extend(uid(*tag_key));
        key.extend(uid(*value));
    }
    key
}

/// A table with corruptions.
#[derive(Debug)]
pub struct Planted {
    /// All cells.
    pub cells: Cells,
    /// Cells that no repair may change.
    pub healthy: Cells,
    /// The type of the corruption of each corrupted row.
    pub corrupted: BTreeMap<Vec<u8>, RowFindingType>,
}

/// Rows; half of them, nearly as many as `corruptions`, are corrupted, in row keys by some of [`KEYS`].
///
/// # Errors
///
/// If there are too many.
pub fn planted(corruptions: usize, keys: &[RowFindingType], random: &mut StdRng) -> anyhow::Result<Planted> {
    let mut planted = Planted {
        cells: Cells::new(),
        healthy: Cells::new(),
        corrupted: BTreeMap::new(),
    };
    for number in 0..u32::try_from(2 * corruptions)? {
        // A thousand hours of each metric.
        let (metric, nth) = (1 + number / 1000, number % 1000);
        let hour = HOUR + nth * 3600;
        let tags = [(1, 1 + number % 7), (2, 1 + number % 3)];
        let mut key = row_key(metric, hour, &tags);
        let mut damage: &[(&str, &str)] = &[];
        let mut is_kept = true;
        // A server does not start on a table with metrics that begin and end with keys of other widths.
        if number % 2 == 0 && nth > 1 {
            let finding = if random.random_bool(0.2) {
                let finding = *keys.choose(random).context("a type")?;
                is_kept = false;
                key = match finding {
                    RowFindingType::BadKey => [&key[..13], &number.to_be_bytes()[..]].concat(),
                    RowFindingType::NoTags => row_key(metric, hour, &[]),
                    RowFindingType::BaseTime => row_key(metric, hour + 1, &tags),
                    RowFindingType::TagOrder => row_key(metric, hour, &[tags[1], tags[0]]),
                    _ => row_key(0x00ff_0000 + metric, hour, &tags),
                };
                finding
            } else {
                let (finding, cells) = *CELLS.choose(random).context("a corruption")?;
                damage = cells;
                finding
            };
            planted.corrupted.insert(key.clone(), finding);
        }
        for (qualifier, value) in healthy() {
            let cell = ((key.clone(), qualifier), (WRITTEN_MS, value));
            planted.cells.extend([cell.clone()]);
            if is_kept {
                planted.healthy.extend([cell]);
            }
        }
        for ((qualifier, value), newer) in damage.iter().zip(1..) {
            let address = (key.clone(), hex::decode(qualifier)?);
            let stored = (WRITTEN_MS + newer, hex::decode(value)?);
            planted.cells.insert(address, stored);
        }
    }
    Ok(planted)
}

/// Assigns the UIDs of some planted rows on a new table.
///
/// # Errors
///
/// If a call fails.
pub async fn assign_names(server: &Tsdb, corruptions: usize) -> anyhow::Result<()> {
    assign(server, UidKind::Metric, "m", corruptions / 500 + 1).await?;
    assign(server, UidKind::TagKey, "k", 2).await?;
    assign(server, UidKind::TagValue, "v", 7).await
}

async fn assign(server: &Tsdb, kind: UidKind, prefix: &str, count: usize) -> anyhow::Result<()> {
    let names: Vec<UidName> = (0..count)
        .map(|number| UidName {
            kind: kind.into(),
            name: format!("{prefix}{number}"),
            tag_key: String::new(),
        })
        .collect();
    for names in names.chunks(1000) {
        let request = GetOrCreateUidsRequest {
            names: names.to_vec(),
            explicit: true,
            ..Default::default()
        };
        server.uids().get_or_create_uids(request).await?;
    }
    Ok(())
}
