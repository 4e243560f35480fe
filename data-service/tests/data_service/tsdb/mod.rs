//! A table of points with an engine over it.

use std::sync::Arc;

use oxtsdb_query::Engine;
use oxtsdb_query::{Limits, QueryResources};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{CellAddress, Condition, RowStore, TableDef, TableName, WriteBatch};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{
    Annotation, Qualifier, RowKeyLayout, TagkUid, TagvUid, Timestamp, Tsuid, UidKind, Value, annotation,
};
use serde_json::Value as Json;

use crate::directory::Directory;

/// An engine over an in-memory table.
pub(crate) struct Tsdb {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    /// Names and their UIDs.
    pub(crate) directory: Arc<Directory>,
}

impl Tsdb {
    /// An empty table in memory.
    pub(crate) async fn new(layout: RowKeyLayout) -> Self {
        Self::over(Arc::new(MemoryStore::default()), layout).await
    }

    /// An empty table in a store.
    pub(crate) async fn over(store: Arc<dyn RowStore>, layout: RowKeyLayout) -> Self {
        let table: TableName = "tsdb".parse().unwrap();
        store
            .create_table(&TableDef::new(table.clone(), &["t"]))
            .await
            .unwrap();
        Self {
            store,
            table,
            layout,
            directory: Arc::default(),
        }
    }

    /// The same names over another store that has the table.
    #[allow(dead_code, reason = "not every test has two")]
    pub(crate) fn moved_to(self, store: Arc<dyn RowStore>) -> Self {
        Self { store, ..self }
    }

    /// An engine without limits.
    #[allow(dead_code, reason = "not every test has one")]
    pub(crate) fn engine(&self) -> Engine {
        self.engine_with(Limits::NONE)
    }

    /// An engine with these limits.
    #[allow(dead_code, reason = "not every test has limits")]
    pub(crate) fn engine_with(&self, limits: Limits) -> Engine {
        self.engine_of(limits, QueryResources::unlimited().unwrap())
    }

    /// An engine with these limits and resources.
    pub(crate) fn engine_of(&self, limits: Limits, resources: QueryResources) -> Engine {
        let directory = Arc::clone(&self.directory);
        Engine::new(
            Arc::clone(&self.store),
            (self.table.clone(), "tsdb-meta".parse().unwrap()),
            self.layout,
            directory,
            limits,
            resources,
        )
    }

    /// Writes a point like `/api/put`: floats take 8 bytes.
    pub(crate) async fn put(&self, point: &Json) {
        let timestamp = Timestamp::from_opentsdb(point["timestamp"].as_i64().unwrap()).unwrap();
        let value = match point["value"].as_i64() {
            Some(int) => Value::Int(int),
            None => Value::double(point["value"].as_f64().unwrap()).unwrap(),
        };
        let tsuid = self.series(point);
        let mut key = Vec::new();
        write_row_key(&self.layout, tsuid.as_bytes(), timestamp.base_time(), &mut key);
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family("t");
        let qualifier = Qualifier::new(timestamp, &value);
        batch
            .row(&key)
            .put(family, qualifier.as_bytes(), value.encoded().as_bytes());
        self.store.write(batch).await.unwrap();
    }

    /// Creates an annotation on the series of a point, beginning at this second, and then gives it its notes, as
    /// `/api/annotation` does.
    #[allow(dead_code, reason = "not every test has annotations")]
    pub(crate) async fn annotate(&self, point: &Json, second: i64, notes: &str) {
        let (tsuid, start) = (self.series(point), Timestamp::from_opentsdb(second).unwrap());
        let mut note = Annotation {
            tsuid: tsuid.to_string(),
            start_time: second,
            ..Annotation::default()
        };
        let key = annotation::row_key(&self.layout, Some(tsuid.as_bytes()), start);
        let cell = CellAddress::new(key, "t", annotation::qualifier(start).to_vec());
        let mut condition = Condition { cell, expected: None };
        for text in [None, Some(notes.to_owned())] {
            note.notes = text;
            let value = note.to_stored();
            let is_put = self.store.check_and_put(&self.table, &condition, &value).await;
            assert!(is_put.unwrap(), "{note:?}");
            condition.expected = Some(value);
        }
    }

    fn series(&self, point: &Json) -> Tsuid {
        let text = |json: &Json| json.as_str().unwrap().to_owned();
        let metric = self.directory.assign(UidKind::Metric, &text(&point["metric"]));
        let mut tags: Vec<_> = point["tags"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| {
                let tagk = self.directory.assign(UidKind::Tagk, key);
                (
                    TagkUid::new(tagk),
                    TagvUid::new(self.directory.assign(UidKind::Tagv, &text(value))),
                )
            })
            .collect();
        Tsuid::new(metric.into(), &mut tags).unwrap()
    }
}
