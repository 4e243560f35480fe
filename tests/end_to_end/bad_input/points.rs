//! Points that are rejected, between good ones.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::ErrorReason::{self, *};
use oxtsdb_proto::data::v1::PointError;
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::read_back;
use oxtsdb_tests::sample::{Number, Sample};
use tonic::Code;

pub(crate) const GOOD: &str = "good.points";
pub(crate) const T: i64 = 1_500_000_000_000;

/// A point that is rejected, and what its error says.
pub(crate) struct Bad {
    pub(crate) what: &'static str,
    pub(crate) sample: Sample,
    pub(crate) reason: ErrorReason,
    /// Parts of the message: the field or value, and the rule.
    pub(crate) says: &'static [&'static str],
}

fn bad(what: &'static str, sample: Sample, reason: ErrorReason, says: &'static [&'static str]) -> Bad {
    Bad {
        what,
        sample,
        reason,
        says,
    }
}

fn host(metric: &str, timestamp_ms: i64, value: Number) -> Sample {
    Sample::new(metric, &[("host", "a")], timestamp_ms, value)
}

fn tags(tags: &[(&str, &str)]) -> Sample {
    Sample::int("m", tags, T, 1)
}

pub(crate) fn bad_points() -> Vec<Bad> {
    let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|key| (key, "v"));
    let one = Number::Int(1);
    let long = "x".repeat(40_000);
    vec![
        bad(
            "empty metric",
            host("", T, one),
            InvalidName,
            &["metric", "empty"],
        ),
        bad(
            "illegal metric",
            host("a b", T, one),
            InvalidName,
            &["metric", "`a b`", "` `"],
        ),
        bad(
            "metric outside ISO-8859-1",
            host("日本", T, one),
            InvalidName,
            &["metric", "日本", "ISO-8859-1"],
        ),
        bad(
            "metric too long",
            host(&long, T, one),
            InvalidName,
            &["metric", "40000", "at most"],
        ),
        bad(
            "empty tag key",
            tags(&[("", "v")]),
            InvalidName,
            &["tag key", "empty"],
        ),
        bad(
            "illegal tag key",
            tags(&[("a=b", "v")]),
            InvalidName,
            &["tag key", "`a=b`", "`=`"],
        ),
        bad(
            "empty tag value",
            tags(&[("host", "")]),
            InvalidName,
            &["tag value", "host", "empty"],
        ),
        bad(
            "illegal tag value",
            tags(&[("host", "a:b")]),
            InvalidName,
            &["tag value", "host", "`a:b`"],
        ),
        bad("no tags", tags(&[]), InvalidTags, &["no tags", "at least 1"]),
        bad(
            "nine tags",
            tags(&nine),
            InvalidTags,
            &["has 9 tags", "at most 8"],
        ),
        bad(
            "a tag key twice",
            tags(&[("host", "a"), ("host", "b")]),
            InvalidTags,
            &["`host`", "twice"],
        ),
        bad(
            "NaN",
            host("m", T, Number::Double(f64::NAN)),
            InvalidValue,
            &["NaN"],
        ),
        bad(
            "infinity",
            host("m", T, Number::Double(f64::INFINITY)),
            InvalidValue,
            &["Infinity"],
        ),
        bad(
            "negative infinity",
            host("m", T, Number::Double(f64::NEG_INFINITY)),
            InvalidValue,
            &["-Infinity"],
        ),
        bad(
            "time zero",
            host("m", 0, one),
            InvalidTimestamp,
            &["timestamp 0", "1 to 4294967295999"],
        ),
        bad(
            "negative time",
            host("m", -5, one),
            InvalidTimestamp,
            &["timestamp -5", "1 to 4294967295999"],
        ),
        bad(
            "time beyond 32 bits of seconds",
            host("m", 4_294_967_296_000, one),
            InvalidTimestamp,
            &["4294967296000", "1 to 4294967295999"],
        ),
    ]
}

/// A batch that has good points before, between and after the bad ones.
pub(crate) fn mixed(bad: &[Bad], path: &str) -> Vec<Sample> {
    let good = |number: usize| {
        let number = i64::try_from(number).expect("few points");
        Sample::int(GOOD, &[("path", path)], T + number * 1000, number)
    };
    let mut samples = vec![good(0)];
    for (number, bad) in bad.iter().enumerate() {
        samples.push(bad.sample.clone());
        samples.push(good(number + 1));
    }
    samples
}

pub(crate) fn check_errors(bad: &[Bad], errors: &[PointError]) -> anyhow::Result<()> {
    for (number, bad) in bad.iter().enumerate() {
        let place = u64::try_from(number * 2 + 1)?;
        let error = errors.iter().find(|error| error.first == place);
        let error = error
            .and_then(|error| error.error.as_ref())
            .with_context(|| format!("{}: no error for point {place} in {errors:?}", bad.what))?;
        ensure!(error.reason() == bad.reason, "{}: {error:?}", bad.what);
        ensure!(
            Code::from(error.code) == Code::InvalidArgument && !error.retryable,
            "{}: {error:?}",
            bad.what
        );
        for part in bad.says {
            ensure!(error.message.contains(part), "{}: {:?}", bad.what, error.message);
        }
    }
    ensure!(errors.len() == bad.len(), "{errors:?}");
    Ok(())
}

/// The good points of [`mixed`] are all there.
pub(crate) async fn check_good(tsdb: &Tsdb, path: &str, count: usize) -> anyhow::Result<()> {
    let series = read_back::series_of(&mut tsdb.data(), GOOD).await?;
    let tags = [("path".to_owned(), path.to_owned())].into();
    let points = series
        .get(&tags)
        .with_context(|| format!("no series of {path}"))?;
    let expected: Vec<(i64, Number)> = (0..i64::try_from(count)?)
        .map(|number| (T + number * 1000, Number::Int(number)))
        .collect();
    ensure!(*points == expected, "{path}: {points:?}");
    Ok(())
}
