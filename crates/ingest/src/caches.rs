//! Drops cached names and series.

use super::writer::Writer;

impl Writer {
    /// Drops the names, UIDs and series that this process and the UID service have cached. They are read again when
    /// needed.
    pub async fn drop_caches(&self) {
        self.uids().drop_caches().await;
        if let Some(index) = self.index() {
            index.drop_lists();
        }
    }
}
