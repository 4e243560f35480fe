//! Batches become frames of one stream.
//!
//! A stream has its own numbers for names and series, given in the order in which its frames need
//! them. So a stream that takes over from a broken one declares only what its frames refer to.

use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration, block};
use oxtsdb_proto::data::v1::write_stream_request::Frame;
use oxtsdb_proto::data::v1::{Columns, DoubleColumn, IntColumn};

use super::batch::{Batch, Column, SeriesNames};

/// All names and series that batches may refer to.
#[derive(Debug, Default)]
pub(super) struct Declared {
    names: Vec<Box<str>>,
    series: Vec<SeriesNames>,
}

impl Declared {
    /// Takes over what a batch adds.
    pub(super) fn add(&mut self, batch: &mut Batch) {
        if batch.fresh {
            *self = Self::default();
        }
        self.names.append(&mut batch.names);
        self.series.append(&mut batch.series);
    }
}

/// The numbers of one stream.
#[derive(Debug, Default)]
pub(super) struct StreamNumbers {
    names: Numbers,
    series: Numbers,
}

/// The stream's number of each of our numbers, and how many are given.
#[derive(Debug, Default)]
struct Numbers {
    given: Vec<Option<u32>>,
    count: u32,
}

impl Numbers {
    /// The stream's number, and whether it is new.
    fn of(&mut self, ours: u32) -> (u32, bool) {
        let index = ours as usize;
        if index >= self.given.len() {
            self.given.resize(index + 1, None);
        }
        if let Some(number) = self.given[index] {
            return (number, false);
        }
        let number = self.count;
        self.given[index] = Some(number);
        self.count += 1;
        (number, true)
    }
}

impl StreamNumbers {
    /// The frame of a batch, with the declarations that the stream has not had yet.
    pub(super) fn frame(&mut self, batch: &Batch, declared: &Declared, sequence: u64) -> Frame {
        let mut columns = Columns::default();
        let ints = self.block(&batch.ints, declared, &mut columns);
        let ints = ints.map(|(block, values)| Block {
            values: Some(block::Values::Ints(IntColumn { values })),
            ..block
        });
        let doubles = self.block(&batch.doubles, declared, &mut columns);
        let doubles = doubles.map(|(block, values)| Block {
            values: Some(block::Values::Doubles(DoubleColumn { values })),
            ..block
        });
        columns.blocks = ints.into_iter().chain(doubles).collect();
        Frame {
            sequence,
            columns: Some(columns),
        }
    }

    fn block<T: Copy>(
        &mut self,
        column: &Column<T>,
        declared: &Declared,
        columns: &mut Columns,
    ) -> Option<(Block, Vec<T>)> {
        let base_timestamp_ms = *column.timestamps_ms.first()?;
        let mut previous = base_timestamp_ms;
        let timestamp_deltas_ms = column
            .timestamps_ms
            .iter()
            .map(|timestamp| timestamp - std::mem::replace(&mut previous, *timestamp))
            .collect();
        let mut series: Vec<u32> = column
            .series
            .iter()
            .map(|series| self.series(*series, declared, columns))
            .collect();
        // One number stands for all points of a history.
        if series.iter().all(|number| *number == series[0]) {
            series.truncate(1);
        }
        let block = Block {
            series,
            base_timestamp_ms,
            timestamp_deltas_ms,
            values: None,
        };
        Some((block, column.values.clone()))
    }

    fn series(&mut self, ours: u32, declared: &Declared, columns: &mut Columns) -> u32 {
        let (number, new) = self.series.of(ours);
        if new {
            let series = &declared.series[ours as usize];
            let metric_symbol = self.name(series.metric, declared, columns);
            let tags = series.tags.iter();
            let tag_symbols = tags.map(|name| self.name(*name, declared, columns)).collect();
            columns.new_series.push(SeriesDeclaration {
                metric_symbol,
                tag_symbols,
                tsuid: Vec::new().into(),
            });
        }
        number
    }

    fn name(&mut self, ours: u32, declared: &Declared, columns: &mut Columns) -> u32 {
        let (number, new) = self.names.of(ours);
        if new {
            columns
                .new_symbols
                .push(declared.names[ours as usize].to_string());
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batcher;
    use super::*;

    fn batches(parts: &[&[&str]]) -> Vec<Batch> {
        let mut batcher = Batcher::new(100, 4096);
        parts
            .iter()
            .map(|lines| {
                for (line, number) in lines.iter().zip(1..) {
                    batcher.add(line.as_bytes(), number).unwrap();
                }
                batcher.take(0)
            })
            .collect()
    }

    #[test]
    fn a_frame_declares_what_the_stream_has_not_had() {
        let mut batches = batches(&[&["m 1 10 a=x", "m 2 20 a=y", "m 2 0.5 a=x"], &["n 3 30 a=x"]]);
        let mut declared = Declared::default();
        batches.iter_mut().for_each(|batch| declared.add(batch));
        let mut stream = StreamNumbers::default();
        let first = stream.frame(&batches[0], &declared, 1).columns.unwrap();
        assert_eq!(first.new_symbols, ["m", "a", "x", "y"]);
        assert_eq!(first.new_series.len(), 2);
        assert_eq!(first.blocks.len(), 2);
        assert_eq!(first.blocks[0].series, [0, 1]);
        assert_eq!(first.blocks[0].base_timestamp_ms, 1000);
        assert_eq!(first.blocks[0].timestamp_deltas_ms, [0, 1000]);
        assert_eq!(first.blocks[1].series, [0], "one series for the whole block");
        let second = stream.frame(&batches[1], &declared, 2).columns.unwrap();
        assert_eq!(second.new_symbols, ["n"]);
        assert_eq!(
            (
                second.new_series[0].metric_symbol,
                &second.new_series[0].tag_symbols[..]
            ),
            (4, &[1, 2][..])
        );
        assert_eq!(second.blocks[0].series, [2]);
    }

    #[test]
    fn another_stream_declares_only_what_its_frames_need() {
        let mut batches = batches(&[&["m 1 10 a=x"], &["n 3 30 a=y", "m 4 40 a=x"]]);
        let mut declared = Declared::default();
        batches.iter_mut().for_each(|batch| declared.add(batch));
        let frame = StreamNumbers::default().frame(&batches[1], &declared, 1);
        let columns = frame.columns.unwrap();
        assert_eq!(columns.new_symbols, ["n", "a", "y", "m", "x"]);
        assert_eq!(columns.blocks[0].series, [0, 1]);
    }
}
