use std::sync::Arc;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError};
use oxtsdb_test_stack::TestStack;
use uid_service::UidSettings;

use super::*;

/// Sixteen callers each set a field of one annotation at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_keep_each_others_fields() {
    let stack = TestStack::start().await;
    let annotations = Annotations::from_engine(&stack.service.engine);
    let key = AnnotationKey::as_sent(annotations.layout(), "", 1_356_998_400).unwrap();
    let barrier = Arc::new(tokio::sync::Barrier::new(3));
    let edits = [
        Edit {
            end_time: Some(7),
            ..Edit::default()
        },
        Edit {
            description: Some(Some("d".to_owned())),
            ..Edit::default()
        },
        Edit {
            notes: Some(Some("n".to_owned())),
            ..Edit::default()
        },
    ];
    for round in 0..200 {
        let callers = edits.clone().map(|edit| {
            let (annotations, key, barrier) = (annotations.clone(), key.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                annotations.put(&key, &edit, &Precondition::None).await.unwrap();
            })
        });
        for caller in callers {
            caller.await.unwrap();
        }
        let stored = annotations.get(&key).await.unwrap().unwrap().annotation;
        let fields = (
            stored.end_time,
            stored.description.as_deref(),
            stored.notes.as_deref(),
        );
        assert_eq!(fields, (7, Some("d"), Some("n")), "round {round}");
        annotations.remove(&key, &Precondition::None).await.unwrap();
    }
}

#[tokio::test]
async fn too_long_annotations_are_rejected() {
    let stack = TestStack::start().await;
    let annotations = Annotations::from_engine(&stack.service.engine);
    let key = AnnotationKey::as_sent(annotations.layout(), "", 1).unwrap();
    let edit = Edit {
        notes: Some(Some("x".repeat(MAX_STORED_BYTES))),
        ..Edit::default()
    };
    let error = annotations
        .put(&key, &edit, &Precondition::None)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            AnnotationError::TooLarge {
                most: MAX_STORED_BYTES,
                ..
            }
        ),
        "{error}"
    );
    assert!(annotations.get(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn the_smaller_start_time_is_kept() {
    let stack = TestStack::start().await;
    let annotations = Annotations::from_engine(&stack.service.engine);
    let edit = Edit {
        end_time: Some(1),
        ..Edit::default()
    };
    for (sent, stored) in [
        (1_356_998_405_000, 1_356_998_405_000),
        (1_356_998_405, 1_356_998_405),
        (1_356_998_405_000, 1_356_998_405),
    ] {
        let key = AnnotationKey::as_sent(annotations.layout(), "", sent).unwrap();
        let put = annotations.put(&key, &edit, &Precondition::None).await.unwrap();
        assert_eq!(put.annotation.start_time, stored);
    }
}

#[tokio::test]
async fn a_damaged_cell_is_an_error_until_it_is_deleted() {
    let stack = TestStack::start().await;
    let annotations = Annotations::from_engine(&stack.service.engine);
    let key = AnnotationKey::as_sent(annotations.layout(), "", 5).unwrap();
    let (row, qualifier) = key.cell();
    let mut batch = oxtsdb_row_store::WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family(FAMILY);
    batch.row(row).put(family, qualifier, b"{");
    stack.store.write(batch).await.unwrap();
    let edit = Edit {
        end_time: Some(1),
        ..Edit::default()
    };
    for result in [
        annotations.get(&key).await.map(drop),
        annotations.put(&key, &edit, &Precondition::None).await.map(drop),
    ] {
        assert!(
            matches!(result, Err(AnnotationError::Damaged { .. })),
            "{result:?}"
        );
    }
    annotations.remove(&key, &Precondition::None).await.unwrap();
    annotations.put(&key, &edit, &Precondition::None).await.unwrap();
}

/// At multiples of 1000 seconds an instant has two cells.
#[tokio::test]
async fn an_empty_cell_does_not_hide_the_other_one() {
    let stack = TestStack::start().await;
    let annotations = Annotations::from_engine(&stack.service.engine);
    let (seconds, millis) = (1_369_141_000, 1_369_141_000_000);
    let in_millis = AnnotationKey::as_sent(annotations.layout(), "", millis).unwrap();
    let edit = Edit {
        description: Some(Some("d".to_owned())),
        ..Edit::default()
    };
    annotations
        .put(&in_millis, &edit, &Precondition::None)
        .await
        .unwrap();
    let in_seconds = AnnotationKey::as_sent(annotations.layout(), "", seconds).unwrap();
    let mut batch = oxtsdb_row_store::WriteBatch::new(annotations.table.clone());
    let family = batch.family(FAMILY);
    let (row, qualifier) = in_seconds.cell();
    batch.row(row).put(family, qualifier, b"");
    stack.store.write(batch).await.unwrap();
    let both = AnnotationKey::at_instant(annotations.layout(), &[], millis).unwrap();
    let stored_annotation = annotations.get(&both).await.unwrap().unwrap();
    assert_eq!(stored_annotation.annotation.description.as_deref(), Some("d"));
}

/// Executes each conditional put twice and returns the second response, as HBase's Thrift server may.
#[derive(Debug)]
struct Repeats;

#[async_trait::async_trait]
impl Intercept for Repeats {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if matches!(operation, Operation::CheckAndPut { .. }) {
            operation.clone().perform(store).await?;
        }
        operation.perform(store).await
    }
}

#[tokio::test]
async fn an_edit_that_a_gateway_repeats_is_no_other_version() {
    let store = MemoryStore::new();
    let repeats = InterceptedStore::new(Arc::new(store.clone()), Arc::new(Repeats)).like_hbase();
    let uid_store = Arc::new(store.clone());
    let settings = (DataSettings::default(), UidSettings::default());
    let stack = TestStack::over_hbase(store, uid_store, Arc::new(repeats), settings.0, settings.1).await;
    let annotations = Annotations::from_engine(&stack.service.engine);
    let key = AnnotationKey::as_sent(annotations.layout(), "", 1_356_998_400).unwrap();
    let notes = |text: &str| Edit {
        notes: Some(Some(text.to_owned())),
        ..Edit::default()
    };
    let first = annotations
        .put(&key, &notes("1"), &Precondition::None)
        .await
        .unwrap();
    let same = Precondition::Etag(first.etag);
    let second = annotations.put(&key, &notes("2"), &same).await.unwrap();
    assert_eq!(second.annotation.notes.as_deref(), Some("2"));
    let stored = annotations.get(&key).await.unwrap().unwrap();
    assert_eq!(stored, second);
}
