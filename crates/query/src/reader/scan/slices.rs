//! Splits the hours of a scan into time slices.

use std::sync::Arc;

use oxtsdb_schema::{BaseTime, HOUR_SECONDS};

use super::density::Density;
use crate::plan::hours::Hours;

/// Largest ratio between the lengths of two slices, because the data may become denser. Without an estimate, the first
/// slices have one hour.
const GROWTH: usize = 8;

/// A time slice: consecutive hours of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reader) struct Slice {
    hours: Hours,
    is_first: bool,
    is_last: bool,
}

impl Slice {
    /// How many hours it has.
    pub(in crate::reader) fn hours(&self) -> usize {
        self.hours.count()
    }

    /// Its first timestamp, milliseconds since the epoch.
    pub(in crate::reader) fn start_ms(&self) -> i64 {
        self.hours.start.millis()
    }

    /// The first timestamp after it, milliseconds since the epoch.
    pub(in crate::reader) fn stop_ms(&self) -> i64 {
        self.hours.stop_ms()
    }

    /// Its hours, each as a slice.
    pub(in crate::reader) fn by_hour(&self) -> Vec<Self> {
        let count = self.hours();
        let hour = |(index, start): (usize, BaseTime)| {
            let is_last = index + 1 == count;
            Self {
                hours: Hours {
                    start,
                    stop_seconds: match is_last {
                        true => self.hours.stop_seconds,
                        false => u64::from(start.seconds()) + u64::from(HOUR_SECONDS),
                    },
                },
                is_first: self.is_first && index == 0,
                is_last: self.is_last && is_last,
            }
        };
        self.hours.iter().enumerate().map(hour).collect()
    }

    /// The part of a range of row keys, which begins and ends with a base time, that lies in the slice.
    pub(in crate::reader) fn clip(&self, range: &(Vec<u8>, Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
        let (start, stop) = range;
        let at = |seconds: u32| at_seconds(range, seconds);
        // The ends of the range are kept: no hour follows the last one that a row key can hold.
        let first = if self.is_first {
            start.clone()
        } else {
            at(self.hours.start.seconds())
        };
        let last = if self.is_last {
            stop.clone()
        } else {
            at(u32::try_from(self.hours.stop_seconds).unwrap_or(u32::MAX))
        };
        (first, last)
    }
}

/// The part of a range of row keys, which begins with a base time, from the start of some hours on.
pub(in crate::reader) fn rest_of(range: &(Vec<u8>, Vec<u8>), hours: Hours) -> (Vec<u8>, Vec<u8>) {
    (at_seconds(range, hours.start.seconds()), range.1.clone())
}

/// A key of a range with another base time.
fn at_seconds((start, _): &(Vec<u8>, Vec<u8>), seconds: u32) -> Vec<u8> {
    let prefix = &start[..start.len().saturating_sub(size_of::<u32>())];
    [prefix, &seconds.to_be_bytes()].concat()
}

/// The slices of a scan, in order of time; their length follows the density estimate.
#[derive(Debug)]
pub(in crate::reader) struct Slices {
    /// The remaining hours.
    rest: Hours,
    length: usize,
    is_first: bool,
    density: Arc<Density>,
}

impl Slices {
    /// The slices of some hours.
    pub(in crate::reader) fn new(hours: Hours, density: Arc<Density>) -> Self {
        Self {
            rest: hours,
            length: density.slice_hours().unwrap_or(1),
            is_first: true,
            density,
        }
    }
}

impl Iterator for Slices {
    type Item = Slice;

    fn next(&mut self) -> Option<Slice> {
        let rest = self.rest.count();
        if rest == 0 {
            return None;
        }
        if let Some(hours) = self.density.slice_hours() {
            self.length = hours.min(self.length.saturating_mul(GROWTH));
        }
        let length = self.length.min(rest);
        let is_last = length == rest;
        let seconds = (length as u64).saturating_mul(u64::from(HOUR_SECONDS));
        let stop_seconds = if is_last {
            self.rest.stop_seconds
        } else {
            u64::from(self.rest.start.seconds()) + seconds
        };
        let slice = Slice {
            hours: Hours {
                start: self.rest.start,
                stop_seconds,
            },
            is_first: std::mem::replace(&mut self.is_first, false),
            is_last,
        };
        if is_last {
            self.rest.stop_seconds = 0;
        } else {
            let start = u32::try_from(stop_seconds).unwrap_or(u32::MAX);
            self.rest.start = BaseTime::from_seconds(start);
        }
        Some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u32 = HOUR_SECONDS;

    fn hours(count: u32) -> Hours {
        Hours {
            start: BaseTime::from_seconds(10 * HOUR),
            stop_seconds: u64::from((10 + count) * HOUR),
        }
    }

    fn range(from: u32, to: u32) -> (Vec<u8>, Vec<u8>) {
        let key = |hour: u32| [&[7, 7][..], &(hour * HOUR).to_be_bytes()].concat();
        (key(from), key(to))
    }

    #[test]
    fn slices_follow_each_other_without_gaps() {
        for count in [1, 2, 5, 24, 1000] {
            let density = Arc::new(Density::new(8 << 20));
            let whole = range(10, 10 + count);
            let mut next = whole.0.clone();
            let mut hours_seen = 0;
            for slice in Slices::new(hours(count), Arc::clone(&density)) {
                let (start, stop) = slice.clip(&whole);
                assert_eq!(start, next);
                assert!(start < stop);
                next = stop;
                hours_seen += slice.hours();
                density.add_hours(slice.hours());
                density.add_bytes((slice.hours() as u64) << 20);
            }
            assert_eq!((next, hours_seen), (whole.1, count as usize));
        }
        assert_eq!(Slices::new(hours(0), Arc::new(Density::new(1))).count(), 0);
    }

    #[test]
    fn their_length_follows_the_density() {
        let density = Arc::new(Density::new(8 << 20));
        let mut slices = Slices::new(hours(10_000), Arc::clone(&density));
        let mut next = || slices.next().unwrap().hours();
        assert_eq!([next(), next()], [1, 1], "nothing is known yet");
        density.add_hours(1);
        density.add_bytes(1);
        assert_eq!([next(), next()], [8, 64], "nearly empty hours: longer and longer");
        density.add_bytes(1 << 30);
        assert_eq!(next(), 1, "never less than an hour");
        density.add_hours(1 << 10);
        assert_eq!(next(), 8, "a MiB an hour");
    }

    #[test]
    fn hours_of_a_slice_have_the_same_keys() {
        for count in [1, 2, 8] {
            let whole = (vec![7, 6], vec![7, 8]);
            let slices = Slices::new(hours(count), Arc::new(Density::new(8 << 20)));
            let by_hour: Vec<Slice> = slices.flat_map(|slice| slice.by_hour()).collect();
            assert_eq!(by_hour.len(), count as usize);
            let ranges: Vec<_> = by_hour.iter().map(|slice| slice.clip(&whole)).collect();
            assert_eq!((&ranges[0].0, &ranges[ranges.len() - 1].1), (&whole.0, &whole.1));
            assert!(ranges.windows(2).all(|two| two[0].1 == two[1].0));
        }
    }

    #[test]
    fn the_ends_of_a_range_stay_as_they_are() {
        let hours = Hours {
            start: BaseTime::MAX,
            stop_seconds: u64::MAX,
        };
        let whole = (vec![1, 0xff, 0xff, 0xf8, 0xf0], vec![2]);
        let slices: Vec<_> = Slices::new(hours, Arc::new(Density::new(1))).collect();
        assert_eq!(slices.len(), 1);
        assert_eq!(slices[0].clip(&whole), whole);
    }
}
