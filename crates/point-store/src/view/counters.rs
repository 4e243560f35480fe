//! When series were last written: the counters of 1 of table `tsdb-meta`.
//!
//! A writer that tracks series puts `name:ts_ctr` = 1 with the store's time for each series, and again each hour. A
//! million of them as cells cost more than their points. The catalogue has the keys already, so a batch of counters is
//! one cell of a table of its own, and one number for each series in memory. All other counters are cells of `tsdb-meta`;
//! a mutation of a counter makes it a cell first.
//!
//! ```text
//!   table `tsdb-meta-written`
//!   row key: 01, sequence 8     w:s   a batch: time 4; for each series the gap to the number before, as varint
//!            00, block 2        w:s   times of 65,536 series from number 65,536 x block on, 4 bytes each
//!   times are seconds since the epoch; 0: the series has no counter here
//! ```
//!
//! Batches apply in their order after all blocks: a time only grows, until 0 removes it. When [`BATCHES`] batches are stored,
//! the blocks of their series are written, then the batches deleted together; a crash in between loses nothing.
//!
//! After a crash a number may belong to another series than in a batch: to one with first points that were acknowledged
//! later. The batch of these points is newer, and counts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::TryStreamExt as _;
use oxtsdb_row_store::{DamageLog, RowStore, Scan, StoreError, TableDef, TableName, WriteBatch};
use parking_lot::{Mutex, RwLock};
use tracing::warn;

use crate::{PointStore, SeriesNumber};
use oxtsdb_storage_file::varint;

const FAMILY: &str = "w";
const QUALIFIER: &[u8] = b"s";

/// First byte of the keys of blocks, and of batches.
const BLOCK: u8 = 0;
const BATCH: u8 = 1;

/// Series of a block.
const BLOCK_SERIES: usize = 1 << 16;

/// Batches that are stored before their blocks are written.
const BATCHES: usize = 4096;

/// The times of all series.
#[derive(Debug)]
pub(super) struct Counters {
    rows: Arc<dyn RowStore>,
    /// The table that shows them.
    pub(super) shown_in: TableName,
    table: TableName,
    times: RwLock<Times>,
    stored: Mutex<Stored>,
    /// Held while blocks are written, so that an older one never replaces a newer one.
    writing_blocks: tokio::sync::Mutex<()>,
}

/// Times of series by number, in blocks: growth copies nothing and reserves no more than a block.
#[derive(Debug, Default)]
struct Times(Vec<Box<[u32]>>);

impl Times {
    /// The time of a series; 0: none.
    fn get(&self, series: SeriesNumber) -> u32 {
        let block = self.0.get(block_of(series));
        block.map_or(0, |block| block[series.index() % BLOCK_SERIES])
    }

    /// The times of a block up to the last series that has one.
    fn of_block(&self, block: usize) -> &[u32] {
        let block = self.0.get(block).map_or(&[][..], |block| block);
        let last = block.iter().rposition(|time| *time != 0);
        last.map_or(&[], |last| &block[..=last])
    }

    /// Applies a batch to a series.
    fn apply(&mut self, series: SeriesNumber, seconds: u32) {
        let block = block_of(series);
        if block >= self.0.len() {
            if seconds == 0 {
                return;
            }
            self.0.resize_with(block + 1, || vec![0; BLOCK_SERIES].into());
        }
        let time = &mut self.0[block][series.index() % BLOCK_SERIES];
        *time = later(*time, seconds);
    }
}

/// The batches in the table.
#[derive(Debug, Default)]
struct Stored {
    /// Sequence of the last batch.
    sequence: u64,
    batches: Vec<Vec<u8>>,
    /// Blocks that lack times of these batches.
    blocks: BTreeSet<usize>,
}

impl Stored {
    fn add(&mut self, key: Vec<u8>, series: &[SeriesNumber]) {
        self.batches.push(key);
        self.blocks.extend(series.iter().map(|series| block_of(*series)));
    }
}

impl Counters {
    /// Reads the counters that table `shown_in` shows.
    pub(super) async fn open(
        rows: Arc<dyn RowStore>,
        points: &dyn PointStore,
        shown_in: TableName,
    ) -> Result<Self, StoreError> {
        let table: TableName = format!("{shown_in}-written").parse()?;
        rows.create_table(&TableDef::new(table.clone(), &[FAMILY]))
            .await?;
        let damage = DamageLog::default();
        let mut scan = Scan::range([], []);
        scan.skip_damaged = Some(damage.clone());
        let mut batches = rows.scan(&table, scan).await?;
        let (mut times, mut stored) = (Times::default(), Stored::default());
        let mut key = Vec::new();
        // Numbers are dense: the catalogue has all series before this one.
        let mut known = 0;
        let mut apply = |series: SeriesNumber, seconds: u32| {
            if series.index() >= known {
                // A series that the catalogue does not have was never acknowledged.
                if seconds == 0 || !points.key(series, &mut key) {
                    return;
                }
                known = series.index() + 1;
            }
            times.apply(series, seconds);
        };
        let mut undecodable = 0_u64;
        while let Some(rows) = batches.try_next().await? {
            for row in &rows {
                let value = row.get(FAMILY, QUALIFIER).map_or(&[][..], |cell| cell.value);
                match decode(row.key(), value) {
                    Some(Decoded::Block(first, of_block)) => {
                        for (series, seconds) in (first..).zip(of_block) {
                            apply(SeriesNumber(series), seconds);
                        }
                    }
                    Some(Decoded::Batch(sequence, seconds, series)) => {
                        for series in &series {
                            apply(*series, seconds);
                        }
                        stored.sequence = sequence;
                        stored.add(row.key().to_vec(), &series);
                    }
                    None => undecodable += 1,
                }
            }
        }
        if undecodable > 0 || !damage.is_empty() {
            warn!(%table, undecodable, "times of last writes are damaged; series get theirs with their next points");
        }
        Ok(Self {
            rows,
            shown_in,
            table,
            times: RwLock::new(times),
            stored: Mutex::new(stored),
            writing_blocks: tokio::sync::Mutex::default(),
        })
    }

