//! Columns as they are sent: buffers of little-endian numbers, bits and texts.

use std::sync::Arc;

use bytes::BufMut as _;
use rustc_hash::FxHashMap;

/// The memory of an entry of a dictionary beside its text: the entry of the hash table, and the offset.
const ENTRY_BYTES: usize = 48;

/// The buffers of a message's body, in the order of the schema.
#[derive(Debug, Default)]
pub(crate) struct Buffers<'a> {
    pub(crate) rows: usize,
    /// Rows and nulls of each column.
    pub(crate) nodes: Vec<[usize; 2]>,
    /// Where each buffer begins in the body, and its bytes without padding.
    pub(crate) places: Vec<[usize; 2]>,
    /// Bytes of the body.
    pub(crate) bytes: usize,
    contents: Vec<&'a [u8]>,
}

impl<'a> Buffers<'a> {
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }

    /// Adds a column without nulls: its validity is left out.
    pub(crate) fn column(&mut self, rows: usize, buffers: &[&'a [u8]]) {
        self.nullable(rows, 0, &[]);
        for buffer in buffers {
            self.buffer(buffer);
        }
    }

    /// Adds a column by its validity; its other buffers follow.
    fn nullable(&mut self, rows: usize, nulls: usize, validity: &'a [u8]) {
        self.nodes.push([rows, nulls]);
        self.buffer(validity);
    }

    fn buffer(&mut self, buffer: &'a [u8]) {
        self.places.push([self.bytes, buffer.len()]);
        self.bytes += buffer.len().next_multiple_of(8);
        self.contents.push(buffer);
    }

    /// Appends the body.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes);
        for buffer in &self.contents {
            out.extend_from_slice(buffer);
            out.put_bytes(0, buffer.len().next_multiple_of(8) - buffer.len());
        }
    }
}

/// A column of numbers of 8 bytes and nulls.
#[derive(Debug, Default)]
pub(crate) struct Nullable {
    /// A bit for each row, from the lowest; 1: not null.
    validity: Vec<u8>,
    numbers: Vec<u8>,
    rows: usize,
    nulls: usize,
}

impl Nullable {
    /// Adds a number, by its bits.
    pub(crate) fn push(&mut self, number: Option<u64>) {
        let bit = self.rows % 8;
        if bit == 0 {
            self.validity.push(0);
        }
        if let Some(byte) = self.validity.last_mut() {
            *byte |= u8::from(number.is_some()) << bit;
        }
        self.nulls += usize::from(number.is_none());
        self.numbers.put_u64_le(number.unwrap_or_default());
        self.rows += 1;
    }

    pub(crate) fn add_to<'a>(&'a self, buffers: &mut Buffers<'a>) {
        let validity = if self.nulls == 0 { &[] } else { &*self.validity };
        buffers.nullable(self.rows, self.nulls, validity);
        buffers.buffer(&self.numbers);
    }

    pub(crate) fn clear(&mut self) {
        self.validity.clear();
        self.numbers.clear();
        (self.rows, self.nulls) = (0, 0);
    }
}

/// Where variable-sized elements begin and end: 0, and the end of each.
#[derive(Debug)]
pub(crate) struct Offsets(Vec<u8>);

impl Default for Offsets {
    fn default() -> Self {
        Self(vec![0; 4])
    }
}

impl Offsets {
    pub(crate) fn push(&mut self, end: usize) {
        self.0.put_i32_le(index(end));
    }

    pub(crate) fn buffer(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0.truncate(4);
    }
}

/// Texts one after the other.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    offsets: Offsets,
    text: Vec<u8>,
}

impl Texts {
    pub(crate) fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
        self.offsets.push(self.text.len());
    }

    pub(crate) fn buffers(&self) -> [&[u8]; 2] {
        [self.offsets.buffer(), &self.text]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.offsets.buffer().len() + self.text.len()
    }

    pub(crate) fn clear(&mut self) {
        self.offsets.clear();
        self.text.clear();
    }
}

/// Texts that rows refer to by their places.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    places: FxHashMap<Arc<str>, i32>,
    texts: Texts,
    /// How many of its entries the reader has; `None`: it has no dictionary, not even an empty one.
    sent: Option<usize>,
}

impl Dictionary {
    /// The place of a text, which is added if it is new.
    pub(crate) fn place(&mut self, text: &Arc<str>) -> i32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = index(self.places.len());
        self.places.insert(Arc::clone(text), place);
        self.texts.push(text);
        place
    }

    /// Its memory.
    pub(crate) fn bytes(&self) -> usize {
        self.texts.bytes() + self.places.len() * ENTRY_BYTES
    }

    /// Its entries, if the reader does not have all of them.
    pub(crate) fn unsent(&mut self) -> Option<Buffers<'_>> {
        let rows = self.places.len();
        if self.sent.replace(rows) == Some(rows) {
            return None;
        }
        let mut buffers = Buffers::new(rows);
        buffers.column(rows, &self.texts.buffers());
        Some(buffers)
    }

    /// Forgets all entries; the next ones replace them at the reader.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.texts.clear();
        self.sent = None;
    }
}

/// A number of 4 bytes: batches are far smaller.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a batch has about a megabyte"
)]
pub(crate) const fn index(number: usize) -> i32 {
    number as i32
}
