//! The tables that a program needs, and whether HBase has them.

use std::fmt::Write as _;

use oxtsdb_row_store::hbase::Hbase;
use oxtsdb_row_store::{FamilyDef, TableDef};

/// A table that a program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTable {
    /// The flag that sets its name.
    pub setting: &'static str,
    /// The default of that flag.
    pub default_name: &'static str,
    /// Its name and families.
    pub def: TableDef,
}

/// Tables that are missing or differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// Tables do not exist.
    #[error("{place} has no {}: `{command}` makes what is missing", table_names(missing))]
    Missing {
        /// The HBase.
        place: String,
        /// The missing tables.
        missing: Vec<String>,
        /// The command that creates them.
        command: String,
    },
    /// The table lacks a column family.
    #[error(
        "table `{table}` in {place} has the column families {families}, but no `{family}`: it is no table of \
         OpenTSDB's; {setting} names another one"
    )]
    OtherFamilies {
        /// The table.
        table: String,
        /// The HBase that has it.
        place: String,
        /// Its families.
        families: String,
        /// The missing family.
        family: String,
        /// The flag that sets the name of the table.
        setting: &'static str,
    },
}

impl StoreTable {
    /// Checks that a table in `place` has the required families. Further families are allowed, and compression
    /// and expiry are the operator's decision.
    ///
    /// # Errors
    ///
    /// [`TablesError::OtherFamilies`].
    pub fn check(&self, def: &TableDef, place: &str) -> Result<(), TablesError> {
        let lacks = |family: &&FamilyDef| def.family_index(&family.name).is_none();
        let Some(family) = self.def.families.iter().find(lacks) else {
            return Ok(());
        };
        let quoted = def.families.iter().map(|family| format!("`{}`", family.name));
        Err(TablesError::OtherFamilies {
            table: def.name.to_string(),
            place: place.to_owned(),
            families: quoted.collect::<Vec<_>>().join(", "),
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
    store: &dyn Hbase,
    place: &str,
    flags: &str,
) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for table in needed {
        match store.table(&table.def.name).await? {
            Some(def) => table.check(&def, place)?,
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

/// The command that creates the tables.
fn command(needed: &[&StoreTable], flags: &str) -> String {
    let mut command = format!("tsdb tables create {flags}");
    for table in needed {
        let name = table.def.name.to_string();
        if table.default_name.is_empty() {
            // One setting has several tables.
            let setting = format!(" {} JSON|FILE", table.setting);
            if !command.ends_with(&setting) {
                command.push_str(&setting);
            }
        } else if name != table.default_name {
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
