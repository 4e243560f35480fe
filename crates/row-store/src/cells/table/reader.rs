//! Reads a table file.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::varint::Reader;
use parking_lot::{Mutex, RwLock};

use super::block::{Block, BlockCursor, KeyValue, Undecodable};
use super::cache::{BlockCache, CachedBlock};
use super::file::{ReadError, TableFile};
use super::frame::{self, Kind};
use super::place::{BlockRef, Place};
use super::salvage::{self, Known};
use super::{
    CommitRange, Expiring, FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, HEADER_MAGIC, Properties, StoreId,
    VERSION, filter,
};
use crate::StoreError;
use crate::cells::set_aside::Gap;

/// Bytes of the place of a block in the footer.
const PLACE_BYTES: usize = 12;

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    file: TableFile,
    cache: Arc<BlockCache>,
    /// Its number in the cache.
    number: u64,
    commits: CommitRange,
    expiring: Vec<Expiring>,
    layout: RwLock<Arc<Layout>>,
    /// How often the layout was replaced.
    salvages: AtomicU64,
    salvaging: Mutex<()>,
    is_obsolete: AtomicBool,
}

/// Where blocks are.
#[derive(Debug)]
pub(super) enum Layout {
    Sections(Vec<Section>),
    /// The intact data blocks of a damaged table.
    Blocks(Arc<Vec<BlockRef>>),
}

#[derive(Clone, Debug)]
pub(super) struct Section {
    first_key: Vec<u8>,
    pub(super) index: Place,
    pub(super) filter: Place,
}

/// Bytes of a table are damaged.
#[derive(Debug)]
pub(crate) struct DamagedTable {
    pub(crate) table: Arc<Table>,
    /// The layout that was read.
    salvages: u64,
    pub(crate) detail: String,
}

/// Error of reading a table.
#[derive(Debug)]
pub(crate) enum TableError {
    Damaged(DamagedTable),
    Store(StoreError),
}

/// The facts that a store knows of a table beside its file.
#[derive(Clone, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) store: StoreId,
    pub(crate) commits: CommitRange,
    /// First and last key, if there is a witness.
    pub(crate) keys: Option<(&'a [u8], &'a [u8])>,
}

