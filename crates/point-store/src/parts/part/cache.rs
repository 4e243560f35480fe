//! Verified pages and open files of all parts, bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::page::{BlockPage, TimesPage};
use crate::PointStoreError;
use oxtsdb_storage_file::disk::ReadFile;

/// Memory of an entry without its page.
const ENTRY_BYTES: u64 = 100;

/// The pages and open files of the parts that share it.
#[derive(Debug)]
pub struct PageCache {
    pages: Cache<PageKey, CachedPage, Weight>,
    files: Cache<u64, Arc<dyn ReadFile>>,
    next_part: AtomicU64,
}

/// A page of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub(super) part: u64,
    pub(super) is_times: bool,
    pub(super) index: usize,
}

#[derive(Clone, Debug)]
pub(super) enum CachedPage {
    Blocks(Arc<BlockPage>),
    Times(Arc<TimesPage>),
}

#[derive(Clone, Copy, Debug)]
struct Weight;

impl Weighter<PageKey, CachedPage> for Weight {
    fn weight(&self, _: &PageKey, page: &CachedPage) -> u64 {
        let bytes = match page {
            CachedPage::Blocks(page) => page.byte_len(),
            CachedPage::Times(page) => page.byte_len(),
        };
        ENTRY_BYTES + bytes as u64
    }
}

impl PageCache {
    /// A cache of `bytes` bytes of pages and `files` open files.
    pub fn new(bytes: u64, files: usize) -> Self {
        let pages = usize::try_from(bytes / super::PAGE_BYTES as u64).unwrap_or(usize::MAX);
        Self {
            pages: Cache::with_weighter(pages, bytes, Weight),
            files: Cache::new(files),
            next_part: AtomicU64::new(0),
        }
    }

    /// Bytes of memory.
    pub fn byte_len(&self) -> u64 {
        self.pages.weight()
    }

    /// A number for a part that no other part of this cache had.
    pub(super) fn next_part(&self) -> u64 {
        self.next_part.fetch_add(1, Ordering::Relaxed)
    }

    /// A page, read by `read` if it is not cached. Concurrent readers of a page read it once.
    pub(super) fn page(
        &self,
        key: PageKey,
        read: impl FnOnce() -> Result<CachedPage, PointStoreError>,
    ) -> Result<CachedPage, PointStoreError> {
        self.pages.get_or_insert_with(&key, read)
    }

    /// A page, if it is cached.
    pub(super) fn cached(&self, key: PageKey) -> Option<CachedPage> {
        self.pages.get(&key)
    }

    /// An open file.
    pub(super) fn file(
        &self,
        part: u64,
        open: impl FnOnce() -> Result<Arc<dyn ReadFile>, PointStoreError>,
    ) -> Result<Arc<dyn ReadFile>, PointStoreError> {
        self.files.get_or_insert_with(&part, open)
    }

    /// Removes a page.
    pub(super) fn remove_page(&self, key: PageKey) {
        self.pages.remove(&key);
    }

    /// Closes a file.
    pub(super) fn remove_file(&self, part: u64) {
        self.files.remove(&part);
    }
}
