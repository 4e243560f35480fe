//! Figures of a store: their values, and [`FIGURES`], the table of their names.
//!
//! A new figure is a field and a row here, and the place that counts or fills it. Metrics, `/api/stats`, `tsdb top` and
//! `docs/operate.md` follow the table.

use oxtsdb_resources::figure::ColumnFormat::{Bytes, BytesPerSecond, Count, Failures};
use oxtsdb_resources::figure::{Counter, Figure};
use oxtsdb_resources::{DurationCounts, Durations};

use crate::parts::ClockStats;

/// Figures of a store.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Series.
    pub series: u64,
    /// Memory of the series and their indexes, in bytes.
    pub series_bytes: u64,
    /// Memory of points that are in no part, in bytes.
    pub head_bytes: u64,
    /// Bytes of the journal, which has these points.
    pub journal_bytes: u64,
    /// Points in parts; replaced or deleted points count until a merge.
    pub points: u64,
    /// Parts, which are files of points.
    pub parts: u64,
    /// Bytes of parts.
    pub part_bytes: u64,
    /// Memory of the parts' indexes and of tombstones, in bytes.
    pub index_bytes: u64,
    /// Bytes that merges will read until the sizes of parts are in order.
    pub merge_debt_bytes: u64,
    /// Memory of the cache of pages, in bytes.
    pub page_cache_bytes: u64,
    /// Free bytes of the disk; `None` if they cannot be read.
    pub disk_free_bytes: Option<u64>,
    /// Free bytes under which merges stop; under half of it appends are rejected.
    pub disk_reserve_bytes: u64,
    /// The clock that retention follows.
    pub clock: ClockStats,
    /// Counters of the journal, of flushes and of retention.
    pub counters: Counters,
    /// Counters of merges.
    pub merges: MergeCounters,
}

/// Counters of the journal, of flushes and of retention, since the store was opened.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Points appended.
    pub points: Counter,
    /// Frames of the journal, each with one sync.
    pub frames: Counter,
    /// Bytes written to the journal.
    pub journal_bytes: Counter,
    /// Flushes of points in memory to parts.
    pub flushes: Counter,
    /// Days of points that retention dropped.
    pub dropped_days: Counter,
    /// Bytes of the parts of these days.
    pub dropped_bytes: Counter,
}

/// Counters of merges since the store was opened.
#[derive(Clone, Debug, Default)]
pub struct MergeCounters {
    /// Merges that were completed.
    pub completed: Counter,
    /// Merges that failed.
    pub failed: Counter,
    /// Bytes of the parts that completed merges have read.
    pub bytes_read: Counter,
    /// Bytes of the parts that they have written.
    pub bytes_written: Counter,
}

type Row = Figure<Figures>;

