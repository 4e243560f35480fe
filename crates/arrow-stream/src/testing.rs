//! Reads streams, for tests.
//!
//! It knows the schema, and checks that the stream begins with it. Everything else is found as a reader of Arrow finds it: tables by
//! their vtables, buffers by their places in the body.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::HashMap;

use bytes::Buf as _;

use crate::message::{END, METRICS, TAG_VALUES, schema};

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the columns")]
pub struct TableRow {
    pub metric: String,
    pub timestamp_ms: i64,
    pub value: Option<f64>,
    pub integer: Option<i64>,
    pub tags: Vec<(String, String)>,
    pub query: i32,
    pub series: i32,
}

/// The rows of each record batch of a stream.
///
/// # Errors
///
/// If the stream is incomplete, or is none.
pub fn read_batches(stream: &[u8]) -> Result<Vec<Vec<TableRow>>, &'static str> {
    let mut rest = stream
        .strip_prefix(&*schema())
        .ok_or("it does not begin with the schema")?;
    let mut dictionaries = HashMap::new();
    let mut batches = Vec::new();
    loop {
        if rest == END {
            return Ok(batches);
        }
        let (length, body) = rest.split_at_checked(8).ok_or("it has no end")?;
        let length = number(length, 4) as usize;
        let (metadata, body) = body.split_at_checked(length).ok_or("a message is incomplete")?;
        let root = Table::at(metadata, number(metadata, 0) as usize);
        let body_bytes = root.long(3) as usize;
        if body.len() < body_bytes {
            return Err("a body is incomplete");
        }
        let (body, next) = body.split_at(body_bytes);
        rest = next;
        let header = root.table(2);
        match root.byte(1) {
            2 => {
                let mut columns = Columns::new(&header.table(1), body);
                dictionaries.insert(header.long(0), columns.texts());
            }
            3 => batches.push(rows(Columns::new(&header, body), &dictionaries)),
            _ => return Err("a message of another type"),
        }
    }
}

/// The rows of a stream.
///
/// # Errors
///
/// As [`read_batches`].
pub fn read(stream: &[u8]) -> Result<Vec<TableRow>, &'static str> {
    Ok(read_batches(stream)?.concat())
}

fn rows(mut columns: Columns<'_>, dictionaries: &HashMap<i64, Vec<String>>) -> Vec<TableRow> {
    let (metrics, tag_values) = (&dictionaries[&METRICS], &dictionaries[&TAG_VALUES]);
    let metric = columns.ints();
    let timestamp = columns.longs();
    let value = columns.longs();
    let integer = columns.longs();
    let tags = columns.ints();
    columns.validity();
    let (key, tag_value) = (columns.texts(), columns.ints());
    let (query, series) = (columns.ints(), columns.ints());
    let present = |number: &Option<i64>| number.unwrap();
    (0..metric.len())
        .map(|row| TableRow {
            metric: metrics[metric[row] as usize].clone(),
            timestamp_ms: present(&timestamp[row]),
            value: value[row].map(|bits| f64::from_bits(bits.cast_unsigned())),
            integer: integer[row],
            tags: (tags[row] as usize..tags[row + 1] as usize)
                .map(|tag| (key[tag].clone(), tag_values[tag_value[tag] as usize].clone()))
                .collect(),
            query: query[row],
            series: series[row],
        })
        .collect()
}

/// The columns of a batch, one after the other.
struct Columns<'a> {
    nodes: std::vec::IntoIter<[u64; 2]>,
    buffers: std::vec::IntoIter<[u64; 2]>,
    body: &'a [u8],
}

impl<'a> Columns<'a> {
    fn new(batch: &Table<'_>, body: &'a [u8]) -> Self {
        Self {
            nodes: batch.pairs(1).into_iter(),
            buffers: batch.pairs(2).into_iter(),
            body,
        }
    }

    fn buffer(&mut self) -> &'a [u8] {
        let [start, bytes] = self.buffers.next().expect("a buffer");
        assert_eq!(start % 8, 0, "buffers are aligned");
        &self.body[start as usize..][..bytes as usize]
    }

    /// Whether each row of the next column is present.
    fn validity(&mut self) -> Vec<bool> {
        let [rows, nulls] = self.nodes.next().expect("a column");
        let bits = self.buffer();
        let is_present = |row: usize| bits.is_empty() || bits[row / 8] >> (row % 8) & 1 == 1;
        let present: Vec<bool> = (0..rows as usize).map(is_present).collect();
        assert_eq!(
            present.iter().filter(|is_present| !**is_present).count(),
            nulls as usize
        );
        present
    }

    fn ints(&mut self) -> Vec<i32> {
        self.validity();
        ints(self.buffer())
    }

    fn longs(&mut self) -> Vec<Option<i64>> {
        let present = self.validity();
        let mut buffer = self.buffer();
        present
            .into_iter()
            .map(|is_present| {
                let number = buffer.get_i64_le();
                is_present.then_some(number)
            })
            .collect()
    }

    fn texts(&mut self) -> Vec<String> {
        self.validity();
        let (ends, text) = (ints(self.buffer()), self.buffer());
        let text = |range: &[i32]| &text[range[0] as usize..range[1] as usize];
        ends.windows(2)
            .map(|range| str::from_utf8(text(range)).expect("UTF-8").to_owned())
            .collect()
    }
}

fn ints(mut buffer: &[u8]) -> Vec<i32> {
    (0..buffer.len() / 4).map(|_| buffer.get_i32_le()).collect()
}

/// A table of a FlatBuffer.
struct Table<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Table<'a> {
    fn at(buffer: &'a [u8], at: usize) -> Self {
        Self { buffer, at }
    }

    /// Where a field is.
    fn field(&self, field: usize) -> usize {
        let vtable = self.at - number(self.buffer, self.at) as usize;
        let mut offset = &self.buffer[vtable + 4 + 2 * field..];
        self.at + usize::from(offset.get_u16_le())
    }

    fn byte(&self, field: usize) -> u8 {
        self.buffer[self.field(field)]
    }

    fn long(&self, field: usize) -> i64 {
        (&self.buffer[self.field(field)..]).get_i64_le()
    }

    fn table(&self, field: usize) -> Table<'a> {
        Self::at(self.buffer, self.target(field))
    }

    fn pairs(&self, field: usize) -> Vec<[u64; 2]> {
        let at = self.target(field);
        let mut pairs = &self.buffer[at + 4..];
        (0..number(self.buffer, at))
            .map(|_| [pairs.get_u64_le(), pairs.get_u64_le()])
            .collect()
    }

    /// Where the node is that a field refers to.
    fn target(&self, field: usize) -> usize {
        let field = self.field(field);
        field + number(self.buffer, field) as usize
    }
}

fn number(buffer: &[u8], at: usize) -> u32 {
    (&buffer[at..]).get_u32_le()
}
