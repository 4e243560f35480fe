use tonic_types::StatusExt as _;

use super::*;

/// Two series of one metric, by symbols.
fn declarations() -> Columns {
    Columns {
        new_symbols: ["m", "host", "a", "b"].map(str::to_owned).to_vec(),
        new_series: [2, 3]
            .map(|tagv| SeriesDeclaration {
                metric_symbol: 0,
                tag_symbols: vec![1, tagv],
                ..Default::default()
            })
            .to_vec(),
        ..Columns::default()
    }
}

/// Integers of some series, with absolute timestamps.
fn ints(series: &[u32], timestamps: &[i64], values: &[i64]) -> Block {
    Block {
        series: series.to_vec(),
        timestamps: timestamps.to_vec(),
        int_values: values.to_vec(),
        ..Block::default()
    }
}

#[tokio::test]
async fn stores_points_of_both_encodings() {
    let stack = TestStack::start().await;
    let doubles = Block {
        series: vec![1],
        delta_timestamps: DeltaTimestamps::encode(&[3_600_000, 3_600_500]),
        values: vec![0.5, 4.2],
        ..Block::default()
    };
    let blocks = vec![ints(&[0, 1, 0], &[1000, 1000, 2000], &[1, 2, 300]), doubles];
    let request = columns_request(Columns {
        blocks,
        ..declarations()
    });
    let response = stack
        .client()
        .write_columns(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (response.written, response.failed, response.failures),
        (5, 0, None)
    );
    let expected = [
        "00000100000000000001000001 t:0010 01",
        "00000100000000000001000001 t:0021 012c",
        "00000100000000000001000002 t:0010 02",
        "00000100000e10000001000002 t:000b 3f000000",
        "00000100000e10000001000002 t:f0007d0f 4010cccccccccccd",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);
    stack.client().write_columns(request).await.unwrap();
    assert_eq!(stack.cells("tsdb").await, expected, "the same points once more");
}

#[tokio::test]
async fn lists_bad_points_as_runs() {
    let stack = TestStack::start().await;
    let mut columns = declarations();
    columns.new_symbols.push("a b".to_owned());
    columns.new_series.push(SeriesDeclaration {
        metric_symbol: 4,
        tag_symbols: vec![1, 2],
        ..Default::default()
    });
    columns.new_series.push(SeriesDeclaration {
        tag_symbols: [1, 2].repeat(9),
        ..Default::default()
    });
    columns.blocks = vec![
        // Points 0 to 4: the third series is illegal.
        ints(&[0, 2, 2, 2, 1], &[1000; 5], &[1; 5]),
        // 5 to 7: more timestamps than values.
        ints(&[0], &[1000; 3], &[1]),
        // 8 to 10: one timestamp is negative.
        ints(&[0], &[1000, -4000, 1000], &[1; 3]),
        // 11 to 13: offsets in place of differences.
        Block {
            delta_timestamps: Some(DeltaTimestamps {
                first: 1000,
                deltas: vec![1000, 3000],
                last: 4000,
            }),
            ..ints(&[0], &[], &[1; 3])
        },
        // 14: nine tags.
        ints(&[3], &[1000], &[1]),
    ];
    let response = stack.client().write_columns(columns_request(columns)).await;
    let response = response.unwrap().into_inner();
    assert_eq!((response.written, response.failed), (4, 11));
    let failures = response.failures.unwrap();
    let expected = [
        (
            1,
            3,
            ErrorReason::InvalidName,
            "metric: name `a b` has the illegal character ` ` at position 1, allowed are letters, digits, `-`, `_`, `.`, `/` and what --extra-name-characters of the UID service adds",
        ),
        (
            5,
            3,
            ErrorReason::InvalidField,
            "3 timestamps and 1 values, expected one value for each timestamp",
        ),
        (
            9,
            1,
            ErrorReason::InvalidTimestamp,
            "timestamp -4000 ms is out of range, expected 1 to 4294967295999",
        ),
        (
            11,
            3,
            ErrorReason::InvalidTimestamp,
            "`first` plus all `deltas` is 5000, `last` is 4000; each delta is the difference from the \
             timestamp before it, neither an offset from `first` nor a timestamp",
        ),
        (
            14,
            1,
            ErrorReason::InvalidTags,
            "series has 9 tags, at most 8 are allowed",
        ),
    ];
    assert_eq!(errors(&failures), expected);
    let runs = failures.permanent.unwrap();
    let runs: Vec<(u64, u64)> = runs.first.into_iter().zip(runs.count).collect();
    assert_eq!(runs, [(1, 3), (5, 3), (9, 1), (11, 4)]);
}

/// One point each of series that share a tag value and differ in another.
fn many_series(count: u32, shared: String) -> WriteColumnsRequest {
    let mut columns = Columns {
        new_symbols: vec!["m".to_owned(), "a".to_owned(), shared, "b".to_owned()],
        ..Columns::default()
    };
    for number in 0..count {
        columns.new_symbols.push(number.to_string());
        columns.new_series.push(SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2, 3, 4 + number],
            tsuid: Default::default(),
        });
    }
    let points = count as usize;
    let numbers: Vec<u32> = (0..count).collect();
    columns.blocks = vec![ints(&numbers, &vec![1000; points], &vec![1; points])];
    WriteColumnsRequest {
        columns: Some(columns),
        options: Some(pb::WriteOptions {
            max_errors: Some(count),
            ..options()
        }),
    }
}

