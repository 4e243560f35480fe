//! The tables of a store, and the file that defines them.
//!
//! ```text
//!   "oxtsdb tables\n" | version (1) | crc (4) | tables
//!   table    id (2) | length | name | families (1) | family ...
//!   family   length | name | versions | ttl in ms + 1, or 0
//! ```
//!
//! Numbers without a size are varints. Ids are never reused, because the keys of cells begin with them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::read_all;
use oxtsdb_storage_file::varint::{self, Reader};
use parking_lot::{Mutex, RwLock};

use super::folder::{io_error, replace_file};
use crate::{FamilyDef, StoreError, TableDef, TableName, rules};

const MAGIC: &[u8] = b"oxtsdb tables\n";
const VERSION: u8 = 1;
/// A longer file is not read.
const MAX_BYTES: u64 = 64 << 20;

/// An open table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) id: u16,
    pub(super) def: TableDef,
    pub(super) families: Arc<[String]>,
    /// Maximum versions of each family.
    pub(super) max_versions: [u32; 16],
}

impl Table {
    fn new(id: u16, def: TableDef) -> Self {
        let mut max_versions = [1; 16];
        for (kept, family) in max_versions.iter_mut().zip(&def.families) {
            *kept = family.max_versions;
        }
        Self {
            id,
            families: def.families.iter().map(|family| family.name.clone()).collect(),
            def,
            max_versions,
        }
    }

    /// For each family, the oldest timestamp that has not expired.
    pub(super) fn oldest_ms(&self, now_ms: i64) -> [i64; 16] {
        let mut oldest_ms = [i64::MIN; 16];
        for (oldest, family) in oldest_ms.iter_mut().zip(&self.def.families) {
            *oldest = rules::oldest_kept_ms(family.ttl, now_ms);
        }
        oldest_ms
    }
}

/// The tables of a store.
#[derive(Debug)]
pub(super) struct Catalog {
    disk: Arc<dyn Disk>,
    file: PathBuf,
    tables: RwLock<BTreeMap<TableName, Arc<Table>>>,
    /// Held while the file is rewritten.
    changing: Mutex<()>,
}

impl Catalog {
    /// Reads the file; without a file there are no tables.
    pub(super) fn open(disk: Arc<dyn Disk>, file: PathBuf) -> Result<Self, StoreError> {
        let tables = match read_all(&*disk, &file, MAX_BYTES) {
            Ok(bytes) => decode(&bytes).map_err(|detail| StoreError::Corrupt {
                place: file.display().to_string(),
                detail: detail.to_owned(),
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io_error(&file, &error)),
        };
        let tables = tables
            .into_iter()
            .map(|(id, def)| (def.name.clone(), Arc::new(Table::new(id, def))))
            .collect();
        Ok(Self {
            disk,
            file,
            tables: RwLock::new(tables),
            changing: Mutex::new(()),
        })
    }

    /// Creates a table; `false` if it exists with the same definition.
    pub(super) fn create(&self, def: &TableDef) -> Result<bool, StoreError> {
        rules::check_table(def)?;
        let _changing = self.changing.lock();
        let mut tables = self.tables.read().clone();
        if let Some(existing) = tables.get(&def.name) {
            return rules::check_same_table(&existing.def, def).map(|()| false);
        }
        let last = tables.values().map(|table| table.id).max().unwrap_or(0);
        let id = last.checked_add(1).ok_or_else(|| StoreError::Invalid {
            detail: format!(
                "the store has {} tables, at most {} are allowed",
                tables.len(),
                u16::MAX
            ),
        })?;
        tables.insert(def.name.clone(), Arc::new(Table::new(id, def.clone())));
        replace_file(
            &*self.disk,
            &self.file,
            &encode(tables.values().map(|table| (table.id, &table.def))),
        )?;
        *self.tables.write() = tables;
        Ok(true)
    }

    pub(super) fn table(&self, name: &TableName) -> Result<Arc<Table>, StoreError> {
        self.tables
            .read()
            .get(name)
            .cloned()
            .ok_or_else(|| StoreError::NoSuchTable { table: name.clone() })
    }

    /// All tables, by id.
    pub(super) fn by_id(&self) -> BTreeMap<u16, Arc<Table>> {
        self.tables
            .read()
            .values()
            .map(|table| (table.id, table.clone()))
            .collect()
    }

    /// All definitions, by name.
    pub(super) fn definitions(&self) -> Vec<TableDef> {
        self.tables
            .read()
            .values()
            .map(|table| table.def.clone())
            .collect()
    }
}

fn encode<'a>(tables: impl Iterator<Item = (u16, &'a TableDef)>) -> Vec<u8> {
    let mut body = Vec::new();
    let text = |body: &mut Vec<u8>, text: &str| {
        varint::put(body, text.len() as u64);
        body.extend_from_slice(text.as_bytes());
    };
    for (id, def) in tables {
        body.extend_from_slice(&id.to_be_bytes());
        text(
            &mut body,
            &format!("{}:{}", def.name.namespace(), def.name.name()),
        );
        varint::put(&mut body, def.families.len() as u64);
        for family in &def.families {
            text(&mut body, &family.name);
            varint::put(&mut body, u64::from(family.max_versions));
            let ttl_ms = family.ttl.map_or(0, |ttl| {
                u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX - 1) + 1
            });
            varint::put(&mut body, ttl_ms);
        }
    }
    [MAGIC, &[VERSION], &crc32fast::hash(&body).to_be_bytes(), &body].concat()
}

