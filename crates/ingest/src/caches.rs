//! Drops what is cached of names and series.

use super::writer::Writer;

impl Writer {
    /// Forgets the names, UIDs and series that are cached by this process and by the UID service. What is needed is
    /// read again.
    pub async fn drop_caches(&self) {
        self.uids().drop_caches().await;
        if let Some(index) = self.index() {
            index.drop_lists();
        }
    }
}
