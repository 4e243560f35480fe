//! Density estimate: bytes per hour, measured during the scan.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes and hours read so far.
#[derive(Debug)]
pub(in crate::reader) struct Density {
    /// Target size of a slice.
    slice_bytes: u64,
    hours: AtomicUsize,
    bytes: AtomicU64,
}

impl Density {
    /// An estimate before the first read.
    pub(in crate::reader) const fn new(slice_bytes: u64) -> Self {
        Self {
            slice_bytes,
            hours: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Adds bytes that were read.
    pub(in crate::reader) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds hours that were read completely.
    pub(in crate::reader) fn add_hours(&self, hours: usize) {
        self.hours.fetch_add(hours, Ordering::Relaxed);
    }

    /// Slices that an hour is cut into, at most `most`.
    pub(in crate::reader) fn slices_of_an_hour(&self, most: u64) -> u64 {
        let hours = (self.hours.load(Ordering::Relaxed) as u64).max(1);
        let bytes = self.bytes.load(Ordering::Relaxed) / hours;
        (bytes / self.slice_bytes.max(1)).clamp(1, most)
    }

    /// Hours for the next slice; `None` until an hour is complete.
    pub(in crate::reader) fn slice_hours(&self) -> Option<usize> {
        let hours = self.hours.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed).max(1);
        let slice = (self.slice_bytes.saturating_mul(hours as u64) / bytes).max(1);
        (hours > 0).then(|| usize::try_from(slice).unwrap_or(usize::MAX))
    }
}