fn decode(bytes: &[u8]) -> Result<Vec<(u16, TableDef)>, &'static str> {
    let mut reader = Reader(
        bytes
            .strip_prefix(MAGIC)
            .ok_or("not a file of table definitions")?,
    );
    if reader.byte() != Some(VERSION) {
        return Err("unknown version of table definitions");
    }
    let crc = reader.array().map(u32::from_be_bytes);
    if crc != Some(crc32fast::hash(reader.0)) {
        return Err("checksum does not match");
    }
    let mut tables = Vec::new();
    while !reader.0.is_empty() {
        tables.push(decode_table(&mut reader).ok_or("cannot be decoded")?);
    }
    Ok(tables)
}

fn decode_table(reader: &mut Reader<'_>) -> Option<(u16, TableDef)> {
    let text = |reader: &mut Reader<'_>| {
        let length = reader.length()?;
        String::from_utf8(reader.bytes(length)?.to_vec()).ok()
    };
    let id = u16::from_be_bytes(reader.array()?);
    let name = text(reader)?.parse().ok()?;
    let mut families = Vec::new();
    for _ in 0..reader.number()? {
        families.push(FamilyDef {
            name: text(reader)?,
            max_versions: u32::try_from(reader.number()?).ok()?,
            ttl: reader.number()?.checked_sub(1).map(Duration::from_millis),
        });
    }
    let def = TableDef { name, families };
    rules::check_table(&def).ok()?;
    Some((id, def))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use oxtsdb_storage_file::disk::real::RealDisk;

    use super::*;

    #[test]
    fn table_definitions_survive_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("TABLES");
        let family = FamilyDef {
            name: "f".to_owned(),
            max_versions: 7,
            ttl: Some(Duration::from_millis(90_000)),
        };
        let one = TableDef {
            name: "ns:one".parse().unwrap(),
            families: vec![family, FamilyDef::new("g")],
        };
        let two = TableDef::new("two".parse().unwrap(), &["t"]);
        {
            let catalog = Catalog::open(Arc::new(RealDisk), file.clone()).unwrap();
            assert!(catalog.create(&two).unwrap());
            assert!(catalog.create(&one).unwrap());
            assert!(!catalog.create(&one).unwrap());
        }
        let catalog = Catalog::open(Arc::new(RealDisk), file.clone()).unwrap();
        assert_eq!(catalog.definitions(), [two, one.clone()]);
        assert_eq!(catalog.table(&one.name).unwrap().id, 2);

        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
        let error = Catalog::open(Arc::new(RealDisk), file).unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { place, .. } if place.ends_with("TABLES")),
            "{error}"
        );
    }
}
