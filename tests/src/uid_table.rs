//! The content of a UID table, and checks of its consistency.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use oxtsdb_schema::UidKind;

use crate::stored::{Column, Stored};

/// A table of UIDs, as it is stored. Kinds are OpenTSDB's words `metrics`, `tagk`, `tagv`.
#[derive(Debug, Default)]
pub struct UidTable {
    /// Name to UID.
    pub forward: BTreeMap<(String, String), u64>,
    /// UID to name.
    pub reverse: BTreeMap<(String, u64), String>,
    /// Highest assigned UID.
    pub counters: BTreeMap<String, u64>,
}

impl UidTable {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// HBase's, or a cell that no UID table has.
    pub async fn read(stored: &Stored, table: &str) -> anyhow::Result<Self> {
        let mut read = Self::default();
        for (column, value) in stored.cells(table).await? {
            read.add(&column, &value)
                .with_context(|| format!("{column:?} = {value:?}"))?;
        }
        Ok(read)
    }

    fn add(&mut self, (row, family, qualifier): &Column, value: &[u8]) -> anyhow::Result<()> {
        let kind = UidKind::from_qualifier(qualifier).context("no kind of UID")?;
        let kind = kind.to_string();
        match family.as_str() {
            "id" if row == &[0] => {
                self.counters.insert(kind, number(value)?);
            }
            "id" => {
                self.forward.insert((kind, text(row)), number(value)?);
            }
            "name" => {
                self.reverse.insert((kind, number(row)?), text(value));
            }
            _ => anyhow::bail!("no family of a UID table"),
        }
        Ok(())
    }

    /// Checks that each UID has one name, that each name's UID maps back to it, and that no counter is behind.
    /// (That a name has one UID follows from the table's keys.)
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut names = BTreeMap::new();
        for ((kind, name), uid) in &self.forward {
            if let Some(other) = names.insert((kind, uid), name) {
                anyhow::bail!("{kind} UID {uid} has two names, `{other}` and `{name}`");
            }
            let back = self.reverse.get(&(kind.clone(), *uid));
            ensure!(
                back == Some(name),
                "{kind} `{name}` has UID {uid}, which leads to {back:?}"
            );
            let counter = self.counters.get(kind).copied().unwrap_or_default();
            ensure!(
                *uid <= counter,
                "{kind} `{name}` has UID {uid}, the counter is at {counter}"
            );
        }
        Ok(())
    }

    /// Returns reverse mappings of names that have another UID or none: remains of lost races and crashes.
    pub fn orphans(&self) -> BTreeSet<(String, u64)> {
        let is_orphan = |((kind, uid), name): &(&(String, u64), &String)| {
            self.forward.get(&((*kind).clone(), (*name).clone())) != Some(uid)
        };
        self.reverse
            .iter()
            .filter(is_orphan)
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    /// Returns the count of UIDs that were taken from the counters and have no name.
    pub fn leaked(&self) -> u64 {
        let taken: u64 = self.counters.values().sum();
        taken.saturating_sub(u64::try_from(self.forward.len()).unwrap_or(u64::MAX))
    }
}

fn number(bytes: &[u8]) -> anyhow::Result<u64> {
    ensure!(
        (1..=8).contains(&bytes.len()),
        "{} bytes are no number",
        bytes.len()
    );
    Ok(bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Names are ISO-8859-1.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cells: &[(&[u8], &str, &[u8])]) -> UidTable {
        let mut table = UidTable::default();
        for (row, family, value) in cells {
            let column = (row.to_vec(), (*family).to_owned(), b"metrics".to_vec());
            table.add(&column, value).unwrap();
        }
        table
    }

    #[test]
    fn finds_orphans_and_leaks() {
        let table = table(&[
            (&[0], "id", &[0, 0, 0, 0, 0, 0, 0, 3]),
            (b"a", "id", &[0, 0, 2]),
            (&[0, 0, 1], "name", b"a"),
            (&[0, 0, 2], "name", b"a"),
        ]);
        table.check().unwrap();
        assert_eq!(table.orphans(), BTreeSet::from([("metrics".to_owned(), 1)]));
        assert_eq!(table.leaked(), 2);
    }

    #[test]
    fn check_names_the_violation() {
        let counter: (&[u8], &str, &[u8]) = (&[0], "id", &[0, 0, 0, 0, 0, 0, 0, 1]);
        let forward: (&[u8], &str, &[u8]) = (b"a", "id", &[0, 0, 1]);
        let reverse: (&[u8], &str, &[u8]) = (&[0, 0, 1], "name", b"a");
        let check = |cells: &[(&[u8], &str, &[u8])]| table(cells).check().unwrap_err().to_string();
        assert!(check(&[counter, forward]).contains("leads to None"));
        assert!(check(&[forward, reverse]).contains("the counter is at 0"));
        let other: (&[u8], &str, &[u8]) = (b"b", "id", &[0, 0, 1]);
        assert!(check(&[counter, forward, other, reverse]).contains("two names, `a` and `b`"));
    }
}