    /// When a series was last written, in milliseconds; `None`: never.
    pub(super) fn time_ms(&self, series: SeriesNumber) -> Option<i64> {
        let time = self.times.read().get(series);
        (time != 0).then_some(i64::from(time) * 1000)
    }

    /// Stores that series are written now.
    pub(super) async fn put(&self, series: Vec<SeriesNumber>) -> Result<(), StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX));
        self.apply(series, seconds.max(1)).await
    }

    /// Removes the counters of series.
    pub(super) async fn remove(&self, series: Vec<SeriesNumber>) -> Result<(), StoreError> {
        self.apply(series, 0).await
    }

    async fn apply(&self, mut series: Vec<SeriesNumber>, seconds: u32) -> Result<(), StoreError> {
        series.sort_unstable();
        series.dedup();
        if series.is_empty() {
            return Ok(());
        }
        let key = {
            let mut stored = self.stored.lock();
            stored.sequence += 1;
            [&[BATCH][..], &stored.sequence.to_be_bytes()].concat()
        };
        self.write_cell(&key, &encode(seconds, &series)).await?;
        {
            let mut times = self.times.write();
            for series in &series {
                times.apply(*series, seconds);
            }
        }
        let full = {
            let mut stored = self.stored.lock();
            stored.add(key, &series);
            (stored.batches.len() >= BATCHES).then(|| {
                (
                    std::mem::take(&mut stored.batches),
                    std::mem::take(&mut stored.blocks),
                )
            })
        };
        if let Some((batches, blocks)) = full
            && let Err(error) = self.write_blocks(&batches, &blocks).await
        {
            warn!(%error, "times of last writes remain in batches; the next blocks include them");
            let mut stored = self.stored.lock();
            stored.batches.extend(batches);
            stored.blocks.extend(blocks);
        }
        Ok(())
    }

    /// Replaces batches by blocks.
    async fn write_blocks(&self, batches: &[Vec<u8>], blocks: &BTreeSet<usize>) -> Result<(), StoreError> {
        let _alone = self.writing_blocks.lock().await;
        for block in blocks {
            let Ok(number) = u16::try_from(*block) else {
                continue;
            };
            let value: Vec<u8> = {
                let times = self.times.read();
                times
                    .of_block(*block)
                    .iter()
                    .flat_map(|time| time.to_be_bytes())
                    .collect()
            };
            let key = [&[BLOCK][..], &number.to_be_bytes()].concat();
            self.write_cell(&key, &value).await?;
        }
        let mut batch = WriteBatch::new(self.table.clone());
        for key in batches {
            batch.row(key).delete_row();
        }
        self.rows.write(batch).await
    }

    async fn write_cell(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(FAMILY);
        batch.row(key).put(family, QUALIFIER, value);
        self.rows.write(batch).await
    }
}

fn block_of(series: SeriesNumber) -> usize {
    series.index() / BLOCK_SERIES
}

/// The time of a series after a batch.
fn later(time: u32, batch: u32) -> u32 {
    if batch == 0 { 0 } else { time.max(batch) }
}

/// A cell of the table.
enum Decoded {
    /// The number of the first series, and the time of each.
    Block(u32, Vec<u32>),
    /// Sequence and time of a batch, and its series.
    Batch(u64, u32, Vec<SeriesNumber>),
}

fn decode(key: &[u8], value: &[u8]) -> Option<Decoded> {
    match key.split_first()? {
        (&BLOCK, block) => {
            let block = u16::from_be_bytes(block.try_into().ok()?);
            let (times, rest) = value.as_chunks::<4>();
            if !rest.is_empty() || times.len() > BLOCK_SERIES {
                return None;
            }
            let times = times.iter().map(|time| u32::from_be_bytes(*time)).collect();
            Some(Decoded::Block(u32::from(block) << 16, times))
        }
        (&BATCH, sequence) => {
            let sequence = u64::from_be_bytes(sequence.try_into().ok()?);
            let mut reader = varint::Reader(value);
            let seconds = u32::from_be_bytes(reader.array()?);
            let (mut series, mut next) = (Vec::new(), 0_u64);
            while !reader.0.is_empty() {
                let number = next.checked_add(reader.number()?)?;
                series.push(SeriesNumber(u32::try_from(number).ok()?));
                next = number + 1;
            }
            Some(Decoded::Batch(sequence, seconds, series))
        }
        _ => None,
    }
}

/// The value of a batch of series, which ascend.
fn encode(seconds: u32, series: &[SeriesNumber]) -> Vec<u8> {
    let (mut value, mut next) = (Vec::with_capacity(4 + series.len() * 2), 0);
    value.extend_from_slice(&seconds.to_be_bytes());
    for series in series {
        varint::put(&mut value, u64::from(series.0).saturating_sub(next));
        next = u64::from(series.0) + 1;
    }
    value
}
