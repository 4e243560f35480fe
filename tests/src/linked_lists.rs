//! Points that form linked lists, as the rows of HBase's `IntegrationTestBigLinkedList`.
//!
//! The value of a point is the number of the point before it in its list, which was acknowledged before this one was sent. A lost
//! point breaks its list: nothing but the table is needed to find it. The calls are remembered as well, for points that were not
//! acknowledged and may be stored, and for reads while points are written.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::ensure;

use crate::sample::{Number, Sample};

/// Points of a call, each of another list.
pub const BATCH: usize = 20;
/// Time of the first point, and of the next ones a second each.
pub const BEGIN_MS: i64 = 1_500_000_000_000;

/// Series with their tags and points, as [`series_of`](crate::read_back::series_of) returns them.
pub type StoredSeries = BTreeMap<BTreeMap<String, String>, Vec<(i64, Number)>>;

/// The calls of some writers; each writes a series, and has one call in flight.
#[derive(Debug)]
pub struct LinkedLists {
    metric: String,
    writers: Vec<Vec<Call>>,
    /// First point of the next call.
    next: i64,
}

/// A call with the points `first..first + BATCH`.
#[derive(Clone, Copy, Debug)]
struct Call {
    first: i64,
    /// First point of the writer's last acknowledged call before this one; `first` itself if there is none.
    previous: i64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Failed,
    Acknowledged,
}

/// How many calls each writer had completed at a moment.
#[derive(Clone, Debug)]
pub struct Completed(Vec<usize>);

/// A comparison of stored points with the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Points that were acknowledged before the read.
    pub acknowledged: usize,
    /// Points that were acknowledged before the read, and are not stored.
    pub lost: usize,
    /// Points that were never sent, or with another value.
    pub wrong: usize,
    /// The first lost and wrong points.
    pub examples: Vec<String>,
}

impl Findings {
    /// Fails if a point is lost or wrong.
    ///
    /// # Errors
    ///
    /// As said.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.lost == 0 && self.wrong == 0, "{self:?}");
        Ok(())
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < 5 {
            self.examples.push(text);
        }
    }
}

impl LinkedLists {
    /// Lists of a metric, without points.
    pub fn new(metric: &str, writers: usize) -> Self {
        Self {
            metric: metric.to_owned(),
            writers: vec![Vec::new(); writers],
            next: 0,
        }
    }

    /// Begins a writer's next call; returns its points.
    pub fn begin(&mut self, writer: usize) -> Vec<Sample> {
        let calls = &mut self.writers[writer];
        let first = self.next;
        self.next += BATCH as i64;
        let previous = match calls.last() {
            Some(last) if last.state == State::Acknowledged => last.first,
            Some(last) if last.previous != last.first => last.previous,
            _ => first,
        };
        let call = Call {
            first,
            previous,
            state: State::InFlight,
        };
        calls.push(call);
        self.samples(writer, call).collect()
    }

    /// Completes the call that the writer has in flight.
    pub fn complete(&mut self, writer: usize, is_acknowledged: bool) {
        if let Some(call) = self.writers[writer].last_mut() {
            call.state = if is_acknowledged {
                State::Acknowledged
            } else {
                State::Failed
            };
        }
    }

    /// Time of the next point.
    pub fn end_ms(&self) -> i64 {
        instant(self.next)
    }

    /// All points that are acknowledged.
    pub fn acknowledged(&self) -> impl Iterator<Item = Sample> {
        self.writers.iter().enumerate().flat_map(move |(writer, calls)| {
            let calls = calls.iter().filter(|call| call.state == State::Acknowledged);
            calls.flat_map(move |call| self.samples(writer, *call))
        })
    }

    /// The calls that are complete now, for [`LinkedLists::compare`] after a read that begins after this.
    pub fn completed(&self) -> Completed {
        let count = |calls: &Vec<Call>| {
            let in_flight = calls.last().is_some_and(|call| call.state == State::InFlight);
            calls.len() - usize::from(in_flight)
        };
        Completed(self.writers.iter().map(count).collect())
    }

    /// Compares the points of a range of time, which were read after `completed`.
    pub fn compare(&self, stored: &StoredSeries, range_ms: &Range<i64>, completed: &Completed) -> Findings {
        let mut findings = Findings::default();
        for (writer, (calls, completed)) in self.writers.iter().zip(&completed.0).enumerate() {
            for call in calls.iter().take(*completed) {
                if call.state != State::Acknowledged {
                    continue;
                }
                for sample in self.samples(writer, *call) {
                    if !range_ms.contains(&sample.timestamp_ms) {
                        continue;
                    }
                    findings.acknowledged += 1;
                    if value_at(stored, writer, sample.timestamp_ms).is_none() {
                        findings.lost += 1;
                        findings.example(format!("lost: {sample:?}"));
                    }
                }
            }
        }
        for (tags, points) in stored {
            let writer = (0..self.writers.len()).find(|writer| *tags == self::tags(*writer));
            for (instant, value) in points {
                let sent = writer.and_then(|writer| self.sent(writer, *instant));
                if sent.is_none_or(|sent| *value != Number::Int(sent)) {
                    findings.wrong += 1;
                    findings.example(format!(
                        "wrong: {tags:?} has {value:?} at {instant}, sent was {sent:?}"
                    ));
                }
            }
        }
        findings
    }