impl Table {
    /// Opens a table. Damage that prevents reading its index is returned as gaps; the intact blocks can be read.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] for another version of the format; [`StoreError::Corrupt`] for a table of another store;
    /// errors of the disk.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        cache: Arc<BlockCache>,
        expected: &Expected<'_>,
    ) -> Result<(Self, Option<Properties>, Vec<Gap>), StoreError> {
        let mut table = Self {
            file: TableFile::open(disk, path)?,
            number: cache.next_table(),
            cache,
            commits: expected.commits,
            expiring: Vec::new(),
            layout: RwLock::new(Arc::new(Layout::Sections(Vec::new()))),
            salvages: AtomicU64::new(0),
            salvaging: Mutex::new(()),
            is_obsolete: AtomicBool::new(false),
        };
        match table.read_end() {
            Ok((sections, properties)) => {
                if properties.store != expected.store || properties.commits != expected.commits {
                    return Err(StoreError::Corrupt {
                        place: path.display().to_string(),
                        detail: "it is a table of another store".to_owned(),
                    });
                }
                table.expiring.clone_from(&properties.expiring);
                *table.layout.get_mut() = Arc::new(Layout::Sections(sections));
                Ok((table, Some(properties), Vec::new()))
            }
            Err(ReadError::Damaged(detail)) => {
                let known = Known {
                    keys: expected.keys,
                    structure: &[],
                };
                let (blocks, gaps) = salvage::blocks(&table.file, &known, &detail)?;
                *table.layout.get_mut() = Arc::new(Layout::Blocks(Arc::new(blocks)));
                table.salvages = AtomicU64::new(1);
                Ok((table, None, gaps))
            }
            Err(ReadError::Store(error)) => Err(error),
        }
    }

    /// The id of the store that wrote a table, if it can be read.
    pub(crate) fn store_id(disk: &dyn Disk, path: &Path, commits: CommitRange) -> Option<StoreId> {
        let file = disk.open(path).ok()?;
        let end = file.len().ok()?.checked_sub(FOOTER_BYTES as u64)?;
        let mut footer = [0; FOOTER_BYTES];
        file.read_at(&mut footer, end).ok()?;
        let mut reader = Reader(footer.get(PLACE_BYTES..)?);
        let offset = u64::from_be_bytes(reader.array()?);
        let mut stored = vec![0; usize::try_from(u32::from_be_bytes(reader.array()?)).ok()?];
        file.read_at(&mut stored, offset).ok()?;
        let properties = Properties::decode(&frame::decode(&stored, Kind::Properties).ok()?)?;
        (properties.commits == commits).then_some(properties.store)
    }

    /// Reads the section index and the properties.
    fn read_end(&self) -> Result<(Vec<Section>, Properties), ReadError> {
        let mut header = [0; HEADER_BYTES];
        self.file.read_at(&mut header, 0)?;
        let mut reader = Reader(&header);
        let magic = reader.array();
        let version = reader.array().map(u32::from_be_bytes);
        let crc = reader.array().map(u32::from_be_bytes);
        if magic != Some(HEADER_MAGIC) || crc != Some(crc32fast::hash(&header[..HEADER_BYTES - 4])) {
            return Err(ReadError::Damaged("the header is damaged".to_owned()));
        }
        if version != Some(VERSION) {
            return Err(ReadError::Store(StoreError::Invalid {
                detail: format!(
                    "{} has version {}, this program reads version {VERSION}",
                    self.file.path.display(),
                    version.unwrap_or_default()
                ),
            }));
        }
        let damaged = || ReadError::Damaged("the footer is damaged".to_owned());
        let end = self
            .file
            .bytes
            .checked_sub(FOOTER_BYTES as u64)
            .ok_or_else(damaged)?;
        let mut footer = [0; FOOTER_BYTES];
        self.file.read_at(&mut footer, end)?;
        let mut reader = Reader(&footer);
        let mut place = || {
            let offset = u64::from_be_bytes(reader.array()?);
            let bytes = usize::try_from(u32::from_be_bytes(reader.array()?)).ok()?;
            Some(Place { offset, bytes })
        };
        let places = place().zip(place());
        let magic = reader.array();
        let crc = reader.array().map(u32::from_be_bytes);
        if magic != Some(FOOTER_MAGIC) || crc != Some(crc32fast::hash(&footer[..FOOTER_BYTES - 4])) {
            return Err(damaged());
        }
        let (sections, properties) = places.ok_or_else(damaged)?;
        let index = Block::decode(self.file.read_block(sections, Kind::SectionIndex)?)?;
        let section = |(first_key, value): KeyValue| {
            let value = value?;
            let mut reader = Reader(&value);
            Some(Section {
                first_key,
                index: Place::decode(&mut reader)?,
                filter: Place::decode(&mut reader)?,
            })
        };
        let sections: Option<Vec<Section>> = index.entries()?.into_iter().map(section).collect();
        let properties = self.file.read_block(properties, Kind::Properties)?;
        sections
            .zip(Properties::decode(&properties))
            .ok_or_else(|| ReadError::Damaged("the section index is damaged".to_owned()))
    }

    pub(crate) const fn commits(&self) -> CommitRange {
        self.commits
    }

    pub(crate) const fn byte_len(&self) -> u64 {
        self.file.bytes
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn expiring(&self) -> &[Expiring] {
        &self.expiring
    }

    /// Whether only the intact blocks of the table are read, without an index or filters.
    pub(crate) fn is_salvaged(&self) -> bool {
        matches!(**self.layout.read(), Layout::Blocks(_))
    }

    /// Removes the file once no reader has the table.
    pub(crate) fn set_obsolete(&self) {
        self.is_obsolete.store(true, Ordering::Relaxed);
    }

    fn cached(
        &self,
        place: Place,
        fill: bool,
        read: impl FnOnce() -> Result<CachedBlock, ReadError>,
    ) -> Result<CachedBlock, ReadError> {
        let key = (self.number, place.offset);
        if let Some(block) = self.cache.get(key) {
            return Ok(block);
        }
        let block = read()?;
        if fill {
            self.cache.insert(key, block.clone());
        }
        Ok(block)
    }

    fn data_block(&self, place: Place, fill: bool) -> Result<Block, ReadError> {
        let read = || {
            Ok(CachedBlock::Data(Block::decode(
                self.file.read_block(place, Kind::Data)?,
            )?))
        };
        match self.cached(place, fill, read)? {
            CachedBlock::Data(block) => Ok(block),
            _ => Err(Undecodable.into()),
        }
    }

    fn filter(&self, section: &Section) -> Result<Bytes, ReadError> {
        let read = || {
            Ok(CachedBlock::Filter(
                self.file.read_block(section.filter, Kind::Filter)?,
            ))
        };
        match self.cached(section.filter, true, read)? {
            CachedBlock::Filter(filter) => Ok(filter),
            _ => Err(Undecodable.into()),
        }
    }

    /// The data blocks of a section.
    fn section_blocks(&self, layout: &Layout, section: usize) -> Result<Arc<Vec<BlockRef>>, ReadError> {
        let section = match layout {
            Layout::Blocks(blocks) => return Ok(Arc::clone(blocks)),
            Layout::Sections(sections) => sections.get(section).ok_or(Undecodable)?,
        };
        let read = || {
            let index = Block::decode(self.file.read_block(section.index, Kind::BlockIndex)?)?;
            let block = |(first_key, value): KeyValue| {
                let place = Place::decode(&mut Reader(&value?))?;
                let first_key = first_key.into();
                Some(BlockRef { first_key, place })
            };
            let blocks: Option<Vec<BlockRef>> = index.entries()?.into_iter().map(block).collect();
            Ok(CachedBlock::Index(Arc::new(blocks.ok_or(Undecodable)?)))
        };
        match self.cached(section.index, true, read)? {
            CachedBlock::Index(blocks) => Ok(blocks),
            _ => Err(Undecodable.into()),
        }
    }

    /// The value of a key; `Some(None)`: it was removed.
    pub(crate) fn get(self: &Arc<Self>, key: &[u8]) -> Result<Option<Option<Bytes>>, TableError> {
        let (layout, salvages) = self.layout();
        let get = || {
            let Some(section) = layout.section_of(key) else {
                return Ok(None);
            };
            if let Layout::Sections(sections) = &*layout
                && let Some(section) = sections.get(section)
                && !filter::may_contain(&self.filter(section)?, filter::hash(key))
            {
                return Ok(None);
            }
            let blocks = self.section_blocks(&layout, section)?;
            let index = blocks.partition_point(|block| &*block.first_key <= key);
            let Some(block) = index.checked_sub(1).and_then(|index| blocks.get(index)) else {
                return Ok(None);
            };
            Ok(self.data_block(block.place, true)?.get(key)?)
        };
        get().map_err(|error| self.error(error, salvages))
    }

    fn layout(&self) -> (Arc<Layout>, u64) {
        let layout = self.layout.read();
        (Arc::clone(&layout), self.salvages.load(Ordering::Acquire))
    }

    fn error(self: &Arc<Self>, error: ReadError, salvages: u64) -> TableError {
        match error {
            ReadError::Damaged(detail) => TableError::Damaged(DamagedTable {
                table: Arc::clone(self),
                salvages,
                detail,
            }),
            ReadError::Store(error) => TableError::Store(error),
        }
    }

    /// The entries from `start` (inclusive) to `end` (exclusive), ascending, or descending if `reverse`. The cache
    /// keeps the blocks if `fill`.
    pub(crate) fn cursor(
        self: &Arc<Self>,
        start: &[u8],
        end: &[u8],
        reverse: bool,
        fill: bool,
    ) -> Result<TableCursor, TableError> {
        let (layout, salvages) = self.layout();
        let mut cursor = TableCursor {
            table: Arc::clone(self),
            salvages,
            layout,
            bound: if reverse { start } else { end }.to_vec(),
            fill,
            section: 0,
            blocks: Arc::new(Vec::new()),
            block: 0,
            entries: None,
            key: Vec::new(),
            value: None,
            is_valid: false,
        };
        let begun = if reverse {
            cursor.begin_reverse(end)
        } else {
            cursor.begin(start)
        };
        begun.map_err(|error| self.error(error, salvages))?;
        Ok(cursor)
    }

    /// Finds the damaged blocks of a table, which are not read from then on. Returns the gaps that they leave; none if
    /// another reader has found them, and recorded them before this returns.
    ///
    /// # Errors
    ///
    /// Errors of the disk and of `record`.
    pub(crate) fn salvage(
        damage: &DamagedTable,
        keys: Option<(&[u8], &[u8])>,
        record: impl FnOnce(&[Gap]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let table = &damage.table;
        let _salvaging = table.salvaging.lock();
        if table.salvages.load(Ordering::Acquire) != damage.salvages {
            return Ok(());
        }
        let (layout, _) = table.layout();
        let structure = match &*layout {
            Layout::Sections(sections) => sections
                .iter()
                .flat_map(|section| [section.index, section.filter])
                .collect(),
            Layout::Blocks(_) => Vec::new(),
        };
        let known = Known {
            keys,
            structure: &structure,
        };
        let (blocks, gaps) = salvage::blocks(&table.file, &known, &damage.detail)?;
        // Recorded before reads pass over the blocks.
        record(&gaps)?;
        *table.layout.write() = Arc::new(Layout::Blocks(Arc::new(blocks)));
        table.salvages.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.is_obsolete.load(Ordering::Relaxed)
            && let Err(error) = self.file.disk.remove(&self.file.path)
            && error.kind() != ErrorKind::NotFound
        {
            // Opening the store removes it.
            tracing::warn!(file = %self.file.path.display(), %error, "cannot remove an obsolete table");
        }
    }
}

impl Layout {
    fn len(&self) -> usize {
        match self {
            Self::Sections(sections) => sections.len(),
            Self::Blocks(_) => 1,
        }
    }

    /// The section that may have a key.
    fn section_of(&self, key: &[u8]) -> Option<usize> {
        match self {
            Self::Sections(sections) => sections
                .partition_point(|section| section.first_key.as_slice() <= key)
                .checked_sub(1),
            Self::Blocks(_) => Some(0),
        }
    }
}

/// The rest of a data block.
#[derive(Debug)]
enum Entries {
    Forward(BlockCursor),
    /// The last entry is the next one.
    Reverse(Vec<KeyValue>),
}

/// A place in a table.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    salvages: u64,
    layout: Arc<Layout>,
    /// The end of a forward cursor, exclusive; the start of a reverse one, inclusive.
    bound: Vec<u8>,
    fill: bool,
    section: usize,
    blocks: Arc<Vec<BlockRef>>,
    /// Index of the block behind the current one, in its direction: of a reverse cursor, the number of blocks left.
    block: usize,
    entries: Option<Entries>,
    /// The entry of a reverse cursor.
    key: Vec<u8>,
    value: Option<Bytes>,
    is_valid: bool,
}

