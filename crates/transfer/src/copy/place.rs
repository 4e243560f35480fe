//! Where tables are: HBase, a data folder, or an export.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use oxtsdb_command::table_args::TableArgs;
use oxtsdb_resources::{FixedShare, MemoryAccount};
use oxtsdb_row_store::{RowStore, TableDef, TableName};
use oxtsdb_server::store::{StoreKind, StoreSettings};
use uid_service::UidSettings;

use super::hbase_place::{self, HbasePlace};
use super::manifest::{Header, Manifest, TableHeader};
use super::roles::DATA;
use super::rollups::Rollups;

/// Memory that the stores of a copy share: caches, and points that are in no file yet.
const MEMORY_BYTES: u64 = 1 << 30;

/// Where tables are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// HBase.
    Hbase(HbasePlace),
    /// A data folder of the embedded store.
    Embedded(PathBuf),
    /// A folder of `tsdb export`.
    Export(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, address) = text.split_once(':').unwrap_or(("", text));
        if let Some(hbase) = HbasePlace::parse(scheme, address) {
            return hbase.map(Self::Hbase);
        }
        match scheme {
            "embedded" if !address.is_empty() => Ok(Self::Embedded(address.into())),
            "export" if !address.is_empty() => Ok(Self::Export(address.into())),
            _ => Err(format!(
                "`{text}` is no place of tables, expected hbase-quorum:HOST[:PORT][,...][/ZNODE], \
                 hbase-masters:HOST[:PORT][,...], hbase:HOST:PORT[,...] (Thrift), embedded:DIR or export:DIR"
            )),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hbase(hbase) => hbase.fmt(f),
            Self::Embedded(folder) => write!(f, "embedded:{}", folder.display()),
            Self::Export(folder) => write!(f, "export:{}", folder.display()),
        }
    }
}

/// The rollups of these settings.
///
/// # Errors
///
/// They are not OpenTSDB's configuration of rollups.
pub(super) fn rollups(tables: &TableArgs) -> anyhow::Result<Rollups> {
    Rollups::from_settings(&tables.data())
}

/// Checks that a store with these settings reads the rows of an export as they were written.
///
/// # Errors
///
/// The setting that differs.
pub(super) fn check(tables: &TableArgs, export: &Header) -> anyhow::Result<()> {
    export.check_layout(&tables.layout()?)?;
    export.check_rollups(rollups(tables)?.header.as_ref())
}

/// A table of an open store.
#[derive(Clone, Debug)]
pub(super) struct OpenTable {
    /// Which of OpenTSDB's tables it is.
    pub(super) role: String,
    pub(super) def: TableDef,
    pub(super) store: Arc<dyn RowStore>,
}

impl OpenTable {
    pub(super) fn name(&self) -> &TableName {
        &self.def.name
    }

    /// Its families' names.
    pub(super) fn families(&self) -> Vec<String> {
        let families = self.def.families.iter();
        families.map(|family| family.name.clone()).collect()
    }

    pub(super) fn header(&self) -> TableHeader {
        TableHeader {
            role: self.role.clone(),
            name: self.name().to_string(),
            families: self.families(),
        }
    }
}

/// The tables of a store, names first.
#[derive(Debug)]
pub(super) struct OpenStore {
    pub(super) tables: Vec<OpenTable>,
    stores: [Arc<dyn RowStore>; 2],
}

impl OpenStore {
    /// Makes everything durable and closes the files.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        for store in self.stores {
            store.close().await?;
        }
        Ok(())
    }
}

/// An open place.
#[derive(Debug)]
pub(super) enum Opened {
    Store(OpenStore),
    Export(Arc<Manifest>),
}

impl Opened {
    pub(super) async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Store(store) => store.close().await,
            Self::Export(_) => Ok(()),
        }
    }
}

impl Place {
    /// Opens it for reading; an export must be complete.
    ///
    /// # Errors
    ///
    /// As [`Place::open_store`]; errors of the manifest.
    pub(super) async fn open(&self, args: &TableArgs) -> anyhow::Result<Opened> {
        match self {
            Self::Export(folder) => {
                let manifest = Manifest::complete(folder)?;
                let fits = check(args, &manifest.header);
                fits.with_context(|| folder.display().to_string())?;
                Ok(Opened::Export(Arc::new(manifest)))
            }
            Self::Hbase(_) | Self::Embedded(_) => Ok(Opened::Store(self.open_store(args, false).await?)),
        }
    }

