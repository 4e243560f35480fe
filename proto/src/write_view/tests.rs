use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::bounds::MAX_UNFOLDED_BYTES;
use crate::bounds::tests::bound_of;
use crate::common::v1::Tag;
use crate::data::v1::{TimeSeries, TimeUnit};
use crate::decode_request;

/// A series of a request, whoever decoded it: metric and tags, TSUID, columns.
type Contents = (
    Option<(String, Vec<(String, String)>)>,
    Option<Vec<u8>>,
    (Vec<i64>, Vec<u64>, Vec<i64>),
);

fn contents(view: &WriteView<'_>) -> Vec<Contents> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let series = view.keys().zip(view.columns()).map(|(key, columns)| {
        let (name, tsuid) = match key {
            SeriesKey::Missing => (None, None),
            SeriesKey::Encoded { metric, tags: text } => {
                (Some((metric.to_owned(), tags(text).map(owned).collect())), None)
            }
            SeriesKey::Name(name) => {
                let tags = name.tags.iter().map(|tag| owned((&tag.key, &tag.value)));
                (Some((name.metric.clone(), tags.collect())), None)
            }
            SeriesKey::Tsuid(tsuid) => (None, Some(tsuid.to_vec())),
        };
        // NaN equals itself.
        let values = columns.values.iter().map(|value| value.to_bits());
        let columns = (
            columns.timestamps.to_vec(),
            values.collect(),
            columns.int_values.to_vec(),
        );
        (name, tsuid, columns)
    });
    series.collect()
}

/// Returns whether there is a view of the message; a view must have the contents of the decoded message.
fn agrees(message: &[u8]) -> bool {
    let Some(view) = WriteView::decode(message) else {
        return false;
    };
    let decoded: WriteRequest = decode_request(message.to_vec().into()).expect("a view of a bad message");
    assert_eq!(view.options, decoded.options);
    assert_eq!(contents(&view), contents(&WriteView::from_request(&decoded)));
    true
}

fn any_series() -> impl Strategy<Value = TimeSeries> {
    let text = || "[a-zé語]{0,5}";
    let tags = vec((text(), text()), 0..4);
    let name = (text(), tags).prop_map(|(metric, tags)| {
        let tags = tags.into_iter().map(|(key, value)| Tag { key, value });
        let tags = tags.collect();
        Series::Name(SeriesName { metric, tags })
    });
    let tsuid = vec(any::<u8>(), 0..12).prop_map(|bytes| Series::Tsuid(bytes.into()));
    let (numbers, doubles) = (|| vec(any::<i64>(), 0..4), vec(any::<f64>(), 0..4));
    let series = proptest::option::of(prop_oneof![4 => name, 1 => tsuid]);
    (series, numbers(), doubles, numbers()).prop_map(|(series, timestamps, values, int_values)| TimeSeries {
        series,
        timestamps,
        values,
        int_values,
    })
}

fn any_request() -> impl Strategy<Value = WriteRequest> {
    let options = (0..4_i32, any::<bool>(), proptest::option::of(0..9_u32));
    let options = options.prop_map(|(time_unit, allow_any_time, max_errors)| WriteOptions {
        time_unit,
        allow_any_time,
        max_errors,
        ..WriteOptions::default()
    });
    let options = proptest::option::of(options);
    (vec(any_series(), 0..4), options).prop_map(|(series, options)| WriteRequest { series, options })
}

