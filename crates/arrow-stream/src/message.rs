//! Messages: the schema, dictionaries and record batches.
//!
//! Source: `format/{Message,Schema}.fbs` of Arrow.

use bytes::BufMut as _;

use crate::columns::Buffers;
use crate::flat::{Field, Node, buffer};

/// The end of a stream.
pub const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The dictionary of the column `metric`.
pub(crate) const METRICS: i64 = 0;
/// The dictionary of the values in the column `tags`.
pub(crate) const TAG_VALUES: i64 = 1;

/// `MetadataVersion.V5`.
const VERSION: i16 = 4;

/// `MessageHeader`: the type of a message.
const SCHEMA: u8 = 1;
const DICTIONARY_BATCH: u8 = 2;
const RECORD_BATCH: u8 = 3;

/// The first message of a stream.
pub fn schema() -> Vec<u8> {
    let entries = vec![
        field("key", TEXT),
        Column {
            dictionary: Some(TAG_VALUES),
            ..field("value", TEXT)
        },
    ];
    let columns = vec![
        Column {
            dictionary: Some(METRICS),
            ..field("metric", TEXT)
        },
        field("timestamp", Type::Timestamp),
        Column {
            is_nullable: true,
            ..field("value", Type::Double)
        },
        Column {
            is_nullable: true,
            ..field("integer", Type::Integer { bits: 64 })
        },
        Column {
            children: vec![Column {
                children: entries,
                ..field("entries", Type::Struct)
            }],
            ..field("tags", Type::Map)
        },
        field("query", INDEX),
        field("series", INDEX),
    ];
    let columns = columns.into_iter().map(Column::node).collect();
    let schema = vec![Field::Absent, Field::Node(Node::Tables(columns))];
    message(SCHEMA, Node::Table(schema), 0)
}

/// Appends a message with a whole dictionary, which replaces the one before.
pub(crate) fn write_dictionary(out: &mut Vec<u8>, id: i64, buffers: &Buffers) {
    let dictionary = vec![Field::Long(id), Field::Node(record_batch(buffers))];
    out.extend(message(DICTIONARY_BATCH, Node::Table(dictionary), buffers.bytes));
    buffers.write(out);
}

/// Appends a message with a record batch.
pub(crate) fn write_batch(out: &mut Vec<u8>, buffers: &Buffers) {
    out.extend(message(RECORD_BATCH, record_batch(buffers), buffers.bytes));
    buffers.write(out);
}

fn record_batch<'a>(buffers: &'a Buffers<'_>) -> Node<'a> {
    Node::Table(vec![
        long(buffers.rows),
        Field::Node(Node::Pairs(&buffers.nodes)),
        Field::Node(Node::Pairs(&buffers.places)),
    ])
}

/// The metadata of a message, with its frame.
fn message(kind: u8, header: Node<'_>, body_bytes: usize) -> Vec<u8> {
    let mut metadata = buffer(&Node::Table(vec![
        Field::Short(VERSION),
        Field::Byte(kind),
        Field::Node(header),
        long(body_bytes),
    ]));
    metadata.resize(metadata.len().next_multiple_of(8), 0);
    let mut message = vec![0xff; 4];
    #[expect(clippy::cast_possible_truncation, reason = "about a kilobyte")]
    message.put_u32_le(metadata.len() as u32);
    message.extend(metadata);
    message
}

#[expect(clippy::cast_possible_wrap, reason = "a length in memory")]
const fn long(length: usize) -> Field<'static> {
    Field::Long(length as i64)
}

/// A column of the schema, or a part of one.
struct Column {
    name: &'static str,
    is_nullable: bool,
    kind: Type,
    /// The dictionary that its values are indices of.
    dictionary: Option<i64>,
    children: Vec<Column>,
}

#[derive(Clone, Copy)]
enum Type {
    Integer { bits: i32 },
    Double,
    Text,
    Timestamp,
    Struct,
    Map,
}

const TEXT: Type = Type::Text;
const INDEX: Type = Type::Integer { bits: 32 };

const fn field(name: &'static str, kind: Type) -> Column {
    Column {
        name,
        is_nullable: false,
        kind,
        dictionary: None,
        children: Vec::new(),
    }
}

impl Column {
    fn node(self) -> Node<'static> {
        let dictionary = |id| Node::Table(vec![Field::Long(id), Field::Node(Node::Table(INDEX.fields()))]);
        let children = self.children.into_iter().map(Self::node).collect();
        Node::Table(vec![
            Field::Node(Node::Text(self.name)),
            Field::Byte(self.is_nullable.into()),
            Field::Byte(self.kind.number()),
            Field::Node(Node::Table(self.kind.fields())),
            self.dictionary
                .map_or(Field::Absent, |id| Field::Node(dictionary(id))),
            Field::Node(Node::Tables(children)),
        ])
    }
}

impl Type {
    /// Its place in the union `Type`.
    const fn number(self) -> u8 {
        match self {
            Self::Integer { .. } => 2,
            Self::Double => 3,
            Self::Text => 5,
            Self::Timestamp => 10,
            Self::Struct => 13,
            Self::Map => 17,
        }
    }

    /// The fields of its table.
    fn fields(self) -> Vec<Field<'static>> {
        match self {
            Self::Integer { bits } => vec![Field::Int(bits), Field::Byte(1)],
            // `Precision.DOUBLE`.
            Self::Double => vec![Field::Short(2)],
            // `TimeUnit.MILLISECOND`.
            Self::Timestamp => vec![Field::Short(1), Field::Node(Node::Text("UTC"))],
            Self::Text | Self::Struct | Self::Map => Vec::new(),
        }
    }
}
