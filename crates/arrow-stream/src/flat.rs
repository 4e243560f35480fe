//! Writes FlatBuffers, the form of Arrow's metadata, from a tree of tables.
//!
//! ```text
//!   buffer   offset of the root table (4) | tables, vectors, texts
//!   vtable   its bytes (2) | bytes of the table (2) | offset of each field in the table (2); 0: absent
//!   table    distance back to its vtable (4) | fields, each aligned to its size
//!   vector   number of elements (4) | elements
//!   text     bytes (4) | UTF-8 | 0
//! ```
//!
//! A field that is a table, a vector or a text is an offset forward from the field. A table stands directly behind its vtable, and
//! its nodes behind the table. Both begin at a multiple of 8 bytes, which suits all fields.
//!
//! Source: <https://flatbuffers.dev/internals/>.

use bytes::BufMut as _;

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) enum Node<'a> {
    /// A table, by its fields' numbers.
    Table(Vec<Field<'a>>),
    /// A vector of tables.
    Tables(Vec<Node<'a>>),
    /// A vector of structs of two numbers.
    Pairs(&'a [[usize; 2]]),
    /// A text.
    Text(&'a str),
}

/// A field of a table.
#[derive(Clone, Debug)]
pub(crate) enum Field<'a> {
    Absent,
    Byte(u8),
    Short(i16),
    Int(i32),
    Long(i64),
    Node(Node<'a>),
}

impl Field<'_> {
    const fn bytes(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Byte(_) => 1,
            Self::Short(_) => 2,
            Self::Int(_) | Self::Node(_) => 4,
            Self::Long(_) => 8,
        }
    }
}

/// The FlatBuffer of a tree.
pub(crate) fn buffer(root: &Node<'_>) -> Vec<u8> {
    let mut out = vec![0; 4];
    let at = write(root, &mut out);
    refer(&mut out, 0, at);
    out
}

/// Appends a node, and all below it. Returns where it begins.
fn write(node: &Node<'_>, out: &mut Vec<u8>) -> usize {
    match node {
        Node::Table(fields) => table(fields, out),
        Node::Tables(tables) => {
            align(out, 4);
            let at = out.len();
            out.put_u32_le(short_length(tables.len()));
            let slots = out.len();
            out.resize(slots + 4 * tables.len(), 0);
            for (number, table) in tables.iter().enumerate() {
                let target = write(table, out);
                refer(out, slots + 4 * number, target);
            }
            at
        }
        Node::Pairs(pairs) => {
            // The numbers behind the length are aligned.
            align(out, 8);
            out.put_u32_le(0);
            let at = out.len();
            out.put_u32_le(short_length(pairs.len()));
            for number in pairs.as_flattened() {
                out.put_u64_le(*number as u64);
            }
            at
        }
        Node::Text(text) => {
            align(out, 4);
            let at = out.len();
            out.put_u32_le(short_length(text.len()));
            out.extend_from_slice(text.as_bytes());
            out.push(0);
            at
        }
    }
}

fn table(fields: &[Field<'_>], out: &mut Vec<u8>) -> usize {
    let mut length = size_of::<u32>();
    let mut offsets = Vec::with_capacity(fields.len());
    for field in fields {
        let bytes = field.bytes();
        length = length.next_multiple_of(bytes.max(1));
        offsets.push(if bytes == 0 { 0 } else { length });
        length += bytes;
    }
    let vtable_bytes = 2 * (2 + fields.len());
    let at = (out.len() + vtable_bytes).next_multiple_of(8);
    out.resize(at - vtable_bytes, 0);
    out.put_u16_le(table_length(vtable_bytes));
    out.put_u16_le(table_length(length));
    for offset in &offsets {
        out.put_u16_le(table_length(*offset));
    }
    out.put_u32_le(short_length(vtable_bytes));
    for (field, offset) in fields.iter().zip(&offsets) {
        out.resize((at + offset).max(out.len()), 0);
        match field {
            Field::Absent => {}
            Field::Byte(value) => out.put_u8(*value),
            Field::Short(value) => out.put_i16_le(*value),
            Field::Int(value) => out.put_i32_le(*value),
            Field::Long(value) => out.put_i64_le(*value),
            Field::Node(_) => out.put_u32_le(0),
        }
    }
    for (field, offset) in fields.iter().zip(&offsets) {
        if let Field::Node(node) = field {
            let target = write(node, out);
            refer(out, at + offset, target);
        }
    }
    at
}

fn align(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

/// Writes the offset of a node into the field that refers to it.
fn refer(out: &mut [u8], field: usize, target: usize) {
    if let Some(mut slot) = out.get_mut(field..field + 4) {
        slot.put_u32_le(short_length(target - field));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "metadata has about a kilobyte")]
const fn short_length(length: usize) -> u32 {
    length as u32
}

#[expect(clippy::cast_possible_truncation, reason = "a table has a few fields")]
const fn table_length(length: usize) -> u16 {
    length as u16
}
