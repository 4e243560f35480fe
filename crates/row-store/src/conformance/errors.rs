//! Table definitions, and rejected requests.

use super::subject::Subject;
use crate::{
    CellAddress, ColumnSelection, Condition, FamilyDef, Retry, Scan, StoreError, TableDef, WriteBatch,
};

pub(super) async fn create_table_is_idempotent(subject: &Subject<'_>) {
    let name = subject.table_name();
    let def = TableDef::new(name.clone(), &["a", "b"]);
    assert!(subject.store.create_table(&def).await.unwrap());
    assert!(
        !subject.store.create_table(&def).await.unwrap(),
        "the same again is no error"
    );
    let others = [
        TableDef::new(name.clone(), &["a"]),
        TableDef::new(name.clone(), &["a", "c"]),
        TableDef {
            name: name.clone(),
            families: vec![
                FamilyDef::new("a"),
                FamilyDef {
                    name: "b".to_owned(),
                    max_versions: 2,
                    ttl: None,
                },
            ],
        },
    ];
    for other in others {
        let error = subject.store.create_table(&other).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::TableDiffers { table, .. } if *table == name),
            "{error}"
        );
    }
}

pub(super) async fn tables_are_listed(subject: &Subject<'_>) {
    let (one, two) = (subject.table().await, subject.table().await);
    let tables = subject.store.tables().await.unwrap();
    let def = tables
        .iter()
        .find(|def| def.name == one.name)
        .expect("it is listed");
    assert_eq!(def.families, [FamilyDef::new("a"), FamilyDef::new("b")]);
    assert!(tables.iter().any(|def| def.name == two.name));
    assert!(tables.is_sorted_by(|a, b| a.name < b.name));
}

pub(super) async fn rejects_unknown_tables(subject: &Subject<'_>) {
    let name = subject.table_name();
    let store = subject.store;
    let cell = CellAddress::new("row", "a", "q");
    let mut batch = WriteBatch::new(name.clone());
    let a = batch.family("a");
    batch.row(b"row").put(a, b"q", b"v");
    let condition = Condition {
        cell: cell.clone(),
        expected: None,
    };
    let errors = [
        store.get(&name, b"row", &ColumnSelection::All).await.err(),
        store.scan(&name, Scan::prefix(b"")).await.err(),
        store.write(batch).await.err(),
        store.increment(&name, &cell, 1).await.err(),
        store.check_and_put(&name, &condition, b"v").await.err(),
        store.append(&name, &cell, b"v").await.err(),
    ];
    for error in errors {
        let error = error.expect("there is no such table");
        assert!(
            matches!(&error, StoreError::NoSuchTable { table } if *table == name),
            "{error}"
        );
        assert_eq!(error.retry(), Retry::Never);
    }
}

pub(super) async fn rejects_unknown_families(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (store, name) = (table.store, &table.name);
    let cell = CellAddress::new("row", "c", "q");
    let mut batch = WriteBatch::new(name.clone());
    let c = batch.family("c");
    batch.row(b"row").put(c, b"q", b"v");
    let condition = Condition {
        cell: cell.clone(),
        expected: None,
    };
    let family = ColumnSelection::Family("c".to_owned());
    let mut scan = Scan::prefix(b"");
    scan.columns = family.clone();
    let errors = [
        store.get(name, b"row", &family).await.err(),
        store.scan(name, scan).await.err(),
        store.write(batch).await.err(),
        store.increment(name, &cell, 1).await.err(),
        store.check_and_put(name, &condition, b"v").await.err(),
        store.append(name, &cell, b"v").await.err(),
    ];
    for error in errors {
        let error = error.expect("there is no such family");
        assert!(
            matches!(&error, StoreError::NoSuchFamily { family, .. } if family == "c"),
            "{error}"
        );
    }
    assert_eq!(table.row(b"row").await, None);
}

pub(super) async fn rejects_row_keys_out_of_bounds(subject: &Subject<'_>) {
    let table = subject.table().await;
    let longest = table.store.max_row_key(&table.name);
    assert!(
        (32_000..=32_767).contains(&longest),
        "a few are the store's own at most"
    );
    table.put(&vec![7; longest], b"q", b"v").await;
    assert_eq!(table.value(&vec![7; longest], b"q").await.unwrap(), b"v");
    for key in [vec![], vec![7; longest + 1]] {
        let (mut batch, a, _) = table.batch();
        batch.row(&key).put(a, b"q", b"v");
        let cell = table.cell(&key, b"q");
        let errors = [
            table.store.write(batch).await.err(),
            table
                .store
                .get(&table.name, &key, &ColumnSelection::All)
                .await
                .err(),
            table.store.increment(&table.name, &cell, 1).await.err(),
            table.store.append(&table.name, &cell, b"v").await.err(),
        ];
        for error in errors {
            let error = error.expect("the key is rejected");
            assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
        }
    }
    assert_eq!(table.scan(Scan::prefix(b"")).await.len(), 1);
}

pub(super) async fn increment_rejects_cells_that_are_not_counters(subject: &Subject<'_>) {
    let table = subject.table().await;
    table.put(b"row", b"q", b"seven b").await;
    let cell = table.cell(b"row", b"q");
    let error = table.store.increment(&table.name, &cell, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::NotACounter { length: 7 }), "{error}");
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"seven b");
}

pub(super) async fn store_is_healthy(subject: &Subject<'_>) {
    subject.store.check_health().await.unwrap();
}
