//! One ordered view of memtables and tables: of equal keys the newest source wins.

use bytes::Bytes;

use super::memtable::MemtableCursor;
use super::table::{TableCursor, TableError};

/// A memtable or a table.
pub(super) enum Source<'a> {
    Memory(MemtableCursor<'a>),
    Table(Box<TableCursor>),
}

impl Source<'_> {
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Memory(cursor) => cursor.key(),
            Self::Table(cursor) => cursor.key(),
        }
    }

    fn value(&self) -> Option<Bytes> {
        match self {
            Self::Memory(cursor) => cursor.value(),
            Self::Table(cursor) => cursor.value(),
        }
    }

    fn advance(&mut self) -> Result<(), TableError> {
        match self {
            Self::Memory(cursor) => cursor.advance(),
            Self::Table(cursor) => cursor.advance()?,
        }
        Ok(())
    }
}

/// The keys of all sources.
pub(super) struct Merge<'a> {
    /// Newest first.
    sources: Vec<Source<'a>>,
    /// Indexes of the sources that have not ended, by key, then newest first. The last one is the next.
    order: Vec<usize>,
    reverse: bool,
    keeps_removed: bool,
    key: Vec<u8>,
    value: Option<Bytes>,
}

impl<'a> Merge<'a> {
    /// Merges sources, newest first. Removed keys are passed over unless `keeps_removed`.
    pub(super) fn new(sources: Vec<Source<'a>>, reverse: bool, keeps_removed: bool) -> Self {
        let mut merge = Self {
            order: Vec::with_capacity(sources.len()),
            sources,
            reverse,
            keeps_removed,
            key: Vec::new(),
            value: None,
        };
        for index in 0..merge.sources.len() {
            merge.insert(index);
        }
        merge
    }

    /// Whether source `a` comes after source `b`.
    fn is_behind(&self, a: usize, b: usize) -> bool {
        let key = |index: usize| self.sources.get(index).and_then(Source::key);
        let order = key(a).cmp(&key(b));
        let order = if self.reverse { order.reverse() } else { order };
        order.then(a.cmp(&b)).is_gt()
    }

    /// Inserts a source by its current key, unless it has ended.
    fn insert(&mut self, index: usize) {
        if self.sources.get(index).and_then(Source::key).is_none() {
            return;
        }
        // A source usually stays the next one.
        let mut place = self.order.len();
        while let Some(other) = place.checked_sub(1).and_then(|before| self.order.get(before))
            && self.is_behind(index, *other)
        {
            place -= 1;
        }
        self.order.insert(place, index);
    }

    fn advance_next(&mut self) -> Result<(), TableError> {
        if let Some(index) = self.order.pop() {
            if let Some(source) = self.sources.get_mut(index) {
                source.advance()?;
            }
            self.insert(index);
        }
        Ok(())
    }

    /// Moves to the next key; `false` if there is none.
    pub(super) fn advance(&mut self) -> Result<bool, TableError> {
        loop {
            let Some(source) = self.order.last().and_then(|next| self.sources.get(*next)) else {
                return Ok(false);
            };
            self.key.clear();
            self.key.extend_from_slice(source.key().unwrap_or_default());
            self.value = source.value();
            self.advance_next()?;
            // Older versions of the key.
            while let Some(source) = self.order.last().and_then(|next| self.sources.get(*next))
                && source.key() == Some(&self.key)
            {
                self.advance_next()?;
            }
            if self.value.is_some() || self.keeps_removed {
                return Ok(true);
            }
        }
    }

    /// Whether removed keys are returned, too.
    pub(super) const fn keeps_removed(&self) -> bool {
        self.keeps_removed
    }

    /// The current key.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current value; `None`: the key was removed.
    pub(super) const fn value(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }
}
