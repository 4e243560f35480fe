//! A directory of names for tests, in which names and UIDs need no table.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_schema::{Uid, UidKind, UidWidth};
use parking_lot::Mutex;

use crate::error::NameError;
use crate::names::{NameDirectory, NameGeneration};

/// A directory in which names have the numbers of their UIDs: `host7` and `v7` have UID 7, names without a number UID 1,
/// and UID 7 has the name `v7`.
#[derive(Debug, Default)]
pub struct NumberedNames {
    nameless: Option<Uid>,
    generation: Option<NameGeneration>,
    requested: Mutex<Vec<Vec<Uid>>>,
}

impl NumberedNames {
    /// The same directory, in which a tag value has no name.
    #[must_use]
    pub fn without_name(self, tagv: Uid) -> Self {
        Self {
            nameless: Some(tagv),
            ..self
        }
    }

    /// The same directory, with names that can be kept while it has this generation.
    #[must_use]
    pub fn with_generation(self, generation: NameGeneration) -> Self {
        Self {
            generation: Some(generation),
            ..self
        }
    }

    /// Takes the UIDs that names were requested for, by call.
    pub fn take_requested(&self) -> Vec<Vec<Uid>> {
        std::mem::take(&mut *self.requested.lock())
    }
}

#[async_trait]
impl NameDirectory for NumberedNames {
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        _: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError> {
        let uid = |(_, name): &(UidKind, &str)| {
            let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            let number = if digits.is_empty() {
                1
            } else {
                digits.parse().ok()?
            };
            Uid::from_number(number, UidWidth::DEFAULT).ok()
        };
        Ok(names.iter().map(uid).collect())
    }

    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        _: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError> {
        self.requested.lock().push(uids.to_vec());
        let name = |uid: &Uid| {
            let has_name = kind != UidKind::Tagv || self.nameless != Some(*uid);
            has_name.then(|| Arc::from(format!("v{}", uid.number())))
        };
        Ok(uids.iter().map(name).collect())
    }

    fn generation(&self) -> Option<NameGeneration> {
        self.generation
    }
}
