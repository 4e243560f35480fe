//! A scanner's position: fetches the rows of a range, region after region.
//!
//! The first call of a region opens a scanner there and returns rows; nearly always also the last. A scanner that is
//! lost, with its server or because its lease expired, is opened again behind the last complete row.
//!
//! Source: HBase 2.6.1, `AsyncScanSingleRegionRpcRetryingCaller`, `RSRpcServices.scan`.

use std::sync::Arc;

use bytes::Bytes;

use super::cell_block::CellReader;
use super::cluster::{Attempts, Cluster};
use super::connection::{Request, Service};
use super::error::{CallError, Remedy};
use super::messages::{ScanMessage, ScanRequest, ScanResponse};
use super::regions::{Place, Region};
use super::rows::{PartialRow, RowReader};
use crate::{Row, Scan, TableName};

/// Bytes of a fetch: HBase's own default.
const BYTES_OF_A_FETCH: u64 = 2 << 20;

/// Bytes behind a key that lies closely before another.
const CLOSELY: [u8; 8] = [0xff; 8];

/// Fetches rows of a range.
#[derive(Debug)]
pub(super) struct Cursor {
    cluster: Arc<Cluster>,
    table: TableName,
    /// Columns, filter and versions; without a range.
    template: ScanMessage,
    is_reversed: bool,
    /// Ascending: the first key that is left. Descending: the key behind the rows that are left; empty: none.
    next: Bytes,
    /// Ascending: the key behind the range; empty: none. Descending: the first key of the range.
    last: Bytes,
    rows_of_a_fetch: u32,
    open: Option<OpenScanner>,
    reader: RowReader,
    partial: Option<PartialRow>,
    is_done: bool,
}

/// A scanner of a region server; dropping it closes it.
#[derive(Debug)]
struct OpenScanner {
    cluster: Arc<Cluster>,
    region: Arc<Region>,
    id: u64,
    next_call: u64,
    is_closed: bool,
}

impl Drop for OpenScanner {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        let message = ScanRequest {
            scanner_id: Some(self.id),
            number_of_rows: Some(0),
            close_scanner: Some(true),
            ..ScanRequest::default()
        };
        if let Ok(server) = self.cluster.server(&self.region.server, Service::Client) {
            server.post(&Request::new("Scan", &message));
        }
    }
}

impl Cursor {
    /// A cursor for the range of a scan. `most_rows`: the most that are needed.
    pub(super) fn new(
        cluster: Arc<Cluster>,
        table: TableName,
        scan: &Scan,
        template: ScanMessage,
        most_rows: Option<u64>,
    ) -> Self {
        let (start, stop) = (scan.start.clone().into(), scan.stop.clone().into());
        let (next, last) = if scan.reverse {
            (stop, start)
        } else {
            (start, stop)
        };
        let rows = most_rows.map_or(i32::MAX.unsigned_abs(), |rows| {
            u32::try_from(rows).unwrap_or(u32::MAX)
        });
        Self {
            cluster,
            table,
            template: ScanMessage {
                max_result_size: Some(BYTES_OF_A_FETCH),
                reversed: scan.reverse.then_some(true),
                ..template
            },
            is_reversed: scan.reverse,
            next,
            last,
            rows_of_a_fetch: rows.clamp(1, i32::MAX.unsigned_abs()),
            open: None,
            reader: RowReader::default(),
            partial: None,
            is_done: false,
        }
    }

    /// Whether there are no more rows.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// The next rows; none at the end.
    ///
    /// # Errors
    ///
    /// The first error without a remedy.
    pub(super) async fn fetch(&mut self) -> Result<Vec<Row>, CallError> {
        let mut attempts = Attempts::until(self.cluster.deadline());
        while !self.is_done {
            let deadline = self.cluster.deadline();
            let region = match &self.open {
                Some(open) => Arc::clone(&open.region),
                None => {
                    let place = match (self.is_reversed, &self.next) {
                        (false, next) => Place::Of(next),
                        (true, next) if next.is_empty() => Place::Last,
                        (true, next) => Place::Before(next),
                    };
                    self.cluster.locate(&self.table, place, deadline).await?
                }
            };
            let message = self.request(&region);
            let request = Request::new("Scan", &message);
            let called = self.cluster.call_region(&region, request, deadline).await;
            let taken = called.and_then(|(response, cells)| self.take(&region, response, cells));
            match taken {
                Ok(rows) if rows.is_empty() => attempts.succeeded(deadline),
                Ok(rows) => return Ok(rows),
                Err(error) => {
                    if let Some(open) = &mut self.open {
                        open.is_closed = error.remedy() == Remedy::NewScanner;
                    }
                    (self.open, self.partial) = (None, None);
                    let remedy = self.cluster.apply(error.remedy(), &region, &error);
                    attempts.wait(remedy, error).await?;
                }
            }
        }
        Ok(Vec::new())
    }

