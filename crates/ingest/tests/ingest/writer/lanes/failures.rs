//! Failing and panicking stores.

use super::*;

/// Does something else with the first operation that changes the store.
#[derive(Debug)]
struct First {
    count: AtomicUsize,
    instead: fn(),
}

#[async_trait]
impl Intercept for First {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if !matches!(operation, Operation::Write { .. } | Operation::Append { .. })
            || self.count.fetch_add(1, Ordering::Relaxed) > 0
        {
            return operation.perform(store).await;
        }
        (self.instead)();
        operation.perform(store).await?;
        Err(StoreError::TimedOut {
            detail: "append".to_owned(),
        })
    }
}

async fn stack_with_first(instead: fn(), settings: DataSettings) -> TestStack {
    let store = MemoryStore::new();
    let first = Arc::new(First {
        count: AtomicUsize::new(0),
        instead,
    });
    let intercepted = InterceptedStore::new(Arc::new(store.clone()), first).like_hbase();
    let uid_store = Arc::new(store.clone());
    let uid_settings = UidSettings::default();
    TestStack::over_hbase(store, uid_store, Arc::new(intercepted), settings, uid_settings).await
}

#[tokio::test]
async fn a_panicking_store_does_not_stop_a_lane() {
    let stack = stack_with_first(|| panic!("as the test wants it"), DataSettings::default()).await;
    let error = put(&stack.service.writer, &[("a", 1, 1)]).await.unwrap_err();
    assert!(
        error.to_string().ends_with("it ended without a result"),
        "{error}"
    );
    assert_eq!(
        put(&stack.service.writer, &[("a", 2, 2)]).await.unwrap().written,
        1
    );
    assert_eq!(stack.cells("tsdb").await, [format!("{ROW_A} t:0020 02")]);
}

#[tokio::test]
async fn an_append_with_unknown_outcome_is_repeated_and_read_once() {
    let stack = stack_with_first(|| (), settings(WriteForm::Appends, 0)).await;
    let written = put(&stack.service.writer, &[("a", 1, 1), ("a", 2, 2)]).await;
    assert!(matches!(
        written,
        Err(WriteError::Store(StoreError::TimedOut { .. }))
    ));
    put(&stack.service.writer, &[("a", 1, 1), ("a", 2, 2)])
        .await
        .unwrap();
    assert_eq!(
        stack.cells("tsdb").await,
        [format!("{ROW_A} t:050000 001001002002001001002002")]
    );
    let key = hex::decode(ROW_A).unwrap();
    let row = stack
        .store
        .get(&"tsdb".parse().unwrap(), &key, &ColumnSelection::All)
        .await;
    assert_eq!(
        points(&row.unwrap().unwrap()),
        [(1000, Value::Int(1)), (2000, Value::Int(2))]
    );
}

#[tokio::test]
async fn an_append_that_fails_fails_the_requests_with_points_of_its_row() {
    let (stack, gate) = Gate::stack(settings(WriteForm::Appends, 0)).await;
    assign_names(&stack).await;
    let neighbour = host(&stack, true).await;
    let mut first = pin!(put(&stack.service.writer, &[("a", 1, 1)]));
    assert!(poll!(first.as_mut()).is_pending());
    gate.until_waiting(1).await;
    let neighbour_points = [(neighbour, 1, 1)];
    let mut fails = pin!(put(&stack.service.writer, &[("a", 2, 2)]));
    let mut holds = pin!(put(&stack.service.writer, &neighbour_points));
    assert!(poll!(fails.as_mut()).is_pending());
    assert!(poll!(holds.as_mut()).is_pending());
    gate.release(1);
    first.await.unwrap();
    gate.until_waiting(2).await;
    gate.fail([full()]);
    gate.release(2);
    assert!(fails.await.is_err());
    assert_eq!(holds.await.unwrap().written, 1);
}
