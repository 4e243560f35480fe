//! Table files: immutable, sorted by key. A table holds the newest changes of a range of commits.
//!
//! ```text
//!   file          header (16) | section ... | section index | properties | footer (36)
//!   header        "oxtsdbct" | version (4) | crc (4)
//!   section       data block, up to 64 | block index | filter
//!   footer        section index, properties: each offset (8), bytes (4) | "oxtsdbcf" | crc (4)
//!
//!   block         "oxcb" | kind (1) | length (4) | stored length (4) | crc (4) | stored bytes
//!   data block    entries: the cells of a key, or nothing for a removed key
//!   block index   entries: first key of a data block -> its offset and bytes
//!   filter        a Bloom filter of the section's keys
//!   section index entries: first key of a section -> offset and bytes of its block index, of its filter
//!   properties    id of the store (16) | first, last commit | entries | first, last key | expiring columns
//! ```
//!
//! Numbers with a size are big endian, others varints. A CRC is the CRC-32 of zlib, of everything before it in its header
//! and of the stored bytes. A block is compressed with LZ4 if its stored length differs from its length. `block` draws
//! entries. A section index is in memory while a table is open; other blocks are in a bounded cache.
//!
//! A name has the first and the last commit: `0000000017-0000000042.cells`. A table is renamed into place when it is
//! durable, and replaces all tables within its range of commits.
//!
//! Every block can be found and decoded without the others, so damage loses the keys of the damaged data blocks only;
//! see `salvage`.

pub(super) mod block;
pub(super) mod cache;
mod file;
mod filter;
mod frame;
pub(super) mod name;
mod place;
mod properties;
mod reader;
mod salvage;
mod writer;

pub(super) use name::CommitRange;
pub(super) use properties::{Expiring, Properties};
pub(super) use reader::{DamagedTable, Expected, Table, TableCursor, TableError};
pub(super) use writer::TableWriter;

const HEADER_MAGIC: [u8; 8] = *b"oxtsdbct";
const FOOTER_MAGIC: [u8; 8] = *b"oxtsdbcf";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const FOOTER_BYTES: usize = 36;
/// Length at which a data block ends. Larger blocks compress keys better but make single reads more expensive.
const DATA_BYTES: usize = 16 << 10;
/// Data blocks of a section.
const SECTION_BLOCKS: usize = 64;

/// Identifies a store: tables of another one are not taken for its own.
pub(super) type StoreId = [u8; 16];