impl TableCursor {
    fn begin(&mut self, start: &[u8]) -> Result<(), ReadError> {
        if self.layout.len() == 0 {
            return Ok(());
        }
        self.section = self.layout.section_of(start).unwrap_or(0);
        self.blocks = self.table.section_blocks(&self.layout, self.section)?;
        let index = self.blocks.partition_point(|block| &*block.first_key <= start);
        self.block = index.saturating_sub(1);
        if let Some(block) = self.next_block()? {
            self.entries = Some(Entries::Forward(block.seek(start)?));
        }
        self.find_entry()
    }

    fn begin_reverse(&mut self, end: &[u8]) -> Result<(), ReadError> {
        if self.layout.len() == 0 {
            return Ok(());
        }
        self.section = self.layout.section_of(end).unwrap_or(0);
        self.blocks = self.table.section_blocks(&self.layout, self.section)?;
        self.block = self.blocks.partition_point(|block| &*block.first_key < end);
        if let Some(block) = self.previous_block()? {
            let mut entries = block.entries()?;
            entries.truncate(entries.partition_point(|(key, _)| key.as_slice() < end));
            self.entries = Some(Entries::Reverse(entries));
        }
        self.step_back()
    }

    /// The next data block of the table.
    fn next_block(&mut self) -> Result<Option<Block>, ReadError> {
        loop {
            if let Some(block) = self.blocks.get(self.block) {
                self.block += 1;
                return self.table.data_block(block.place, self.fill).map(Some);
            }
            if self.section + 1 >= self.layout.len() {
                return Ok(None);
            }
            self.section += 1;
            self.block = 0;
            self.blocks = self.table.section_blocks(&self.layout, self.section)?;
        }
    }

