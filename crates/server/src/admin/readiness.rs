//! Readiness: whether the services of the process can serve.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oxtsdb_row_store::StoreError;
use parking_lot::Mutex;

use crate::Shutdown;
use crate::probe::StoreHealth;

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
    /// By their tables: the last health of stores.
    stores: Mutex<BTreeMap<String, StoreHealth>>,
    /// The data folder and a separator: reasons name files from there, because the admin listener has no rights.
    data_dir: Mutex<Option<String>>,
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

    /// Reasons name files by their paths in this folder.
    pub(crate) fn set_data_dir(&self, data_dir: &Path) {
        // With a separator at its end.
        *self.0.data_dir.lock() = Some(data_dir.join("").display().to_string());
    }

    /// Records the health of the store of a table.
    pub(crate) fn set_store(&self, table: &str, health: StoreHealth) {
        self.0.stores.lock().insert(table.to_owned(), health);
    }

    /// Adds a source of notes: what an operator has to repair although the process serves. It must not block.
    pub fn add_notes(&self, notes: impl Fn() -> Vec<String> + Send + 'static) {
        self.0.notes.lock().0.push(Box::new(notes));
    }

    /// Notes on repairs that an operator has to make although the process serves.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.0.notes.lock().0.iter().flat_map(|notes| notes()).collect();
        let stores = self.0.stores.lock();
        notes.extend(stores.iter().filter_map(|(table, health)| match health {
            StoreHealth::RejectsWrites(error) => {
                let error = self.shown(error);
                Some(format!(
                    "the store of table {table} rejects writes and serves reads: {error}"
                ))
            }
            StoreHealth::Serves | StoreHealth::Fails(_) => None,
        }));
        notes
    }

    /// The text of an error, without the data folder.
    fn shown(&self, error: &StoreError) -> String {
        let text = error.to_string();
        match &*self.0.data_dir.lock() {
            Some(data_dir) => text.replace(data_dir, ""),
            None => text,
        }
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
        reasons.extend(stores.iter().filter_map(|(table, health)| match health {
            StoreHealth::Fails(error) => Some(format!("the store of table {table}: {}", self.shown(error))),
            StoreHealth::Serves | StoreHealth::RejectsWrites(_) => None,
        }));
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
        readiness.set_store("tsdb", StoreHealth::Serves);
        readiness.add_notes(|| vec!["metrics assign nothing".to_owned()]);
        assert!(readiness.reasons().is_empty());
        assert_eq!(readiness.notes(), ["metrics assign nothing"]);
        let failed = StoreError::Io {
            place: "/d/uid/journal/0000000003.journal".to_owned(),
            detail: "Input/output error (os error 5)".to_owned(),
        };
        readiness.set_data_dir(Path::new("/d"));
        readiness.set_store("tsdb-uid", StoreHealth::Fails(failed));
        assert_eq!(
            readiness.reasons(),
            ["the store of table tsdb-uid: uid/journal/0000000003.journal: Input/output error (os error 5)"]
        );
        let full = StoreError::Full {
            detail: "5 bytes are free, 9 are needed".to_owned(),
        };
        readiness.set_store("tsdb-uid", StoreHealth::RejectsWrites(full));
        assert!(readiness.reasons().is_empty());
        assert_eq!(
            readiness.notes()[1..],
            [
                "the store of table tsdb-uid rejects writes and serves reads: no space left: 5 bytes are free, 9 are needed"
            ]
        );
        readiness.set_store("tsdb-uid", StoreHealth::Serves);
        assert_eq!(readiness.notes().len(), 1);
        trigger.shut_down().await;
        assert_eq!(readiness.reasons(), ["draining: the process ends"]);
    }
}
