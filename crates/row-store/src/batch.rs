//! Mutations of many rows in one flat buffer.

use crate::TableName;

/// A family of a [`WriteBatch`], from [`WriteBatch::family`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyId(u8);

impl FamilyId {
    /// The position of the family among [`WriteBatch::families`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Puts and deletes on rows of one table.
///
/// The mutations of one row are atomic and stay in order; the batch as a whole is not atomic
/// (see [`RowStore::write`](crate::RowStore::write)). They are encoded in one buffer, because a server builds
/// millions of them per second:
///
/// ```text
///   ROW            00 | length | key                  the following mutations apply to this row
///   PUT            01 | family | length | qualifier | length | value        at the store's time
///   PUT_AT         02 | family | timestamp (8) | length | qualifier | length | value
///   DELETE_COLUMN  03 | family | length | qualifier           all versions, up to the store's time
///   DELETE_FAMILY  04 | family
///   DELETE_ROW     05
///   DELETE_UP_TO   06 | family | timestamp (8) | length | qualifier         versions not newer than that
/// ```
///
/// A family is one byte, an index of [`WriteBatch::families`]; lengths are varints (7 bits a byte,
/// least significant first); timestamps are big endian.
#[derive(Clone, Debug)]
pub struct WriteBatch {
    table: TableName,
    families: Vec<String>,
    bytes: Vec<u8>,
    rows: usize,
    mutations: usize,
}

const ROW: u8 = 0;
const PUT: u8 = 1;
const PUT_AT: u8 = 2;
const DELETE_COLUMN: u8 = 3;
const DELETE_FAMILY: u8 = 4;
const DELETE_ROW: u8 = 5;
const DELETE_UP_TO: u8 = 6;

impl WriteBatch {
    /// An empty batch for a table.
    pub fn new(table: TableName) -> Self {
        Self {
            table,
            families: Vec::new(),
            bytes: Vec::new(),
            rows: 0,
            mutations: 0,
        }
    }

    /// The table.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// The families of the batch, in the order of their first use.
    pub fn families(&self) -> &[String] {
        &self.families
    }

    /// Number of rows; a key that was begun twice counts twice.
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Number of puts and deletes.
    pub fn mutation_count(&self) -> usize {
        self.mutations
    }

    /// Whether the batch has no mutations.
    pub fn is_empty(&self) -> bool {
        self.mutations == 0
    }

    /// Length of the encoded mutations.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The encoded mutations; see [`WriteBatch`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reserves memory for `bytes` bytes of encoded mutations.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Registers a family for the calls below; the same name returns the same id.
    ///
    /// # Panics
    ///
    /// If the batch has more than 16 families, the most that a table can have.
    pub fn family(&mut self, name: &str) -> FamilyId {
        let index = self
            .families
            .iter()
            .position(|family| family == name)
            .unwrap_or_else(|| {
                assert!(self.families.len() < 16, "a table has at most 16 families");
                self.families.push(name.to_owned());
                self.families.len() - 1
            });
        #[expect(clippy::cast_possible_truncation, reason = "less than 16, as asserted above")]
        FamilyId(index as u8)
    }

    /// Begins a row; the following calls apply to it.
    pub fn row(&mut self, key: &[u8]) -> &mut Self {
        self.rows += 1;
        self.bytes.push(ROW);
        self.bytes_with_length(key);
        self
    }

    /// Puts a value with the timestamp of the store.
    pub fn put(&mut self, family: FamilyId, qualifier: &[u8], value: &[u8]) -> &mut Self {
        self.mutation(PUT, Some(family));
        self.bytes_with_length(qualifier);
        self.bytes_with_length(value);
        self
    }

    /// Puts a value with an explicit timestamp in milliseconds.
    pub fn put_at(
        &mut self,
        family: FamilyId,
        qualifier: &[u8],
        timestamp_ms: i64,
        value: &[u8],
    ) -> &mut Self {
        self.mutation(PUT_AT, Some(family));
        self.bytes.extend_from_slice(&timestamp_ms.to_be_bytes());
        self.bytes_with_length(qualifier);
        self.bytes_with_length(value);
        self
    }

    /// Deletes all versions of a column.
    pub fn delete_column(&mut self, family: FamilyId, qualifier: &[u8]) -> &mut Self {
        self.mutation(DELETE_COLUMN, Some(family));
        self.bytes_with_length(qualifier);
        self
    }

    /// Deletes the versions of a column that are not newer than `timestamp_ms`.
    ///
    /// Applied late or repeatedly, it spares later puts. A subsequent put with an older timestamp may remain
    /// hidden.
    pub fn delete_column_up_to(
        &mut self,
        family: FamilyId,
        qualifier: &[u8],
        timestamp_ms: i64,
    ) -> &mut Self {
        self.mutation(DELETE_UP_TO, Some(family));
        self.bytes.extend_from_slice(&timestamp_ms.to_be_bytes());
        self.bytes_with_length(qualifier);
        self
    }

