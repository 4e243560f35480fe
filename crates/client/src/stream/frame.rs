//! Batches become frames of one stream.
//!
//! A stream numbers symbols and series in the order in which its frames need them. A stream that replaces a
//! broken one therefore declares only what its own frames refer to.

use std::ops::Range;

use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::write_stream_request::Frame;
use oxtsdb_proto::data::v1::{Columns, DeltaTimestamps};
use rustc_hash::FxHashMap;

use super::batch::{Batch, BlockRange, Column};
use crate::SeriesName;

/// The numbers of one stream.
#[derive(Debug, Default)]
pub(super) struct StreamTables {
    symbols: FxHashMap<Box<str>, u32>,
    /// The stream's number of each series of the dictionary.
    series: Vec<Option<u32>>,
    declared_series: u32,
}

impl StreamTables {
    /// The frame of a batch, with the declarations that the stream does not have yet. `dictionary` has all
    /// series that the batch refers to.
    pub(super) fn frame(&mut self, batch: &Batch, dictionary: &[SeriesName], sequence: u64) -> Frame {
        let mut columns = Columns {
            first_symbol: u32::try_from(self.symbols.len()).unwrap_or(u32::MAX),
            first_series: self.declared_series,
            ..Columns::default()
        };
        let blocks = batch.blocks().into_iter().filter_map(|range| match range {
            BlockRange::Ints(range) => {
                let (block, int_values) = self.block(&batch.ints, range, dictionary, &mut columns)?;
                Some(Block { int_values, ..block })
            }
            BlockRange::Doubles(range) => {
                let (block, values) = self.block(&batch.doubles, range, dictionary, &mut columns)?;
                Some(Block { values, ..block })
            }
        });
        let blocks = blocks.collect();
        columns.blocks = blocks;
        Frame {
            sequence,
            columns: Some(columns),
        }
    }

    fn block<T: Copy>(
        &mut self,
        column: &Column<T>,
        range: Range<usize>,
        dictionary: &[SeriesName],
        columns: &mut Columns,
    ) -> Option<(Block, Vec<T>)> {
        let timestamps = column.timestamps.get(range.clone())?.iter();
        let timestamps: Vec<i64> = timestamps.map(|timestamp| timestamp.millis()).collect();
        let delta_timestamps = Some(DeltaTimestamps::encode(&timestamps)?);
        let numbers = column.series.get(range.clone())?.iter();
        let mut series: Vec<u32> = numbers
            .map(|number| self.series(*number, dictionary, columns))
            .collect();
        // One number stands for all points of a block.
        if let [first, rest @ ..] = &series[..]
            && rest.iter().all(|number| number == first)
        {
            series.truncate(1);
        }
        let block = Block {
            series,
            delta_timestamps,
            ..Block::default()
        };
        Some((block, column.values.get(range)?.to_vec()))
    }

    fn series(&mut self, number: u32, dictionary: &[SeriesName], columns: &mut Columns) -> u32 {
        let index = number as usize;
        if index >= self.series.len() {
            self.series.resize(index + 1, None);
        }
        if let Some(declared) = self.series[index] {
            return declared;
        }
        let names = dictionary[index].names();
        let mut symbols = names.map(|name| symbol(&mut self.symbols, name, columns));
        let declaration = SeriesDeclaration {
            metric_symbol: symbols.next().unwrap_or_default(),
            tag_symbols: symbols.collect(),
            tsuid: Vec::new().into(),
        };
        columns.new_series.push(declaration);
        let declared = self.declared_series;
        self.declared_series += 1;
        self.series[index] = Some(declared);
        declared
    }
}

/// The number of a name, which is declared if the stream does not have it.
fn symbol(symbols: &mut FxHashMap<Box<str>, u32>, name: &str, columns: &mut Columns) -> u32 {
    if let Some(symbol) = symbols.get(name) {
        return *symbol;
    }
    let symbol = u32::try_from(symbols.len()).unwrap_or(u32::MAX);
    symbols.insert(name.into(), symbol);
    columns.new_symbols.push(name.to_owned());
    symbol
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batcher;
    use super::*;
    use crate::{Timestamp, Value};

    fn batches(parts: &[&[(&str, &str, i64, Value)]]) -> (Vec<Batch>, Vec<SeriesName>) {
        let mut batcher = Batcher::new(100, 4096);
        let mut dictionary = Vec::new();
        let batches = parts.iter().map(|points| {
            for (metric, host, second, value) in *points {
                let series = SeriesName::new(metric, [("a", host)]);
                batcher.add(&series, Timestamp::from_seconds(*second), *value);
            }
            let batch = batcher.take();
            dictionary.extend(batch.new_series.iter().cloned());
            batch
        });
        (batches.collect(), dictionary)
    }

    #[test]
    fn frames_declare_what_the_stream_does_not_have() {
        let (batches, dictionary) = batches(&[
            &[
                ("m", "x", 1, Value::Int(10)),
                ("m", "y", 2, Value::Int(20)),
                ("m", "x", 2, Value::Double(0.5)),
            ],
            &[("n", "x", 3, Value::Int(30))],
        ]);
        let mut stream = StreamTables::default();
        let first = stream.frame(&batches[0], &dictionary, 1).columns.unwrap();
        assert_eq!(first.new_symbols, ["m", "a", "x", "y"]);
        assert_eq!(first.new_series.len(), 2);
        assert_eq!(first.blocks.len(), 2);
        assert_eq!(first.blocks[0].series, [0, 1]);
        assert_eq!(
            first.blocks[0].delta_timestamps,
            DeltaTimestamps::encode(&[1000, 2000])
        );
        assert_eq!(first.blocks[1].series, [0], "one series for the whole block");
        let second = stream.frame(&batches[1], &dictionary, 2).columns.unwrap();
        assert_eq!(second.new_symbols, ["n"]);
        assert_eq!((second.first_symbol, second.first_series), (4, 2));
        let declaration = &second.new_series[0];
        assert_eq!(
            (declaration.metric_symbol, &declaration.tag_symbols[..]),
            (4, &[1, 2][..])
        );
        assert_eq!(second.blocks[0].series, [2]);
    }

    #[test]
    fn replacing_streams_declare_only_what_their_frames_need() {
        let (batches, dictionary) = batches(&[
            &[("m", "x", 1, Value::Int(10))],
            &[("n", "y", 3, Value::Int(30)), ("m", "x", 4, Value::Int(40))],
        ]);
        let frame = StreamTables::default().frame(&batches[1], &dictionary, 1);
        let columns = frame.columns.unwrap();
        assert_eq!(columns.new_symbols, ["n", "a", "y", "m", "x"]);
        assert_eq!(columns.blocks[0].series, [0, 1]);
    }
}
