use proptest::prelude::*;

use super::*;
use crate::memory::MemoryStore;
use crate::{Clock, FamilyDef, RowStore, Scan, TableDef, TableName};

fn table() -> TableName {
    "t".parse().unwrap()
}

/// A call: its timestamp, and its rows with their numbers of mutations.
type Shape = (Option<i64>, Vec<(Vec<u8>, usize)>);

/// The calls of each round.
fn shape(batch: &WriteBatch) -> Vec<Vec<Shape>> {
    let call = |call: &Call<'_>| {
        let rows = call
            .rows
            .iter()
            .map(|(key, mutations)| (key.to_vec(), mutations.len()));
        (call.timestamp_ms, rows.collect())
    };
    rounds(batch)
        .iter()
        .map(|round| round.calls.iter().map(call).collect())
        .collect()
}

#[test]
fn puts_of_many_rows_share_one_call() {
    let mut batch = WriteBatch::new(table());
    let t = batch.family("t");
    batch.row(b"a").put(t, b"q", b"1").put(t, b"r", b"2");
    batch.row(b"b").put(t, b"q", b"3");
    assert_eq!(
        shape(&batch),
        [[(None, vec![(b"a".to_vec(), 2), (b"b".to_vec(), 1)])]]
    );
}

#[test]
fn merges_mutations_of_a_row_and_keeps_the_last_put() {
    let mut batch = WriteBatch::new(table());
    let t = batch.family("t");
    batch.row(b"a").put(t, b"q", b"1");
    batch.row(b"b").put(t, b"q", b"3");
    batch.row(b"a").put(t, b"r", b"2").put(t, b"q", b"4");
    let rounds = rounds(&batch);
    let (key, mutations) = &rounds[0].calls[0].rows[0];
    assert_eq!((rounds.len(), *key), (1, b"a".as_slice()));
    let values: Vec<&[u8]> = mutations
        .iter()
        .map(|mutation| match mutation {
            MutationRef::Put { value, .. } => *value,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(values, [b"2", b"4"]);
}

#[test]
fn separates_puts_and_deletes_of_a_row_into_rounds() {
    let mut batch = WriteBatch::new(table());
    let t = batch.family("t");
    batch
        .row(b"a")
        .put(t, b"q", b"1")
        .delete_column(t, b"q")
        .put(t, b"q", b"2");
    batch.row(b"b").delete_row().put(t, b"q", b"1");
    let rounds = rounds(&batch);
    assert_eq!(rounds.len(), 3);
    assert_eq!(rounds[0].deleted_rows, [b"b"]);
    let keys = |round: &Round<'_>| -> Vec<Vec<u8>> {
        let rows = round.calls.iter().flat_map(|call| &call.rows);
        rows.map(|(key, _)| key.to_vec()).collect()
    };
    assert_eq!(keys(&rounds[0]), [b"a"]);
    assert_eq!(
        keys(&rounds[1]),
        [b"b", b"a"],
        "a call of puts and one of deletes"
    );
    assert_eq!(keys(&rounds[2]), [b"a"]);
}

#[test]
fn issues_one_call_per_timestamp() {
    let mut batch = WriteBatch::new(table());
    let t = batch.family("t");
    for row in [b"a", b"b"] {
        batch
            .row(row)
            .put_at(t, b"q", 2, b"1")
            .put(t, b"q", b"2")
            .put_at(t, b"q", 1, b"3");
    }
    let timestamps: Vec<Option<i64>> = shape(&batch)[0].iter().map(|(timestamp, _)| *timestamp).collect();
    assert_eq!(timestamps, [None, Some(1), Some(2)]);
}

#[test]
fn bounds_calls_by_cells_and_bytes_and_keeps_rows_whole() {
    let mut batch = WriteBatch::new(table());
    let t = batch.family("t");
    for row in 0..10_u8 {
        batch.row(&[row]);
        for qualifier in 0..300_u16 {
            batch.put(t, &qualifier.to_be_bytes(), b"v");
        }
    }
    batch.row(b"wide");
    for qualifier in 0..5_000_u16 {
        batch.put(t, &qualifier.to_be_bytes(), b"v");
    }
    for row in 0..3_u8 {
        batch.row(&[b'l', row]).put(t, b"q", &vec![7; 700_000]);
    }
    let cells: Vec<usize> = shape(&batch)[0]
        .iter()
        .map(|(_, rows)| rows.iter().map(|(_, cells)| cells).sum())
        .collect();
    assert_eq!(cells, [900, 900, 900, 300, 5_000, 1, 1, 1]);
}

/// One mutation of a batch: kind, row, column, timestamp.
type Mutation = (u8, u8, u8, i64);

fn batch_of(mutations: &[Mutation]) -> WriteBatch {
    let mut batch = WriteBatch::new(table());
    let families = [batch.family("a"), batch.family("b")];
    for (number, (what, row, column, timestamp_ms)) in mutations.iter().enumerate() {
        let family = families[usize::from(column % 2)];
        let qualifier = [column / 2];
        let value = number.to_be_bytes();
        batch.row(&[*row]);
        match what {
            0..4 => batch.put(family, &qualifier, &value),
            4..7 => batch.put_at(family, &qualifier, *timestamp_ms, &value),
            7 => batch.delete_column(family, &qualifier),
            8 => batch.delete_family(family),
            _ => batch.delete_row(),
        };
    }
    batch
}

/// The content of a store with a fixed clock after these batches.
async fn contents(batches: Vec<WriteBatch>) -> String {
    let store = MemoryStore::with_clock(Clock::new(|| 1_000_000));
    let family = |name: &str| FamilyDef {
        name: name.to_owned(),
        max_versions: 100,
        ttl: None,
    };
    let def = TableDef {
        name: table(),
        families: vec![family("a"), family("b")],
    };
    store.create_table(&def).await.unwrap();
    for batch in batches {
        store.write(batch).await.unwrap();
    }
    let mut scan = Scan::prefix(b"");
    scan.max_versions = 100;
    let rows: Vec<_> = futures::StreamExt::collect(store.scan(&table(), scan).await.unwrap()).await;
    format!("{rows:?}")
}

/// The calls of a batch as batches, each with its puts before its deletes, as the gateway applies them.
fn as_the_gateway_does(batch: &WriteBatch) -> Vec<WriteBatch> {
    let mut batches = Vec::new();
    for round in rounds(batch) {
        for call in &round.calls {
            for deletes in [false, true] {
                let mut part = WriteBatch::new(table());
                let families = [part.family("a"), part.family("b")];
                for (row, mutations) in &call.rows {
                    part.row(row);
                    for mutation in mutations {
                        match *mutation {
                            MutationRef::Put {
                                family,
                                qualifier,
                                value,
                                timestamp_ms,
                            } if !deletes => {
                                assert_eq!(timestamp_ms, call.timestamp_ms);
                                let family = families[family.index()];
                                match timestamp_ms {
                                    Some(at) => part.put_at(family, qualifier, at, value),
                                    None => part.put(family, qualifier, value),
                                };
                            }
                            MutationRef::DeleteColumn {
                                family, qualifier, ..
                            } if deletes => {
                                part.delete_column(families[family.index()], qualifier);
                            }
                            MutationRef::DeleteFamily { family } if deletes => {
                                part.delete_family(families[family.index()]);
                            }
                            MutationRef::DeleteRow => panic!("a row is deleted by a call of its own"),
                            _ => {}
                        }
                    }
                }
                batches.push(part);
            }
        }
        for row in round.deleted_rows {
            let mut part = WriteBatch::new(table());
            part.row(row).delete_row();
            batches.push(part);
        }
    }
    batches
}

proptest! {
    #[test]
    fn calls_are_equivalent_to_the_batch(
        mutations in prop::collection::vec((0..10_u8, 0..4_u8, 0..6_u8, 0..3_i64), 0..40),
    ) {
        let batch = batch_of(&mutations);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (expected, stored) = runtime.block_on(async {
            (contents(vec![batch.clone()]).await, contents(as_the_gateway_does(&batch)).await)
        });
        prop_assert_eq!(stored, expected);
    }

    #[test]
    fn call_has_each_row_once_and_one_kind_of_mutation(
        mutations in prop::collection::vec((0..10_u8, 0..4_u8, 0..6_u8, 0..3_i64), 0..40),
    ) {
        let batch = batch_of(&mutations);
        for round in rounds(&batch) {
            for call in &round.calls {
                let mut keys: Vec<&[u8]> = call.rows.iter().map(|(key, _)| *key).collect();
                keys.sort_unstable();
                keys.dedup();
                prop_assert_eq!(keys.len(), call.rows.len());
                let kinds: Vec<Kind> = call.rows.iter().flat_map(|(_, all)| all.iter().map(kind)).collect();
                prop_assert!(kinds.iter().all(|kind| *kind == kinds[0]));
            }
        }
    }
}
