//! The journal: all committed points that are in no part yet.
//!
//! ```text
//!   content of a frame   count | new series, each: number | key length | key
//!                        count | batches, each: points | length | encoded points, see `batch`
//! ```
//!
//! Counts and lengths are varints, numbers of series zigzag varints of the difference to the previous one. A frame is a
//! group of commits: the series that they use for the first time, then their points. Segments and frames are defined in
//! [`oxtsdb_storage_file::journal`].

mod batch;
mod content;

use std::path::Path;
use std::sync::Arc;

pub use batch::EncodedBatch;
pub use content::Replayed;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::journal;
pub use oxtsdb_storage_file::journal::JournalFiles;
pub use oxtsdb_storage_file::journal::JournalOptions;

use crate::{PointBatch, PointStoreError, SeriesNumber};

/// How a journal of points is opened that other files of the store say nothing about.
pub const OPTIONS: JournalOptions = JournalOptions {
    magic: *b"oxtsdbpj",
    cut: None,
    has_list: false,
    accept_losses: false,
};

/// Counts of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Frames.
    pub frames: u64,
    /// Points in the frames.
    pub points: u64,
    /// Bytes of an interrupted write that were cut off.
    pub cut_bytes: u64,
    /// Acknowledged frames that are lost, if [`JournalOptions::accept_losses`] is set.
    pub losses: Vec<PointStoreError>,
}

/// The end of the journal, where frames are appended.
#[derive(Debug)]
pub struct Journal(journal::Journal);

impl Journal {
    /// Opens the journal in a folder, which is created if it is absent, and passes the content of its frames to
    /// `apply`, in order. It is durable then, except on a full disk: there it is as soon as a later frame is.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] for damage other than an interrupted write at the end, and for lost frames;
    /// [`PointStoreError::Io`] and [`PointStoreError::Full`]; any error of `apply`.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
        apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), PointStoreError>,
    ) -> Result<(Self, Recovered), PointStoreError> {
        let mut scratch = PointBatch::default();
        let mut points = 0;
        let (mut journal, recovered) = journal::Journal::open(disk, folder, options, &mut |_, bytes| {
            points += content::replay(bytes, &mut scratch, apply)?;
            Ok(())
        })?;
        match journal.make_durable().map_err(PointStoreError::from) {
            // Reads go on.
            Err(error @ PointStoreError::Full(_)) => {
                tracing::warn!(%error, "recovered points are not durable until the disk has space");
            }
            made => made?,
        }
        let recovered = Recovered {
            frames: recovered.frames,
            points,
            cut_bytes: recovered.cut_bytes,
            losses: recovered.losses.into_iter().map(PointStoreError::from).collect(),
        };
        Ok((Self(journal), recovered))
    }

    /// Creates an empty journal.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn create(disk: Arc<dyn Disk>, folder: &Path) -> Result<(), PointStoreError> {
        Self::open(disk, folder, OPTIONS, &mut |_| Ok(())).map(drop)
    }

    /// Writes a frame with new series, by number, and the points of batches. It is durable after [`Journal::sync`].
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] if the frame would have 4 GiB, without effect. [`PointStoreError::Io`] and
    /// [`PointStoreError::Full`]: this frame and all others since the last sync are lost. They may be present when
    /// the journal is opened again, unless another frame is appended.
    pub fn append(
        &mut self,
        new_series: &[(SeriesNumber, impl AsRef<[u8]>)],
        batches: &[EncodedBatch],
    ) -> Result<(), PointStoreError> {
        self.0
            .append(|buffer| content::encode(buffer, new_series, batches))?;
        Ok(())
    }

    /// Makes all frames durable.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Io`] and [`PointStoreError::Full`], as [`Journal::append`].
    pub fn sync(&mut self) -> Result<(), PointStoreError> {
        Ok(self.0.sync()?)
    }

    /// Makes all frames durable and ends the segment, so that the next frame begins another one. Returns the number of
    /// the last ended segment.
    ///
    /// # Errors
    ///
    /// As [`Journal::sync`].
    pub fn rotate(&mut self) -> Result<u64, PointStoreError> {
        // Also frames that were recovered: a manifest will say that they were there.
        self.0.make_durable()?;
        Ok(self.0.rotate()?)
    }

    /// The sequence number of the last durable frame; 0 if there is none.
    pub const fn durable(&self) -> u64 {
        self.0.durable()
    }

    /// Bytes since the last [`Journal::rotate`]; before, also those that were recovered.
    pub const fn byte_len(&self) -> u64 {
        self.0.byte_len()
    }

    /// The files, which another thread may remove.
    pub fn files(&self) -> Arc<JournalFiles> {
        self.0.files()
    }
}