    fn previous_block(&mut self) -> Result<Option<Block>, ReadError> {
        loop {
            if let Some(index) = self.block.checked_sub(1) {
                self.block = index;
                let block = self.blocks.get(index).ok_or(Undecodable)?;
                return self.table.data_block(block.place, self.fill).map(Some);
            }
            let Some(section) = self.section.checked_sub(1) else {
                return Ok(None);
            };
            self.section = section;
            self.blocks = self.table.section_blocks(&self.layout, section)?;
            self.block = self.blocks.len();
        }
    }

    /// Moves on to the next block while there is no entry, and ends at the bound.
    fn find_entry(&mut self) -> Result<(), ReadError> {
        while let Some(Entries::Forward(cursor)) = &self.entries {
            if cursor.is_valid() {
                self.is_valid = cursor.key() < self.bound.as_slice();
                return Ok(());
            }
            self.entries = match self.next_block()? {
                Some(block) => {
                    let mut cursor = block.first();
                    cursor.advance()?;
                    Some(Entries::Forward(cursor))
                }
                None => None,
            };
        }
        self.is_valid = false;
        Ok(())
    }

    fn step_back(&mut self) -> Result<(), ReadError> {
        while let Some(Entries::Reverse(entries)) = &mut self.entries {
            if let Some((key, value)) = entries.pop() {
                self.is_valid = key.as_slice() >= self.bound.as_slice();
                (self.key, self.value) = (key, value);
                return Ok(());
            }
            self.entries = match self.previous_block()? {
                Some(block) => Some(Entries::Reverse(block.entries()?)),
                None => None,
            };
        }
        self.is_valid = false;
        Ok(())
    }

    /// Moves to the next entry.
    pub(crate) fn advance(&mut self) -> Result<(), TableError> {
        let mut advance = || match &mut self.entries {
            Some(Entries::Forward(cursor)) => {
                cursor.advance()?;
                self.find_entry()
            }
            Some(Entries::Reverse(_)) => self.step_back(),
            None => {
                self.is_valid = false;
                Ok(())
            }
        };
        let advanced = advance();
        advanced.map_err(|error| self.table.error(error, self.salvages))
    }

    /// The key; `None` at the end.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        if !self.is_valid {
            return None;
        }
        match &self.entries {
            Some(Entries::Forward(cursor)) => Some(cursor.key()),
            Some(Entries::Reverse(_)) => Some(&self.key),
            None => None,
        }
    }

    /// The value; `None`: the key was removed.
    pub(crate) fn value(&self) -> Option<Bytes> {
        match &self.entries {
            Some(Entries::Forward(cursor)) => cursor.value(),
            _ => self.value.clone(),
        }
    }
}