/// A change of a message: bytes at a place are removed, others are inserted.
fn any_change() -> impl Strategy<Value = (prop::sample::Index, usize, Vec<u8>)> {
    let keys = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![
            0x0a, 0x12, 0x1a, 0x18, 0x22, 0x21, 0x2a, 0x28, 0x80, 0, 1, 2
        ]),
    ];
    (any::<prop::sample::Index>(), 0..3_usize, vec(keys, 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_view_has_what_the_message_has(request in any_request(), changes in vec(any_change(), 0..4)) {
        let mut message = request.encode_to_vec();
        for (place, removed, inserted) in changes {
            let place = place.index(message.len() + 1);
            let end = (place + removed).min(message.len());
            message.splice(place..end, inserted);
        }
        agrees(&message);
    }
}

fn request(series: Vec<TimeSeries>) -> WriteRequest {
    WriteRequest {
        series,
        options: Some(WriteOptions {
            time_unit: TimeUnit::Milliseconds.into(),
            ..WriteOptions::default()
        }),
    }
}

fn named(metric: &str, tags: &[(&str, &str)]) -> TimeSeries {
    let tags = tags.iter().map(|(key, value)| Tag {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    let (metric, tags) = (metric.to_owned(), tags.collect());
    TimeSeries {
        series: Some(Series::Name(SeriesName { metric, tags })),
        timestamps: vec![1_700_000_000_000, -1, i64::MAX],
        values: vec![0.5, f64::NAN, -0.0],
        int_values: vec![i64::MIN, 0, 7],
    }
}

#[test]
fn usual_requests_have_a_view() {
    let tsuid = TimeSeries {
        series: Some(Series::Tsuid(vec![0, 0, 1].into())),
        ..named("", &[])
    };
    let all = vec![
        named("sys.cpu.user", &[("host", "web01"), ("dc", "lga")]),
        tsuid,
        named("température", &[("hôte", "語")]),
        TimeSeries::default(),
    ];
    assert!(agrees(&request(all).encode_to_vec()));
    assert!(agrees(&[]));
    let long = "x".repeat(128);
    assert!(!agrees(
        &request(vec![named(&long, &[("a", "b")])]).encode_to_vec()
    ));
}

#[test]
fn numbers_may_be_unpacked_and_in_pieces() {
    let series = [
        &[0x1a, 1, 5, 0x18, 6, 0x2a, 2, 1, 2, 0x28, 3, 0x22, 8][..],
        &1.5_f64.to_bits().swap_bytes().to_be_bytes(),
        &[0x21],
        &2.5_f64.to_bits().swap_bytes().to_be_bytes(),
    ]
    .concat();
    let message = [&[0x0a, u8::try_from(series.len()).unwrap()], &series[..]].concat();
    assert!(agrees(&message));
    let view = WriteView::decode(&message).unwrap();
    let columns = view.columns().next().unwrap();
    assert_eq!(
        (columns.timestamps, columns.values),
        (&[5, 6][..], &[1.5, 2.5][..])
    );
    assert_eq!(columns.int_values, [-1, 1, -2]);
}

#[test]
fn unusual_and_malformed_requests_have_none() {
    let good = request(vec![named("m", &[("a", "b")])]).encode_to_vec();
    assert!(agrees(&good));
    for (bad, what) in [
        ([&good[..], &good[good.len() - 4..]].concat(), "options twice"),
        ([&good[..], &[0x1a, 0]].concat(), "an unknown field"),
        (good[..good.len() - 1].to_vec(), "cut short"),
        (vec![0x0a, 2, 0x1a, 0x80], "a number cut short"),
        (vec![0x0a, 4, 0x0a, 2, 0x0a, 5], "a metric beyond its name"),
        (vec![0x0a, 5, 0x0a, 3, 0x0a, 1, 0xff], "no UTF-8"),
        (
            vec![0x0a, 8, 0x12, 0, 0x0a, 4, 0x0a, 0, 0x12, 0],
            "a series by TSUID and name",
        ),
        (vec![0x0a, 3, 0x22, 1, 0], "a double of one byte"),
    ] {
        assert!(!agrees(&bad), "{what}");
    }
    let number = |bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).unwrap();
        agrees(&[&[0x0a, length + 2, 0x1a, length], bytes].concat())
    };
    assert!(number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]));
    assert!(!number(&[
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2
    ]));
    assert!(!number(&[0x80; 11]));
}

#[test]
fn views_are_within_all_bounds() {
    let mut unfolded = 0;
    let numbers = ["timestamps", "values", "int_values"]
        .map(|name| (format!("data.v1.TimeSeries.{name}"), MAX_NUMBERS));
    let others = [
        ("data.v1.WriteRequest.series".to_owned(), MAX_SERIES),
        ("common.v1.SeriesName.tags".to_owned(), MAX_TAGS),
    ];
    for (field, max) in others.into_iter().chain(numbers) {
        let (limit, element_bytes) = bound_of(&format!("oxtsdb.{field}"));
        assert!(max <= limit, "{field}");
        unfolded += max * element_bytes;
    }
    assert!(unfolded as u64 <= MAX_UNFOLDED_BYTES, "{unfolded}");
    let many = vec![named("m", &[("a", "b")]); MAX_NUMBERS / 3];
    assert!(agrees(&request(many.clone()).encode_to_vec()));
    let more = [many, vec![named("m", &[("a", "b")])]].concat();
    assert!(!agrees(&request(more).encode_to_vec()));
}
