//! Failures, deadlines and outages.

use oxtsdb_data_settings::DataSettings;

use super::*;

#[tokio::test]
async fn a_failing_store_fails_the_write() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    gate.fail([StoreError::Full {
        detail: "journal".to_owned(),
    }]);
    gate.release(1);
    let error = stack
        .service
        .writer
        .write(&[point("m", &[("host", "a")], 1, 1)], None)
        .await
        .unwrap_err();
    assert!(
        matches!(error, WriteError::Store(StoreError::Full { .. })),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_the_wait_for_the_store_and_for_a_permit() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    let (stack, gate) = Gate::stack(settings).await;
    let writer = stack.service.writer.clone();
    let big: Vec<_> = (1..60_000)
        .map(|seconds| point("m", &[("host", "a")], seconds, 1))
        .collect();
    write_names(&stack).await;

    let deadline = || Some((tokio::time::Instant::now() + Duration::from_secs(1)).into_std());
    let error = writer.write(&big, deadline()).await.unwrap_err();
    assert!(matches!(error, WriteError::DeadlineExceeded), "{error:?}");

    let slow = tokio::spawn({
        let writer = writer.clone();
        async move {
            let points: Vec<_> = (1..200_000)
                .map(|seconds| point("m", &[("host", "a")], seconds, 1))
                .collect();
            writer.write(&points, None).await.unwrap().written
        }
    });
    gate.until_waiting(1).await;
    let one = [point("m", &[("host", "a")], 1, 1)];
    let error = writer.write(&one, deadline()).await.unwrap_err();
    assert!(matches!(error, WriteError::DeadlineExceeded), "{error:?}");
    let later = tokio::time::Instant::now() + Duration::from_secs(3600);
    let error = writer.write(&one, Some(later.into_std())).await.unwrap_err();
    assert!(
        matches!(
            error,
            WriteError::Overloaded {
                limit_bytes: 1_048_576,
                ..
            }
        ),
        "{error:?}"
    );
    gate.release(1);
    assert_eq!(slow.await.unwrap(), 199_999);
}

async fn write_names(stack: &TestStack) {
    let names = [
        (UidKind::Metric, "m"),
        (UidKind::Tagk, "host"),
        (UidKind::Tagv, "a"),
    ];
    stack
        .service
        .uids
        .assign_for(&names, |_| None, None)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn stores_points_of_known_series_without_the_uid_service() {
    let (stack, gate) = Gate::uid_stack().await;
    let writer = &stack.service.writer;
    gate.release(1);
    write_names(&stack).await;
    let known = |second| point("m", &[("host", "a")], second, 1);
    let unknown = |second| point("m", &[("host", "new")], second, 1);
    let mixed = [unknown(1), known(1), unknown(2), known(2)];
    let outcome = writer.write(&mixed, None).await.unwrap();
    assert_eq!(outcome.written, 2);
    let failed: Vec<_> = outcome.errors.iter().map(|error| error.index).collect();
    assert_eq!(failed, [0, 2]);
    assert!(
        matches!(
            &*outcome.errors[0].reason,
            PointErrorReason::Unresolved(UidsError::Unavailable { .. })
        ),
        "{:?}",
        outcome.errors
    );

    // During the outage no write waits for the UID service.
    let began = tokio::time::Instant::now();
    assert_eq!(writer.write(&mixed, None).await.unwrap().written, 2);
    let error = writer.write(&[unknown(3)], None).await.unwrap_err();
    assert!(
        matches!(error, WriteError::Uids(UidsError::Unavailable { .. })),
        "nothing is stored, so the call fails: {error:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());

    gate.release(100);
    while writer.write(&[unknown(3)], None).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_names_holds_no_permit() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    let (stack, gate) = Gate::uid_stack_with(settings).await;
    gate.release(1);
    write_names(&stack).await;
    let writer = stack.service.writer.clone();
    let waiting = tokio::spawn(async move {
        let points: Vec<_> = (1..60_000)
            .map(|second| point("m", &[("host", "new")], second, 1))
            .collect();
        writer.write(&points, None).await
    });
    gate.until_waiting(1).await;
    let all: Vec<_> = (1..60_000)
        .map(|second| point("m", &[("host", "a")], second, 1))
        .collect();
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(1)).into_std();
    let outcome = stack.service.writer.write(&all, Some(deadline)).await.unwrap();
    assert_eq!(outcome.written, all.len() as u64);
    gate.release(100);
    assert_eq!(waiting.await.unwrap().unwrap().written, 59_999);
}