    /// Opens the tables of a store. With `writes`, a data folder and our own tables are created if they are missing.
    ///
    /// # Errors
    ///
    /// It is an export, HBase or the folder cannot be used, a server uses the folder, or the table of points has another
    /// layout of keys.
    pub(super) async fn open_store(&self, args: &TableArgs, writes: bool) -> anyhow::Result<OpenStore> {
        self.open_tables(args, writes)
            .await
            .with_context(|| self.to_string())
    }

    async fn open_tables(&self, args: &TableArgs, writes: bool) -> anyhow::Result<OpenStore> {
        let mut hbase = args.hbase.clone();
        let (store, data_dir) = match self {
            Self::Hbase(place) => {
                place.set(&mut hbase);
                (StoreKind::Hbase, PathBuf::new())
            }
            Self::Embedded(folder) => {
                hbase_place::clear(&mut hbase);
                // A misspelled folder would be an empty store.
                let is_store = folder.join("data").is_dir();
                ensure!(writes || is_store, "no data folder of an embedded store");
                (StoreKind::Embedded, folder.clone())
            }
            Self::Export(_) => {
                anyhow::bail!("an export, expected hbase-quorum:…, hbase-masters:…, hbase:… or embedded:…")
            }
        };
        let settings = StoreSettings {
            store,
            data_dir,
            hbase,
        };
        let uids = UidSettings {
            tables: args.uid_tables.clone(),
            ..UidSettings::default()
        };
        let mut data = args.data();
        let rollups = rollups(args)?;
        // Then its table of its own is created if it is missing.
        data.rollups.rollup_jobs = writes && rollups.header.is_some();
        let limit = MemoryAccount::default_limit_bytes().min(MEMORY_BYTES);
        let mut uid_part = uid_service::store_part(&uids)?;
        let data_part = data_service::store_part(&data, limit)?;
        let own = uid_part.own.clone();
        if store == StoreKind::Hbase && !writes {
            uid_part.own.clear();
        }
        let share = FixedShare::new(settings.memory_bytes(&[&uid_part, &data_part]), limit);
        let memory = MemoryAccount::new(limit, share.total_bytes());
        let opened = settings.open([&uid_part, &data_part], &share).await?;
        let [uid_store, data_store] = opened.stores;
        let points =
            data_service::points_part(&settings, &opened.embedded, &data_part, &data, &memory, &share);
        let data_store = data_service::open_tables(data_store, points, args.layout()?, &data).await?;
        let uid_tables = uid_store.tables().await?;
        let data_tables = data_store.tables().await?;
        let role = |role: &str, name: &TableName| (role.to_owned(), name.clone());
        let own = own.first().map(|def| role("uid-state", &def.name));
        let roles = [role("uid", &uid_part.table.def.name)].into_iter().chain(own);
        let uid_roles = roles.map(|(role, name)| (role, name, &uid_store, &uid_tables));
        let of_data = [
            role("meta", &data.tables.meta_table_name()?),
            role("tree", &data.tables.tree_table_name()?),
            role(DATA, &data_part.table.def.name),
        ];
        let roles: Vec<_> = rollups
            .state
            .into_iter()
            .chain(of_data)
            .chain(rollups.tables)
            .collect();
        if store == StoreKind::Embedded {
            // Others have no rows of their own: meta shows them.
            let of_points = data_tables.iter().filter(|def| def.family_index("t").is_some());
            let others = of_points.map(|def| &def.name);
            for other in others.filter(|other| roles.iter().all(|(_, name)| name != *other)) {
                eprintln!("{self}: table `{other}` is left out, no setting names it (--rollups-config)");
            }
        }
        let data_roles = roles
            .into_iter()
            .map(|(role, name)| (role, name, &data_store, &data_tables));
        // The table of OxTSDB may be missing.
        let tables = uid_roles
            .chain(data_roles)
            .filter_map(|(role, name, store, defs)| {
                Some(OpenTable {
                    role,
                    def: defs.iter().find(|def| def.name == name)?.clone(),
                    store: Arc::clone(store),
                })
            });
        Ok(OpenStore {
            tables: tables.collect(),
            stores: [uid_store, data_store],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed_and_printed() {
        for text in [
            "hbase-quorum:zk1,zk2:2182",
            "hbase-quorum:[::1]:2181/hbase/a",
            "hbase-masters:m1,m2:16001",
            "hbase:h:9090,i:9091",
            "embedded:/d",
            "embedded:a:b",
            "export:x",
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "/d",
            "embedded",
            "embedded:",
            "export:",
            "other:x",
            "hbase",
            "quorum:zk1",
            "Hbase:h:9090",
        ] {
            let error = text.parse::<Place>().unwrap_err();
            let expected = format!("`{text}` is no place of tables, expected hbase-quorum:");
            assert!(error.starts_with(&expected) && !error.contains('\n'), "{error}");
        }
    }
}
