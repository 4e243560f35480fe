//! Announces changes of metadata to the text search of this process.
//!
//! Announcing never waits. A subscriber that does not keep up loses announcements and is informed of the loss; it then
//! reads the tables again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use oxtsdb_schema::{Tsuid, Uid, UidKind};
use tokio::sync::mpsc;

/// A subject of metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The document of a UID, and its name.
    Uid(UidKind, Uid),
    /// The document of a series.
    Series(Tsuid),
    /// An annotation, of a series or global.
    Annotation(Option<Tsuid>, i64),
}

/// The announcements. Cloning is cheap, clones share the subscriber.
#[derive(Clone, Debug, Default)]
pub struct MetaChanges(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    subscriber: OnceLock<mpsc::Sender<Subject>>,
    has_lost: AtomicBool,
}

impl MetaChanges {
    /// Subscribes to changes from now on; at most `capacity` of them wait. `None`: there is a subscriber already.
    pub(crate) fn subscribe(&self, capacity: usize) -> Option<mpsc::Receiver<Subject>> {
        let (sender, receiver) = mpsc::channel(capacity);
        self.0.subscriber.set(sender).ok().map(|()| receiver)
    }

    /// Announces that a document may have changed. Call this after the change.
    pub(crate) fn announce(&self, subject: impl FnOnce() -> Subject) {
        let Some(subscriber) = self.0.subscriber.get() else {
            return;
        };
        if subscriber.try_send(subject()).is_err() {
            self.announce_unknown();
        }
    }

    /// Announces changes of unknown documents.
    pub(crate) fn announce_unknown(&self) {
        self.0.has_lost.store(true, Ordering::Release);
    }

    /// Whether there were changes of unknown documents since the last call.
    pub(crate) fn take_unknown(&self) -> bool {
        self.0.has_lost.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_do_not_fit_are_unknown() {
        let changes = MetaChanges::default();
        let global = |start_ms| move || Subject::Annotation(None, start_ms);
        changes.announce(global(0));
        assert!(!changes.take_unknown(), "there is no subscriber");
        let mut received = changes.subscribe(1).unwrap();
        assert!(changes.subscribe(1).is_none());
        changes.announce(global(1));
        changes.announce(global(2));
        assert_eq!(received.try_recv(), Ok(global(1)()));
        received.try_recv().unwrap_err();
        assert!(changes.take_unknown());
        assert!(!changes.take_unknown());
    }
}
