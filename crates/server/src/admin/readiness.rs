//! Readiness: whether the services of the process can serve.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::Shutdown;

/// Whether the process can serve. Clones share it.
///
/// It can once it has started (stores are open, and tables and layout agree with the settings), until it drains,
/// while the stores that it depends on respond.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<State>);

#[derive(Debug, Default)]
struct State {
    has_started: AtomicBool,
    shutdown: Mutex<Option<Shutdown>>,
    /// By the names of stores: whether they can serve.
    stores: Mutex<BTreeMap<String, bool>>,
    notes: Mutex<Notes>,
}

type NoteSource = Box<dyn Fn() -> Vec<String> + Send>;

/// Sources of notes.
#[derive(Default)]
struct Notes(Vec<NoteSource>);

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notes").field(&self.0.len()).finish()
    }
}

impl Readiness {
    /// Not ready from the drain on.
    pub(crate) fn observe(&self, shutdown: &Shutdown) {
        *self.0.shutdown.lock() = Some(shutdown.clone());
    }

    /// All listeners serve.
    pub(crate) fn started(&self) {
        self.0.has_started.store(true, Ordering::Release);
    }

    /// Records whether a store can serve.
    pub(crate) fn set_store(&self, name: &str, serves: bool) {
        self.0.stores.lock().insert(name.to_owned(), serves);
    }

    /// Adds a source of notes: what an operator has to repair although the process serves. It must not block.
    pub fn add_notes(&self, notes: impl Fn() -> Vec<String> + Send + 'static) {
        self.0.notes.lock().0.push(Box::new(notes));
    }

    /// What an operator has to repair although the process serves.
    pub fn notes(&self) -> Vec<String> {
        self.0.notes.lock().0.iter().flat_map(|notes| notes()).collect()
    }

    /// Why the process cannot serve; empty if it can.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.0.has_started.load(Ordering::Acquire) {
            reasons.push("starting: stores are opened and checked".to_owned());
        }
        if self.0.shutdown.lock().as_ref().is_some_and(Shutdown::is_draining) {
            reasons.push("draining: the process ends".to_owned());
        }
        let stores = self.0.stores.lock();
        let failed = stores.iter().filter(|(_, serves)| !**serves);
        reasons
            .extend(failed.map(|(name, _)| format!("the store of table {name} cannot serve, see the log")));
        reasons
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn is_ready_between_start_and_drain_while_stores_serve() {
        let readiness = Readiness::default();
        let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
        readiness.observe(&shutdown);
        assert_eq!(readiness.reasons(), ["starting: stores are opened and checked"]);
        readiness.started();
        readiness.set_store("tsdb", true);
        readiness.add_notes(|| vec!["metrics assign nothing".to_owned()]);
        assert!(readiness.reasons().is_empty());
        assert_eq!(readiness.notes(), ["metrics assign nothing"]);
        readiness.set_store("tsdb", false);
        readiness.set_store("tsdb-uid", true);
        assert_eq!(
            readiness.reasons(),
            ["the store of table tsdb cannot serve, see the log"]
        );
        readiness.set_store("tsdb", true);
        assert!(readiness.reasons().is_empty());
        trigger.shut_down().await;
        assert_eq!(readiness.reasons(), ["draining: the process ends"]);
    }
}