/// Metrics of a store, lines of `/api/stats` and columns of `tsdb top`, in their order.
pub static FIGURES: &[Row] = &[
    Row::gauge("store_series", "Series", |store| Some(store.series))
        .statistic("oxtsdb.points.series")
        .column("series", "series", Count),
    Row::gauge("store_points", "Points in parts", |store| Some(store.points))
        .statistic("oxtsdb.points.in_parts")
        .column("points", "points in parts", Count),
    Row::gauge("store_parts", "Parts, which are files of points", |store| {
        Some(store.parts)
    })
    .statistic("oxtsdb.points.parts")
    .column("parts", "parts", Count),
    Row::gauge("store_part_bytes", "Bytes of parts", |store| {
        Some(store.part_bytes)
    })
    .statistic("oxtsdb.points.bytes")
    .column("part_bytes", "size", Bytes),
    Row::gauge(
        "store_merge_debt_bytes",
        "Bytes that merges will read until the sizes of parts are in order",
        |store| Some(store.merge_debt_bytes),
    )
    .statistic("oxtsdb.points.merge_debt_bytes")
    .column("merge_debt_bytes", "merge debt", Bytes),
    Row::gauge(
        "store_journal_bytes",
        "Bytes of the journal of points that are in no part",
        |store| Some(store.journal_bytes),
    )
    .statistic("oxtsdb.points.journal_bytes")
    .column("journal_bytes", "journal", Bytes),
    Row::gauge(
        "store_memory_bytes",
        "Memory of points that are in no part, of series and of indexes",
        |store| Some(store.memory_bytes()),
    )
    .statistic("oxtsdb.points.memory_bytes")
    .column("memory_bytes", "memory", Bytes),
    Row::gauge(
        "store_head_memory_bytes",
        "Memory of points that are in no part",
        |store| Some(store.head_bytes),
    ),
    Row::gauge(
        "store_series_memory_bytes",
        "Memory of the keys of series and of the indexes of their tags",
        |store| Some(store.series_bytes),
    ),
    Row::counter(
        "store_journal_written_bytes",
        "Bytes written to the journal",
        |store| Some(store.counters.journal_bytes.get()),
    )
    .column("journal_bytes_per_second", "journal written", BytesPerSecond),
    Row::counter("store_merge_read_bytes", "Bytes read by merges", |store| {
        Some(store.merges.bytes_read.get())
    })
    .column("merge_read_bytes_per_second", "merges read", BytesPerSecond),
    Row::counter("store_merge_written_bytes", "Bytes written by merges", |store| {
        Some(store.merges.bytes_written.get())
    })
    .column("merge_written_bytes_per_second", "merges wrote", BytesPerSecond),
    Row::gauge("store_disk_free_bytes", "Free space of the disk", |store| {
        store.disk_free_bytes
    })
    .column("disk_free_bytes", "disk free", Bytes),
    Row::gauge(
        "store_disk_reserve_bytes",
        "Free space of the disk under which merges stop; under half of it writes are rejected",
        |store| Some(store.disk_reserve_bytes),
    )
    .column("disk_reserve_bytes", "reserve", Bytes)
    .reference("`--disk-reserve-mib`"),
    Row::counter("store_flushes", "Flushes of points in memory to parts", |store| {
        Some(store.counters.flushes.get())
    })
    .statistic("oxtsdb.points.flushes"),
    Row::counter("store_merges", "Merges of parts", |store| {
        Some(store.merges.completed.get())
    })
    .statistic("oxtsdb.points.merges"),
    Row::counter("store_failed_merges", "Merges that failed", |store| {
        Some(store.merges.failed.get())
    })
    .statistic("oxtsdb.points.failed_merges")
    .column("failed_merges", "failed merges", Failures),
    Row::counter(
        "store_dropped_days",
        "Days of points that the retention dropped",
        |store| Some(store.counters.dropped_days.get()),
    )
    .statistic("oxtsdb.points.dropped_days"),
    Row::counter("store_clock_jumps", "Jumps of the system's clock", |store| {
        Some(store.clock.jumps)
    })
    .statistic("oxtsdb.points.clock_jumps"),
    Row::gauge(
        "store_clock_held_back_seconds",
        "How far the system's clock is ahead of the one that retention follows",
        |store| Some(store.clock.held_back_ms.cast_unsigned() / 1000),
    )
    .reference("[a clock that is ahead](#a-clock-that-is-ahead)"),
];

impl Figures {
    /// Memory of points that are in no part, of series and of indexes, in bytes.
    pub const fn memory_bytes(&self) -> u64 {
        self.head_bytes + self.series_bytes + self.index_bytes
    }
}

/// How long the background work of a store takes.
#[derive(Debug, Default)]
pub struct Timings {
    /// Syncs of the journal, of a group of batches each.
    pub sync: Durations,
    /// Flushes of points in memory to files.
    pub flush: Durations,
    /// Merges of files.
    pub merge: Durations,
}

impl Timings {
    /// The durations by kind of work.
    pub fn by_work(&self) -> [(&'static str, DurationCounts); 3] {
        [
            ("sync", &self.sync),
            ("flush", &self.flush),
            ("merge", &self.merge),
        ]
        .map(|(work, durations)| (work, durations.counts()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The rows lie between the rows of two metrics that are reported elsewhere.
    #[test]
    fn operate_md_has_a_row_for_each_figure() {
        let rows = FIGURES.iter().map(|figure| {
            let meaning = figure.meaning();
            format!("| `oxtsdb_{}` | | embedded | {meaning} |\n", figure.metric)
        });
        let rows: String = rows.collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let before = page.find("| `oxtsdb_store_damaged_ranges` ").unwrap();
        let start = before + page[before..].find('\n').unwrap() + 1;
        let end = page.find("| `oxtsdb_store_work_seconds` ").unwrap();
        if std::env::var_os("OXTSDB_WRITE_REFERENCES").is_some_and(|value| value == "1") {
            std::fs::write(&path, [&page[..start], &rows, &page[end..]].concat()).unwrap();
        } else {
            let advice =
                "run this test with OXTSDB_WRITE_REFERENCES=1, which writes the rows of docs/operate.md";
            assert_eq!(&page[start..end], rows, "{advice}");
        }
    }
}