    /// Follows each list in the stored points, from its last acknowledged point to its first one; returns the number of points.
    ///
    /// # Errors
    ///
    /// If a link leads to no point, or not back in time.
    pub fn follow(&self, stored: &StoredSeries) -> anyhow::Result<usize> {
        let mut followed = 0;
        for (writer, calls) in self.writers.iter().enumerate() {
            let acknowledged = |call: &&Call| call.state == State::Acknowledged;
            let Some(last) = calls.iter().rev().find(acknowledged) else {
                continue;
            };
            for list in 0..BATCH as i64 {
                let mut number = last.first + list;
                loop {
                    let Some(Number::Int(previous)) = value_at(stored, writer, instant(number)) else {
                        anyhow::bail!(
                            "point {number} of writer {writer} is not stored; the next one in its list is"
                        );
                    };
                    followed += 1;
                    if previous == number {
                        break;
                    }
                    ensure!(
                        previous < number,
                        "point {number} of writer {writer} links to {previous}"
                    );
                    number = previous;
                }
            }
        }
        Ok(followed)
    }

    /// The value that was sent at an instant, also if the call failed.
    fn sent(&self, writer: usize, instant_ms: i64) -> Option<i64> {
        let calls = &self.writers[writer];
        let number = (instant_ms - BEGIN_MS) / 1000;
        let place = calls
            .partition_point(|call| call.first <= number)
            .checked_sub(1)?;
        let call = &calls[place];
        let is_sent = number < call.first + BATCH as i64 && instant_ms == instant(number);
        is_sent.then_some(call.previous + (number - call.first))
    }

    fn samples(&self, writer: usize, call: Call) -> impl Iterator<Item = Sample> {
        let host = host(writer);
        (0..BATCH as i64).map(move |n| {
            let tags = [("host", host.as_str())];
            Sample::int(&self.metric, &tags, instant(call.first + n), call.previous + n)
        })
    }
}

fn instant(number: i64) -> i64 {
    BEGIN_MS + number * 1000
}

fn host(writer: usize) -> String {
    format!("host{writer}")
}

fn tags(writer: usize) -> BTreeMap<String, String> {
    BTreeMap::from([("host".to_owned(), host(writer))])
}

fn value_at(stored: &StoredSeries, writer: usize, instant_ms: i64) -> Option<Number> {
    let points = stored.get(&tags(writer))?;
    let place = points
        .binary_search_by_key(&instant_ms, |(instant, _)| *instant)
        .ok()?;
    Some(points[place].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two writers with an acknowledged call, a failed one that is stored, and one after it.
    fn written() -> (LinkedLists, StoredSeries) {
        let mut lists = LinkedLists::new("m", 2);
        let mut stored = StoredSeries::new();
        for is_acknowledged in [true, false, true] {
            for writer in 0..2 {
                let points = stored.entry(tags(writer)).or_default();
                points.extend(
                    lists
                        .begin(writer)
                        .iter()
                        .map(|sample| (sample.timestamp_ms, sample.value)),
                );
                lists.complete(writer, is_acknowledged);
            }
        }
        (lists, stored)
    }

    fn compare(lists: &LinkedLists, stored: &StoredSeries) -> (usize, usize) {
        let findings = lists.compare(stored, &(0..i64::MAX), &lists.completed());
        assert_eq!(findings.acknowledged, 4 * BATCH);
        (findings.lost, findings.wrong)
    }

    #[test]
    fn finds_nothing_in_what_was_written() {
        let (lists, mut stored) = written();
        assert_eq!(compare(&lists, &stored), (0, 0));
        assert_eq!(lists.follow(&stored).unwrap(), 4 * BATCH);
        assert_eq!(lists.acknowledged().count(), 4 * BATCH);
        // The failed calls may be stored or not.
        for points in stored.values_mut() {
            points.drain(BATCH..2 * BATCH);
        }
        assert_eq!(compare(&lists, &stored), (0, 0));
        assert_eq!(lists.follow(&stored).unwrap(), 4 * BATCH);
    }

    #[test]
    fn finds_a_lost_point() {
        let (lists, mut stored) = written();
        stored.get_mut(&tags(1)).unwrap().remove(3);
        assert_eq!(compare(&lists, &stored), (1, 0));
        lists.follow(&stored).unwrap_err();
    }

    #[test]
    fn finds_wrong_points() {
        let (lists, mut stored) = written();
        stored.get_mut(&tags(1)).unwrap()[BATCH].1 = Number::Int(7);
        stored
            .get_mut(&tags(0))
            .unwrap()
            .push((lists.end_ms(), Number::Int(0)));
        stored.insert(tags(2), vec![(BEGIN_MS, Number::Int(0))]);
        assert_eq!(compare(&lists, &stored), (0, 3));
    }

    #[test]
    fn ignores_calls_that_completed_after_the_read() {
        let (mut lists, stored) = written();
        let completed = lists.completed();
        lists.begin(0);
        lists.complete(0, true);
        lists
            .compare(&stored, &(0..i64::MAX), &completed)
            .check()
            .unwrap();
        lists
            .compare(&stored, &(0..i64::MAX), &lists.completed())
            .check()
            .unwrap_err();
    }
}
