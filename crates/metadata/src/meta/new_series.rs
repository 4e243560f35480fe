//! Announces series with newly created metadata to subscribers in this process.
//!
//! Announcing never waits: a subscriber that does not keep up loses announcements, which are counted. Whatever is
//! derived from them is repaired by a pass over table `tsdb-meta` (`tsdb uid treesync`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_schema::Tsuid;
use parking_lot::RwLock;
use tokio::sync::mpsc;
use tracing::warn;

/// A series with a `ts_meta` cell that was stored for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSeries {
    /// The series.
    pub tsuid: Tsuid,
    /// `created` of its document, in seconds since the epoch.
    pub(crate) created_seconds: i64,
}

/// The announcements. Cloning is cheap, clones share the subscribers.
#[derive(Clone, Debug, Default)]
pub struct NewSeriesFeed(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    subscribers: RwLock<Vec<mpsc::Sender<NewSeries>>>,
    lost: AtomicU64,
}

impl NewSeriesFeed {
    /// Subscribes to what is announced from now on. At most `capacity` announcements wait for the subscriber; those
    /// beyond are lost. Dropping the receiver ends the subscription.
    pub fn subscribe(&self, capacity: usize) -> mpsc::Receiver<NewSeries> {
        let (sender, receiver) = mpsc::channel(capacity);
        self.0.subscribers.write().push(sender);
        receiver
    }

    /// Announces series. Call this when their documents are stored.
    pub(crate) fn announce(&self, series: impl IntoIterator<Item = NewSeries>) {
        let subscribers = self.0.subscribers.read();
        if subscribers.is_empty() {
            return;
        }
        let (mut lost, mut has_closed) = (0, false);
        for new in series {
            for subscriber in subscribers.iter() {
                match subscriber.try_send(new.clone()) {
                    Ok(()) => {}
                    Err(mpsc::error::TrySendError::Full(_)) => lost += 1,
                    Err(mpsc::error::TrySendError::Closed(_)) => has_closed = true,
                }
            }
        }
        drop(subscribers);
        if has_closed {
            self.0
                .subscribers
                .write()
                .retain(|subscriber| !subscriber.is_closed());
        }
        if lost > 0 && self.0.lost.fetch_add(lost, Ordering::Relaxed) == 0 {
            warn!(
                lost,
                "announcements of new series were lost; run `tsdb uid treesync`"
            );
        }
    }

    /// Announcements that subscribers did not take in time, since the start.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidths;

    use super::*;

    fn series(number: u8) -> NewSeries {
        NewSeries {
            tsuid: Tsuid::from_bytes(&[0, 0, 1, 0, 0, 1, 0, 0, number], &UidWidths::default()).unwrap(),
            created_seconds: i64::from(number),
        }
    }

    #[test]
    fn a_full_subscriber_loses_announcements_and_others_do_not() {
        let feed = NewSeriesFeed::default();
        feed.announce([series(1)]);
        let (mut small, mut large) = (feed.subscribe(1), feed.subscribe(10));
        feed.announce([series(2), series(3)]);
        assert_eq!(feed.lost(), 1);
        assert_eq!(small.try_recv(), Ok(series(2)));
        small.try_recv().unwrap_err();
        assert_eq!(
            (large.try_recv(), large.try_recv()),
            (Ok(series(2)), Ok(series(3)))
        );
        drop(small);
        feed.announce([series(4)]);
        assert_eq!(feed.lost(), 1, "a closed subscription loses nothing");
        assert_eq!(large.try_recv(), Ok(series(4)));
    }
}
