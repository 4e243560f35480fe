//! An in-memory UID service.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_query::NameDirectory;
use oxtsdb_query::NameError;
use oxtsdb_schema::{Uid, UidKind, UidWidth};

/// Names in the order of their UIDs, which start at 1.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    names: Mutex<HashMap<UidKind, Vec<String>>>,
}

impl Directory {
    /// The UID of a name; assigns one if it has none.
    pub(crate) fn assign(&self, kind: UidKind, name: &str) -> Uid {
        if let Some(uid) = self.find(kind, name) {
            return uid;
        }
        self.names
            .lock()
            .unwrap()
            .entry(kind)
            .or_default()
            .push(name.to_owned());
        self.find(kind, name).unwrap()
    }

    /// All names of a kind.
    pub(crate) fn names_of(&self, kind: UidKind) -> Vec<String> {
        self.names.lock().unwrap().get(&kind).cloned().unwrap_or_default()
    }

    fn find(&self, kind: UidKind, name: &str) -> Option<Uid> {
        let names = self.names.lock().unwrap();
        let index = names.get(&kind)?.iter().position(|known| known == name)?;
        Uid::from_number(index as u64 + 1, UidWidth::DEFAULT).ok()
    }
}

#[async_trait]
impl NameDirectory for Directory {
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        _deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError> {
        Ok(names.iter().map(|(kind, name)| self.find(*kind, name)).collect())
    }

    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        _deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError> {
        let names = self.names_of(kind);
        let name = |uid: &Uid| {
            names
                .get(usize::try_from(uid.number()).ok()?.checked_sub(1)?)
                .map(|name| name.as_str().into())
        };
        Ok(uids.iter().map(name).collect())
    }
}
