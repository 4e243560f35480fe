//! Random operations, compared with a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_schema::Value;

use super::fixture::{Fixture, START_MS, batch, int, millis, read};
use crate::{Point, SeriesNumber, TimeRange};

/// A linear congruential generator: each run makes the same operations.
struct Random {
    state: u64,
    /// Points of one instant may differ in type, width and resolution.
    replaces_kinds: bool,
}

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> i64 {
        self.state = self
            .state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405);
        i64::try_from((self.state >> 33) % bound).unwrap()
    }

    fn chance(&mut self, percent: i64) -> bool {
        self.below(100) < percent
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    /// A point within five days, mostly of the last one, often of an instant that others have.
    fn point(&mut self) -> Point {
        let day = if self.chance(80) { 4 } else { self.below(5) };
        let second = day * 86_400 + self.below(400) * 60;
        if !self.replaces_kinds {
            return int(second, self.below(100));
        }
        match self.below(8) {
            0 => millis(second * 1000, Value::Int(self.below(1 << 30) << 20)),
            1 => millis(second * 1000 + self.below(50), Value::Float(0.25)),
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            2 => millis(second * 1000, Value::Double(self.below(1000) as f64 / 10.0)),
            _ => int(second, self.below(300)),
        }
    }

    fn range(&mut self) -> TimeRange {
        if self.chance(10) {
            return TimeRange::ALL;
        }
        let first_ms = START_MS + self.below(5 * 86_400_000);
        let most = if self.chance(50) {
            3_600_000
        } else {
            2 * 86_400_000
        };
        TimeRange {
            first_ms,
            last_ms: first_ms + self.below(most),
        }
    }
}

pub(super) async fn random_operations_agree_with_a_map(fixture: &Fixture<'_>) {
    let promises = fixture.subject.promises();
    let mut random = Random {
        state: 1,
        replaces_kinds: promises.replaces_kinds,
    };
    let mut store = Arc::clone(&fixture.store);
    let mut expected: BTreeMap<(SeriesNumber, i64), Point> = BTreeMap::new();
    let all = fixture.series(60);
    // Series numbers are durable with the first point.
    let first: Vec<_> = all.iter().map(|series| (*series, int(0, 0))).collect();
    store.append(batch(&first)).await.unwrap();
    expected.extend(
        first
            .iter()
            .map(|(series, point)| ((*series, point.time_ms), *point)),
    );
    // On a store of rows each read is a scan of all hours.
    let rounds = if promises.has_index { 400 } else { 50 };
    for round in 0..rounds {
        match random.below(100) {
            0..60 => {
                let points: Vec<_> = (0..random.below(300))
                    .map(|_| (all[random.index(all.len())], random.point()))
                    .collect();
                store.append(batch(&points)).await.unwrap();
                expected.extend(
                    points
                        .iter()
                        .map(|(series, point)| ((*series, point.time_ms), *point)),
                );
            }
            60..70 => {
                let from = random.index(all.len());
                let series = &all[from..(from + 1 + random.index(5)).min(all.len())];
                let range = random.range();
                if range != TimeRange::ALL {
                    store.delete(series, range).await.unwrap();
                    expected.retain(|(number, time_ms), _| {
                        !(series.contains(number) && range.contains(*time_ms))
                    });
                }
            }
            70..74 if promises.has_index => {
                store.close().await.unwrap();
                store = match fixture.subject.reopen().await {
                    Some(store) => store,
                    None => return,
                };
            }
            _ => {
                let mut series = all.clone();
                series.rotate_left(random.index(all.len()));
                series.truncate(1 + random.index(all.len()));
                let range = random.range();
                let mut points: Vec<(SeriesNumber, Vec<Point>)> = Vec::new();
                for number in &series {
                    let within = expected.range((*number, range.first_ms)..=(*number, range.last_ms));
                    let within: Vec<Point> = within.map(|(_, point)| *point).collect();
                    if !within.is_empty() {
                        points.push((*number, within));
                    }
                }
                let read_points = read(&*store, &series, range).await;
                assert_eq!(read_points, points, "round {round}, {range:?}");
                let newest = series.iter().map(|number| {
                    let (_, points) = points.iter().find(|(candidate, _)| candidate == number)?;
                    points.last().copied()
                });
                let newest: Vec<Option<Point>> = newest.collect();
                let last = store.last(&series, range).await.unwrap();
                assert_eq!(last, newest, "round {round}, {range:?}");
                // Few: on a store of rows each is a scan.
                series.truncate(8);
                let mut reader = store.reader(range).unwrap();
                let last = tokio::task::spawn_blocking(move || {
                    let last = series.iter().map(|series| reader.last(*series));
                    last.collect::<Result<Vec<_>, _>>()
                });
                let last = last.await.unwrap().unwrap();
                assert_eq!(last, newest[..last.len()], "round {round}, {range:?}");
            }
        }
    }
}
