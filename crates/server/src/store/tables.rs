//! Which tables a program needs, and whether HBase has them.

use std::fmt::Write as _;

use oxtsdb_row_store::hbase::HbaseStore;
use oxtsdb_row_store::{FamilyDef, TableDef};

/// A table that a program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTable {
    /// The flag that names it.
    pub setting: &'static str,
    /// The name it has when that flag is not given.
    pub default_name: &'static str,
    /// Its name and families.
    pub def: TableDef,
}

/// What a table that is there lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// There are no such tables.
    #[error("{place} has no {}: `{command}` makes what is missing", table_names(missing))]
    Missing {
        /// The HBase that was asked.
        place: String,
        /// The tables that it does not have.
        missing: Vec<String>,
        /// The command that makes them.
        command: String,
    },
    /// A table of this name is none of OpenTSDB's.
    #[error(
        "table `{table}` in {place} has the column families {found}, but no `{family}`: it is no table of \
         OpenTSDB's; {setting} names another one"
    )]
    OtherFamilies {
        /// The table.
        table: String,
        /// The HBase that has it.
        place: String,
        /// Its families.
        found: String,
        /// The family that it lacks.
        family: String,
        /// The flag that names the table.
        setting: &'static str,
    },
}

impl StoreTable {
    /// Says whether a table that is there, in `place`, has the families that are needed. More
    /// families do no harm, and how they compress or expire is the operator's matter.
    ///
    /// # Errors
    ///
    /// [`TablesError::OtherFamilies`].
    pub fn check(&self, found: &TableDef, place: &str) -> Result<(), TablesError> {
        let lacks = |family: &&FamilyDef| found.family_index(&family.name).is_none();
        let Some(family) = self.def.families.iter().find(lacks) else {
            return Ok(());
        };
        let quoted = found.families.iter().map(|family| format!("`{}`", family.name));
        Err(TablesError::OtherFamilies {
            table: found.name.to_string(),
            place: place.to_owned(),
            found: quoted.collect::<Vec<_>>().join(", "),
            family: family.name.clone(),
            setting: self.setting,
        })
    }
}

/// Checks that the tables exist in the HBase at `place`, which `flags` reach.
///
/// # Errors
///
/// A table lacks a family, some are missing, or HBase cannot be read.
pub(super) async fn check(
    needed: &[&StoreTable],
    store: &HbaseStore,
    place: &str,
    flags: &str,
) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for table in needed {
        match store.table(&table.def.name).await? {
            Some(found) => table.check(&found, place)?,
            None => missing.push(table.def.name.to_string()),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let command = command(needed, flags);
    Err(TablesError::Missing {
        place: place.to_owned(),
        missing,
        command,
    }
    .into())
}

/// What an operator runs to make the tables.
fn command(needed: &[&StoreTable], flags: &str) -> String {
    let mut command = format!("tsdb tables create {flags}");
    for table in needed {
        let name = table.def.name.to_string();
        if name != table.default_name {
            // Writing to a string cannot fail.
            let _ = write!(command, " {} {name}", table.setting);
        }
    }
    command
}

fn table_names(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [one] => format!("table {one}"),
        several => format!("tables {}", several.join(", ")),
    }
}