    /// Deletes all cells of a family in the row.
    pub fn delete_family(&mut self, family: FamilyId) -> &mut Self {
        self.mutation(DELETE_FAMILY, Some(family));
        self
    }

    /// Deletes the row.
    pub fn delete_row(&mut self) -> &mut Self {
        self.mutation(DELETE_ROW, None);
        self
    }

    /// The rows with their mutations, in order.
    pub fn iter(&self) -> impl Iterator<Item = RowMutations<'_>> {
        let mut rest = Reader(&self.bytes);
        std::iter::from_fn(move || if rest.0.is_empty() { None } else { rest.row().ok() })
    }

    fn mutation(&mut self, operation: u8, family: Option<FamilyId>) {
        debug_assert!(self.rows > 0, "begin a row first");
        self.mutations += 1;
        self.bytes.push(operation);
        if let Some(FamilyId(index)) = family {
            self.bytes.push(index);
        }
    }

    fn bytes_with_length(&mut self, bytes: &[u8]) {
        let mut length = bytes.len();
        while length >= 0x80 {
            #[expect(clippy::cast_possible_truncation, reason = "the low seven bits are meant")]
            self.bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        #[expect(clippy::cast_possible_truncation, reason = "less than 0x80 after the loop")]
        self.bytes.push(length as u8);
        self.bytes.extend_from_slice(bytes);
    }
}

/// A row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct RowMutations<'a> {
    /// The row key.
    pub key: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> RowMutations<'a> {
    /// The mutations in order.
    pub fn iter(&self) -> impl Iterator<Item = MutationRef<'a>> + use<'a> {
        let mut reader = Reader(self.bytes);
        std::iter::from_fn(move || reader.mutation().ok().flatten())
    }
}

/// One mutation of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationRef<'a> {
    /// Puts a value.
    Put {
        /// Where.
        family: FamilyId,
        /// Where in the family.
        qualifier: &'a [u8],
        /// The cell's timestamp in milliseconds; `None`: the time of the store.
        timestamp_ms: Option<i64>,
        /// The value.
        value: &'a [u8],
    },
    /// Deletes versions of a column.
    DeleteColumn {
        /// Where.
        family: FamilyId,
        /// Where in the family.
        qualifier: &'a [u8],
        /// The newest version to delete, its timestamp in milliseconds; `None`: the time of the store, and
        /// so all versions.
        up_to_ms: Option<i64>,
    },
    /// Deletes a family in the row.
    DeleteFamily {
        /// The family.
        family: FamilyId,
    },
    /// Deletes the row.
    DeleteRow,
}

/// The remaining encoded bytes. An error means that they are not valid mutations.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next row and the extent of its mutations.
    fn row(&mut self) -> Result<RowMutations<'a>, ()> {
        if self.byte()? != ROW {
            return Err(());
        }
        let key = self.bytes_with_length()?;
        let all = self.0;
        while self.mutation()?.is_some() {}
        Ok(RowMutations {
            key,
            bytes: &all[..all.len() - self.0.len()],
        })
    }

    /// The next mutation of the row; `None` at the end of the row.
    fn mutation(&mut self) -> Result<Option<MutationRef<'a>>, ()> {
        let Some(operation) = self.0.first().copied().filter(|operation| *operation != ROW) else {
            return Ok(None);
        };
        self.0 = &self.0[1..];
        Ok(Some(match operation {
            PUT | PUT_AT => MutationRef::Put {
                family: FamilyId(self.byte()?),
                timestamp_ms: (operation == PUT_AT).then(|| self.timestamp()).transpose()?,
                qualifier: self.bytes_with_length()?,
                value: self.bytes_with_length()?,
            },
            DELETE_COLUMN | DELETE_UP_TO => MutationRef::DeleteColumn {
                family: FamilyId(self.byte()?),
                up_to_ms: (operation == DELETE_UP_TO)
                    .then(|| self.timestamp())
                    .transpose()?,
                qualifier: self.bytes_with_length()?,
            },
            DELETE_FAMILY => MutationRef::DeleteFamily {
                family: FamilyId(self.byte()?),
            },
            DELETE_ROW => MutationRef::DeleteRow,
            _ => return Err(()),
        }))
    }

    fn byte(&mut self) -> Result<u8, ()> {
        let (first, rest) = self.0.split_first().ok_or(())?;
        self.0 = rest;
        Ok(*first)
    }

    fn timestamp(&mut self) -> Result<i64, ()> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(())?;
        self.0 = rest;
        Ok(i64::from_be_bytes(*bytes))
    }

    fn bytes_with_length(&mut self) -> Result<&'a [u8], ()> {
        let mut length = 0_usize;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(())?;
                self.0 = rest;
                return Ok(bytes);
            }
        }
        Err(())
    }
}