    fn request(&self, region: &Region) -> ScanRequest {
        let request = ScanRequest {
            number_of_rows: Some(self.rows_of_a_fetch),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            ..ScanRequest::default()
        };
        if let Some(open) = &self.open {
            return ScanRequest {
                scanner_id: Some(open.id),
                next_call_seq: Some(open.next_call),
                ..request
            };
        }
        let stop = match (self.is_reversed, &self.last) {
            (true, last) if !last.is_empty() => closely_before(last),
            (_, last) => last.clone(),
        };
        ScanRequest {
            region: Some(region.specifier()),
            scan: Some(ScanMessage {
                start_row: Some(self.next.clone()),
                stop_row: Some(stop),
                ..self.template.clone()
            }),
            next_call_seq: Some(0),
            ..request
        }
    }

    /// Takes the rows of a response, and moves on.
    fn take(
        &mut self,
        region: &Arc<Region>,
        response: ScanResponse,
        cells: Bytes,
    ) -> Result<Vec<Row>, CallError> {
        let mut rows = Vec::with_capacity(response.cells_per_result.len());
        let mut cells = CellReader::new(cells);
        for (place, count) in response.cells_per_result.iter().enumerate() {
            let count = *count as usize;
            let is_partial = response
                .partial_flag_per_result
                .get(place)
                .copied()
                .unwrap_or_default();
            if is_partial || self.partial.is_some() {
                let earlier = self.partial.take();
                let mut part = None;
                self.reader.extend(&mut part, &mut cells, count)?;
                self.partial = join(earlier, part, |row| rows.extend(self.reader.finish(row)));
                if !is_partial {
                    let whole = self.partial.take().and_then(|row| self.reader.finish(row));
                    rows.extend(whole);
                }
            } else {
                rows.extend(self.reader.read(&mut cells, count)?);
            }
        }
        if !cells.is_at_end() {
            return Err(CallError::malformed("a scan has more cells than its rows"));
        }
        let more = |flag: Option<bool>| flag.unwrap_or(true);
        let ends_region = !more(response.more_results) || !more(response.more_results_in_region);
        if ends_region {
            let whole = self.partial.take().and_then(|row| self.reader.finish(row));
            rows.extend(whole);
        }
        // A descending scan requests slightly more than its range, at both ends.
        let (behind, first) = (self.next.clone(), self.last.clone());
        self.advance(region, &response, ends_region, rows.last().map(Row::key));
        if self.is_reversed {
            rows.retain(|row| (behind.is_empty() || row.key() < &*behind) && row.key() >= &*first);
        } else {
            let (first, behind) = (behind, first);
            let is_within = |row: &Row| row.key() >= &*first && (behind.is_empty() || row.key() < &*behind);
            if let Some(other) = rows.iter().find(|row| !is_within(row)) {
                let key = hex::encode_upper(other.key());
                return Err(CallError::malformed(format!(
                    "a scan has row {key}, which was not requested"
                )));
            }
        }
        Ok(rows)
    }

    fn advance(
        &mut self,
        region: &Arc<Region>,
        response: &ScanResponse,
        ends_region: bool,
        last: Option<&[u8]>,
    ) {
        if let Some(key) = last {
            self.next = match self.is_reversed {
                true => Bytes::copy_from_slice(key),
                false => [key, &[0]].concat().into(),
            };
        }
        if !ends_region {
            match (&mut self.open, response.scanner_id) {
                (Some(open), _) => open.next_call += 1,
                (None, Some(id)) => {
                    self.open = Some(OpenScanner {
                        cluster: Arc::clone(&self.cluster),
                        region: Arc::clone(region),
                        id,
                        next_call: 1,
                        is_closed: false,
                    });
                }
                // It has no scanner, and says that there is more: another is opened behind the last row.
                (None, None) => {}
            }
            return;
        }
        if let Some(mut open) = self.open.take() {
            open.is_closed = true;
        }
        if self.is_reversed {
            self.is_done = region.start.is_empty() || *region.start <= *self.last;
            self.next = region.start.clone();
        } else {
            self.is_done = region.end.is_empty() || (!self.last.is_empty() && *region.end >= *self.last);
            self.next = region.end.clone();
        }
    }
}

/// A key closely before another, which is not empty: a scan that ends there passes the other.
fn closely_before(key: &[u8]) -> Bytes {
    match key.split_last() {
        Some((0, rest)) => Bytes::copy_from_slice(rest),
        Some((last, rest)) => [rest, &[last - 1], &CLOSELY].concat().into(),
        None => Bytes::new(),
    }
}

/// Joins the parts of a row; a part of another row ends the earlier one.
fn join(
    earlier: Option<PartialRow>,
    part: Option<PartialRow>,
    mut whole: impl FnMut(PartialRow),
) -> Option<PartialRow> {
    match (earlier, part) {
        (Some(mut earlier), Some(part)) if earlier.key() == part.key() => {
            earlier.append(part);
            Some(earlier)
        }
        (Some(earlier), Some(part)) => {
            whole(earlier);
            Some(part)
        }
        (earlier, part) => earlier.or(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_closely_before_another() {
        assert_eq!(closely_before(b"a\0"), b"a"[..]);
        assert_eq!(closely_before(b"b"), [b"a".as_slice(), &CLOSELY].concat());
        for key in [&b"b"[..], b"b\0", b"\x01", b"ab\x80"] {
            assert!(*closely_before(key) < *key);
        }
    }
}
