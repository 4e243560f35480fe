//! A real OpenTSDB and a `tsdb serve` on the same tables, with the same settings.

use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use oxtsdb_tests::http::{Http, HttpResponse};
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::stored::{Column, Stored};
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::{Options, Tsdb, until};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng, RngExt as _};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Both keep all metadata and run new series through the trees.
const SETTINGS: [&str; 7] = [
    "tsd.core.auto_create_metrics=true",
    "tsd.core.meta.enable_tsuid_tracking=true",
    "tsd.core.meta.enable_realtime_ts=true",
    "tsd.core.meta.enable_realtime_uid=true",
    "tsd.core.meta.enable_tsuid_incrementing=true",
    "tsd.core.tree.enable_processing=true",
    "tsd.http.show_stack_trace=false",
];
/// Texts that are easily written in another form than OpenTSDB's: escapes, other alphabets, hash collisions.
const TEXTS: [&str; 12] = [
    "plain",
    "",
    "quote \" \\ /",
    "<tag> & 'x'",
    "line\n\ttab",
    "é ü",
    "€ 漢字",
    "🦀",
    "Aa",
    "BB",
    "\u{1}\u{7f}",
    "null",
];

/// The two.
pub(crate) struct Both {
    pub(crate) rig: Rig,
    pub(crate) tables: Tables,
    pub(crate) opentsdb: OpenTsdb,
    pub(crate) oxtsdb: Tsdb,
    pub(crate) stored: Stored,
    _conf: TempDir,
}

impl Both {
    /// Starts them on new tables.
    pub(crate) async fn start(test: &str) -> anyhow::Result<Self> {
        let rig = Rig::find()?;
        let tables = rig.create_tables(test).await?;
        let opentsdb = rig.opentsdb(&tables, &SETTINGS).await?;
        let conf = TempDir::new()?;
        let path = conf.path().join("opentsdb.conf");
        fs::write(&path, SETTINGS.join("\n"))?;
        let options = Options::default()
            .flags(rig.flags(&tables))
            .flag("--opentsdb-conf", &path.display().to_string())
            // OpenTSDB announces no renames and deletes: a scan finds them and invalidates all caches.
            .flag("--uid-scan-seconds", "1");
        let oxtsdb = Tsdb::start_with(options).await?;
        let stored = Stored::connect(&rig).await?;
        Ok(Self {
            rig,
            tables,
            opentsdb,
            oxtsdb,
            stored,
            _conf: conf,
        })
    }

    /// OpenTSDB, OxTSDB.
    pub(crate) fn sides(&self) -> [Side; 2] {
        [
            Side {
                name: "OpenTSDB",
                http: self.opentsdb.http(),
            },
            Side {
                name: "OxTSDB",
                http: self.oxtsdb.http(),
            },
        ]
    }

    /// All cells of a table.
    pub(crate) async fn cells(&self, table: &str) -> anyhow::Result<BTreeMap<Column, Vec<u8>>> {
        self.stored.cells(table).await
    }

    /// Runs OpenTSDB's check of the UID table.
    pub(crate) async fn check_uids(&self) -> anyhow::Result<()> {
        let fsck = self.rig.uid_fsck(&self.opentsdb).await?;
        ensure!(fsck.is_clean(), "uid fsck: {fsck:?}");
        Ok(())
    }
}

/// One of the two: both have the same HTTP API.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) http: Http,
}

impl Side {
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.expect(200, path, self.http.get(path).await?)?.json()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self.http.post(path, body).await?;
        self.expect(200, &format!("{path} {body}"), response)?.json()
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self.http.put(path, body).await?;
        self.expect(200, &format!("{path} {body}"), response)?.json()
    }

    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.expect(204, path, self.http.delete(path).await?)?;
        Ok(())
    }

    pub(crate) async fn status(&self, path: &str) -> anyhow::Result<u16> {
        Ok(self.http.get(path).await?.status)
    }

    /// Repeats GET until the response has what is expected.
    pub(crate) async fn get_until(
        &self,
        path: &str,
        is_expected: impl Fn(&Value) -> bool + Send + Sync,
    ) -> anyhow::Result<Value> {
        until(&format!("{}: {path}", self.name), || async {
            let response = self.get(path).await?;
            ensure!(is_expected(&response), "{response}");
            Ok(response)
        })
        .await
    }

    /// Repeats GET until its status is this one.
    pub(crate) async fn status_until(&self, path: &str, status: u16) -> anyhow::Result<()> {
        until(&format!("{}: {path}", self.name), || async {
            let actual = self.status(path).await?;
            ensure!(actual == status, "status {actual}, expected {status}");
            Ok(())
        })
        .await
    }

    /// Stores one point.
    pub(crate) async fn point(&self, metric: &str, timestamp: u64, tags: &Value) -> anyhow::Result<()> {
        let point = json!([{"metric": metric, "timestamp": timestamp, "value": 1, "tags": tags}]);
        self.post("/api/put?sync&details", &point).await?;
        Ok(())
    }

    fn expect(&self, status: u16, request: &str, response: HttpResponse) -> anyhow::Result<HttpResponse> {
        ensure!(
            response.status == status,
            "{}: {request}: {} {}, expected {status}",
            self.name,
            response.status,
            response.body
        );
        Ok(response)
    }
}

/// The current hour's first seconds: metadata of a series that is older than its first point is "repaired" by OpenTSDB.
pub(crate) fn now() -> anyhow::Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

pub(crate) fn text(random: &mut StdRng) -> String {
    let count = random.random_range(0..4);
    (0..count).filter_map(|_| TEXTS.choose(random)).copied().collect()
}

/// Custom values, in a random order and of a random number.
pub(crate) fn custom(random: &mut StdRng) -> Value {
    let count = random.random_range(0..20);
    let entry = |_| {
        let key = match random.next_u32() % 3 {
            0 => text(random),
            1 => format!("key{}", random.random_range(0..50)),
            _ => ["Aa", "BB", "C#", "Ba", "Cb"]
                .choose(random)
                .copied()
                .unwrap_or_default()
                .to_owned(),
        };
        (key, Value::String(text(random)))
    };
    Value::Object((0..count).map(entry).collect::<Map<_, _>>())
}
