use std::collections::HashMap;

use oxtsdb_schema::{Tsuid, UidWidths};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::telnet::batch;

const MAX_LINE_BYTES: usize = 48;

/// Metric and tags.
type Names = (String, Vec<(String, String)>);

/// A cache: the number of each text of a series, and a series for each number.
#[derive(Default)]
struct Cache {
    names: HashMap<(String, String), Names>,
    series: Vec<(Series, Names)>,
}

impl Cache {
    fn known(&mut self, texts: &[SeriesText<'_>]) -> Vec<Option<Series>> {
        let tsuid = Tsuid::from_bytes(&[0, 0, 1, 0, 0, 1, 0, 0, 1], &UidWidths::default()).unwrap();
        let known = texts.iter().map(|text| {
            let key = (text.metric.to_owned(), text.tags.to_owned());
            let names = self.names.get(&key)?.clone();
            let series = Series::new(&tsuid);
            self.series.push((series.clone(), names));
            Some(series)
        });
        known.collect()
    }
}

fn names(metric: &str, tags: &[(&str, &str)]) -> Names {
    let tags = tags.iter();
    let tags = tags.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    (metric.to_owned(), tags.collect())
}

/// The points of a text, its bytes that are read, and how many series were missing. All series are cached then.
fn puts(text: &str, cache: &mut Cache) -> (Vec<(Names, Timestamp, Value)>, usize, usize) {
    let mut puts = parse(text, MAX_LINE_BYTES, 1000, |texts| cache.known(texts));
    let (points, read) = (puts.points.clone(), puts.read);
    let mut parsed = Vec::new();
    let mut missing = 0;
    for (requested, (timestamp, value)) in puts.take_series().zip(points) {
        let names = match requested {
            Requested::Known(known) => {
                let mut series = cache.series.iter();
                series
                    .find(|(series, _)| series.address() == known.address())
                    .unwrap()
                    .1
                    .clone()
            }
            Requested::Series(SeriesRef::Text { text, tags }) => {
                missing += 1;
                let names = names(text.metric, tags);
                let key = (text.metric.to_owned(), text.tags.to_owned());
                cache.names.insert(key, names.clone());
                names
            }
            Requested::Series(other) => panic!("{other:?}"),
        };
        parsed.push((names, timestamp, value));
    }
    (parsed, read, missing)
}

/// The same by the general parser: the points before the first line that needs a reply.
fn general(text: &str) -> (Vec<(Names, Timestamp, Value)>, usize) {
    let mut parsed = Vec::new();
    let mut read = 0;
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let batch = batch::parse(line, MAX_LINE_BYTES, 10, None);
        let ([point], false) = (&batch.points[..], batch.too_long) else {
            break;
        };
        parsed.push((names(point.metric, &batch.tags), point.timestamp, point.value));
        read += line.len();
    }
    (parsed, read)
}

#[test]
fn stops_before_a_line_that_needs_a_reply() {
    let valid = "put m 1356998400 1 a=b\nput m 1356998400.250 1.5 a=b c=d \r\n";
    let long = format!("put m 1 1 a={}\n", "b".repeat(MAX_LINE_BYTES));
    for other in [
        "help\n",
        "\n",
        "exit\n",
        "put\n",
        "put m 1 1\n",
        "PUT m 1 1 a=b\n",
        "put  1 1 a=b\n",
        "put m 0 1 a=b\n",
        "put m x 1 a=b\n",
        "put m 99999999999999 1 a=b\n",
        "put m 1  a=b\n",
        "put m 1 x a=b\n",
        "put m 1 1e400 a=b\n",
        "put m 1 1 a\n",
        "put m 1 1 a=b a=c\n",
        "put m 1 1 a=b",
        &long,
    ] {
        let mut cache = Cache::default();
        let text = format!("{valid}{other}{valid}");
        for missing in [2, 0] {
            let (points, read, missed) = puts(&text, &mut cache);
            assert_eq!((points.len(), read, missed), (2, valid.len(), missing), "{other}");
        }
    }
}

#[test]
fn limits_the_points() {
    let text = "put m 1 1 a=b\n".repeat(10);
    let puts = parse(&text, 48, 4, |texts| vec![None; texts.len()]);
    assert_eq!((puts.points.len(), puts.read), (4, text.len() / 10 * 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Also after some characters are replaced, inserted or deleted, and if some or all series are cached.
    #[test]
    fn parses_what_the_general_parser_parses(
        lines in proptest::collection::vec(
            "put (m|sys\\.cpu|é) (13569984[0-9]{2}(\\.?[0-9]{3})?|[-+0-9.]{1,3}) (-?[0-9]{1,5}(\\.[0-9]{1,3})?|[-+0-9.e]{1,3}) a=b( [ab]=[bc])?\r?\n",
            1..8,
        ),
        mutations in proptest::collection::vec((any::<Index>(), "(put |exit|[ =.0-9abm\r\n-]){0,2}", 0..3_usize), 0..4),
    ) {
        let mut cache = Cache::default();
        let text = lines.concat();
        prop_assert_eq!(&puts(&text, &mut cache).0, &general(&text).0);

        let mut mutated: Vec<char> = text.chars().collect();
        for (index, replacement, deleted) in mutations {
            let from = index.index(mutated.len().max(1)).min(mutated.len());
            let to = (from + deleted).min(mutated.len());
            mutated.splice(from..to, replacement.chars());
        }
        let mutated: String = mutated.into_iter().collect();
        for _ in 0..2 {
            let (points, read, _) = puts(&mutated, &mut cache);
            prop_assert_eq!((points, read), general(&mutated));
        }
    }
}
