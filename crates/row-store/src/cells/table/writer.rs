//! Writes a table file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxtsdb_storage_file::StorageError;
use oxtsdb_storage_file::disk::{Disk, WriteFile};
use oxtsdb_storage_file::varint;

use super::block::BlockWriter;
use super::frame::{self, Kind};
use super::{
    CommitRange, DATA_BYTES, Expiring, FOOTER_MAGIC, HEADER_MAGIC, Properties, SECTION_BLOCKS, StoreId,
    VERSION, filter,
};

/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// A table that is being written, under a temporary name. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct TableWriter {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    path: PathBuf,
    file: Option<Box<dyn WriteFile>>,
    buffer: Vec<u8>,
    /// Bytes before the buffer.
    written: u64,
    data: BlockWriter,
    first_key: Vec<u8>,
    /// First keys and places of the section's data blocks.
    blocks: BlockWriter,
    section_key: Vec<u8>,
    hashes: Vec<u64>,
    sections: BlockWriter,
    properties: Properties,
}

/// Offset and bytes of a block.
type Place = (u64, u64);

impl TableWriter {
    /// Begins a table in a folder.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        folder: &Path,
        store: StoreId,
        commits: CommitRange,
    ) -> Result<Self, StorageError> {
        let path = folder.join(format!("{commits}.tmp"));
        // A failed attempt may have left it.
        drop(disk.remove(&path));
        let file = disk
            .create(&path)
            .map_err(|error| StorageError::io(path.display(), &error))?;
        let mut buffer = HEADER_MAGIC.to_vec();
        buffer.extend_from_slice(&VERSION.to_be_bytes());
        buffer.extend_from_slice(&crc32fast::hash(&buffer).to_be_bytes());
        Ok(Self {
            disk,
            folder: folder.to_owned(),
            path,
            file: Some(file),
            buffer,
            written: 0,
            data: BlockWriter::default(),
            first_key: Vec::new(),
            blocks: BlockWriter::default(),
            section_key: Vec::new(),
            hashes: Vec::new(),
            sections: BlockWriter::default(),
            properties: Properties {
                store,
                commits,
                entries: 0,
                first_key: Vec::new(),
                last_key: Vec::new(),
                expiring: Vec::new(),
            },
        })
    }

    /// Adds a key, greater than all others, with its value, or as removed.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StorageError> {
        if self.data.len() == 0 {
            self.first_key = key.to_vec();
        }
        if self.properties.entries == 0 {
            self.properties.first_key = key.to_vec();
        }
        self.properties.entries += 1;
        self.hashes.push(filter::hash(key));
        self.data.push(key, value);
        if self.data.byte_len() >= DATA_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    /// Notes a column of a family with a time to live.
    pub(crate) fn note_expiring(&mut self, column: Expiring) {
        let known = self
            .properties
            .expiring
            .iter_mut()
            .find(|known| (known.table, known.family) == (column.table, column.family));
        match known {
            Some(known) => {
                known.bytes += column.bytes;
                known.newest_ms = known.newest_ms.max(column.newest_ms);
            }
            None => self.properties.expiring.push(column),
        }
    }

    /// Bytes of the file so far.
    pub(crate) fn byte_len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn end_block(&mut self) -> Result<(), StorageError> {
        if self.data.len() == 0 {
            return Ok(());
        }
        if self.blocks.len() == 0 {
            self.section_key.clone_from(&self.first_key);
        }
        self.properties.last_key = self.data.last_key().to_vec();
        let content = self.data.finish();
        let place = self.write_block(Kind::Data, &content)?;
        self.blocks.push(&self.first_key, Some(&encode_places(&[place])));
        if self.blocks.len() >= SECTION_BLOCKS {
            self.end_section()?;
        }
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), StorageError> {
        if self.blocks.len() == 0 {
            return Ok(());
        }
        let index = self.blocks.finish();
        let index = self.write_block(Kind::BlockIndex, &index)?;
        let filter = filter::build(&std::mem::take(&mut self.hashes));
        let filter = self.write_block(Kind::Filter, &filter)?;
        self.sections
            .push(&self.section_key, Some(&encode_places(&[index, filter])));
        Ok(())
    }

    fn write_block(&mut self, kind: Kind, content: &[u8]) -> Result<Place, StorageError> {
        let offset = self.byte_len();
        frame::encode(&mut self.buffer, kind, content);
        let bytes = self.byte_len() - offset;
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok((offset, bytes))
    }

    fn write(&mut self) -> Result<(), StorageError> {
        if let Some(file) = &mut self.file {
            let written = file.write(&self.buffer);
            written.map_err(|error| StorageError::io(self.path.display(), &error))?;
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the table durable under its name, and returns its path.
    ///
    /// # Errors
    ///
    /// Errors of the disk. The table may be there under its name; a table of the same commits replaces it.
    pub(crate) fn finish(mut self) -> Result<PathBuf, StorageError> {
        self.end_block()?;
        self.end_section()?;
        let sections = self.sections.finish();
        let sections = self.write_block(Kind::SectionIndex, &sections)?;
        let properties = self.properties.encode();
        let properties = self.write_block(Kind::Properties, &properties)?;
        let start = self.buffer.len();
        for (offset, bytes) in [sections, properties] {
            self.buffer.extend_from_slice(&offset.to_be_bytes());
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.buffer.extend_from_slice(&bytes.to_be_bytes());
        }
        self.buffer.extend_from_slice(&FOOTER_MAGIC);
        let crc = crc32fast::hash(self.buffer.get(start..).unwrap_or_default());
        self.buffer.extend_from_slice(&crc.to_be_bytes());
        self.write()?;
        let path = self.folder.join(self.properties.commits.to_string());
        let finished = self.file.as_mut().map_or(Ok(()), |file| file.sync());
        finished
            .and_then(|()| self.disk.rename(&self.path, &path))
            .map_err(|error| StorageError::io(self.path.display(), &error))?;
        self.file = None;
        let synced = self.disk.sync_dir(&self.folder);
        synced.map_err(|error| StorageError::io(self.folder.display(), &error))?;
        Ok(path)
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // If it stays, opening the store removes it.
            drop(self.disk.remove(&self.path));
        }
    }
}

fn encode_places(places: &[Place]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (offset, length) in places {
        varint::put(&mut bytes, *offset);
        varint::put(&mut bytes, *length);
    }
    bytes
}