#[tokio::test]
async fn truncates_long_names_in_errors() {
    let stack = TestStack::start().await;
    let request = many_series(200, "!".repeat(1 << 20));
    let response = stack.client().write_columns(request).await.unwrap().into_inner();
    assert_eq!((response.written, response.failed), (0, 200));
    assert_eq!(response.failures.as_ref().unwrap().errors.len(), 200);
    let size = prost::Message::encoded_len(&response);
    assert!(size < 200 * 1024, "{size} bytes");
}

#[tokio::test]
async fn resolves_series_with_long_names_in_batches() {
    let stack = TestStack::start().await;
    let request = many_series(600, "x".repeat(32_000));
    let response = stack.client().write_columns(request).await.unwrap().into_inner();
    assert_eq!((response.written, response.failed), (600, 0));
    assert_eq!(
        stack.cells("tsdb").await.len(),
        600,
        "each series has a row of its own"
    );
}

#[tokio::test]
async fn overload_is_unavailable_and_names_the_limit() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    let (stack, gate) = Gate::stack(settings).await;
    let columns = |count| {
        let timestamps: Vec<i64> = (1..).take(count).map(|second| second * 1000).collect();
        columns_request(Columns {
            blocks: vec![ints(&[0], &timestamps, &vec![1; count])],
            ..declarations()
        })
    };
    let mut client = stack.client();
    let large = tokio::spawn(async move { client.write_columns(columns(200_000)).await });
    gate.until_waiting(1).await;
    // Not before: large columns are encoded by a thread that knows no paused clock.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let status = stack.client().write_columns(columns(10)).await.unwrap_err();
    assert!(
        began.elapsed() <= std::time::Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::Unavailable, Some(ErrorReason::Overloaded)),
        "{status:?}"
    );
    let message = status.message();
    assert!(
        message.contains("1 MiB") && message.contains("--max-writes-mib"),
        "{message}"
    );
    assert!(status.get_details_retry_info().is_some());
    let metadata = status.get_details_error_info().unwrap().metadata;
    assert_eq!(metadata["setting"], "--max-writes-mib");
    gate.release(10);
    assert_eq!(large.await.unwrap().unwrap().into_inner().written, 200_000);
    assert_eq!(
        stack
            .client()
            .write_columns(columns(10))
            .await
            .unwrap()
            .into_inner()
            .written,
        10
    );
}

#[tokio::test(start_paused = true)]
async fn stores_columns_of_cached_series_without_the_uid_service() {
    let (stack, gate) = Gate::uid_stack().await;
    gate.release(1);
    let known = SeriesDeclaration {
        metric_symbol: 0,
        tag_symbols: vec![1, 2],
        ..Default::default()
    };
    let unknown = SeriesDeclaration {
        metric_symbol: 0,
        tag_symbols: vec![1, 3],
        ..Default::default()
    };
    let request = |series: Vec<SeriesDeclaration>| {
        let numbers = 0..u32::try_from(series.len()).unwrap();
        let blocks = numbers.map(|number| ints(&[number], &[1000, 2000], &[1, 2]));
        columns_request(Columns {
            new_symbols: ["m", "host", "a", "new"].map(str::to_owned).to_vec(),
            blocks: blocks.collect(),
            new_series: series,
            ..Columns::default()
        })
    };
    let mut client = stack.client();
    let response = client.write_columns(request(vec![known.clone()])).await.unwrap();
    assert_eq!(response.into_inner().written, 2);
    let response = client
        .write_columns(request(vec![unknown.clone(), known]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((response.written, response.failed), (2, 2));
    let errors = response.failures.unwrap().errors;
    assert_eq!((errors[0].first, errors[0].count, errors.len()), (0, 2, 1));
    assert!(errors[0].error.as_ref().unwrap().retryable);
    let status = client.write_columns(request(vec![unknown])).await.unwrap_err();
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::UidServiceUnavailable),
        "{status:?}"
    );
}

#[tokio::test]
async fn rejects_columns_with_undeclared_references() {
    let stack = TestStack::start().await;
    let rejection = async |change: fn(&mut Columns)| {
        let mut columns = declarations();
        columns.blocks = vec![ints(&[0], &[1000], &[1])];
        change(&mut columns);
        let status = stack
            .client()
            .write_columns(columns_request(columns))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        (reason_of(&status).unwrap(), status.message().to_owned())
    };
    let undeclared = |message: &str| (ErrorReason::UndeclaredReference, message.to_owned());
    assert_eq!(
        rejection(|columns| columns.blocks.push(ints(&[2], &[1000], &[1]))).await,
        undeclared("columns.blocks[1].series: refers to series 2, 2 are declared")
    );
    assert_eq!(
        rejection(|columns| columns.new_series[1].metric_symbol = 4).await,
        undeclared("columns.new_series[1].metric_symbol: refers to symbol 4, 4 are declared")
    );
    assert_eq!(
        rejection(|columns| columns.new_series[1].tag_symbols[1] = u32::MAX).await,
        undeclared("columns.new_series[1].tag_symbols: refers to symbol 4294967295, 4 are declared")
    );
    assert_eq!(
        rejection(|columns| columns.first_symbol = 1).await.0,
        ErrorReason::DeclarationOutOfSequence
    );
    assert_eq!(
        rejection(|columns| columns.new_series[0].tag_symbols.push(0)).await,
        (
            ErrorReason::InvalidTags,
            "columns.new_series[0].tag_symbols: has 3 elements, expected pairs of key and value".to_owned()
        )
    );
    assert_eq!(stack.cells("tsdb").await, Vec::<String>::new());
}
