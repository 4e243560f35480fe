//! Aggregates of the windows of a series, computed from its points as queries compute them.
//!
//! A query downsamples in doubles, in order of time. So do these windows; the values of integers are stored as integers,
//! which are the same doubles when they are read.

use oxtsdb_schema::Value;

/// The first double that is too large for an integer of 64 bits.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

/// The aggregates that are built.
pub(crate) const AGGREGATES: [&str; 4] = ["sum", "count", "min", "max"];

/// The aggregates of a window with points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// Its start, milliseconds since the epoch.
    pub(super) start_ms: i64,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    are_ints: bool,
    /// Some of its points cannot be read.
    is_partial: bool,
}

impl Window {
    const fn new(start_ms: i64) -> Self {
        Self {
            start_ms,
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            are_ints: true,
            is_partial: false,
        }
    }

    fn add(&mut self, values: &[f64], are_ints: bool) {
        let (mut sum, mut min, mut max) = (self.sum, self.min, self.max);
        for &value in values {
            sum += value;
            min = if value < min { value } else { min };
            max = if value > max { value } else { max };
        }
        (self.sum, self.min, self.max) = (sum, min, max);
        self.count += values.len() as u64;
        self.are_ints &= are_ints;
    }

    /// The value of one of [`AGGREGATES`]; `None` if it cannot be stored: a sum that is infinite.
    pub(super) fn value(&self, aggregate: &str) -> Option<Value> {
        let value = match aggregate {
            "count" => return i64::try_from(self.count).ok().map(Value::Int),
            "sum" => self.sum,
            "min" => self.min,
            _ => self.max,
        };
        if self.are_ints && (-INTEGERS_END..INTEGERS_END).contains(&value) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "sums of integers have no fraction"
            )]
            return Some(Value::Int(value as i64));
        }
        Value::double(value).ok()
    }
}

/// The windows of one length of one series that begin in a range. Points arrive in order of time.
#[derive(Clone, Debug)]
pub(super) struct Accumulator {
    length_ms: i64,
    /// Starts of the first window, and of the first one after the last; both are windows.
    range_ms: (i64, i64),
    open: Option<Window>,
}

impl Accumulator {
    pub(super) const fn new(length_ms: i64, range_ms: (i64, i64)) -> Self {
        Self {
            length_ms,
            range_ms,
            open: None,
        }
    }

    /// Adds points, all integers or none, and passes on the windows that end before the last of them.
    pub(super) fn feed(
        &mut self,
        times_ms: &[i64],
        values: &[f64],
        are_ints: bool,
        complete: &mut impl FnMut(Window),
    ) {
        let from = times_ms.partition_point(|time_ms| *time_ms < self.range_ms.0);
        let to = times_ms.partition_point(|time_ms| *time_ms < self.range_ms.1);
        let (mut times_ms, mut values) = (&times_ms[from..to.max(from)], &values[from..to.max(from)]);
        while let Some(first_ms) = times_ms.first() {
            let start_ms = first_ms - first_ms.rem_euclid(self.length_ms);
            let stop_ms = start_ms.saturating_add(self.length_ms);
            let count = times_ms.partition_point(|time_ms| *time_ms < stop_ms);
            let window = self.window(start_ms, complete);
            window.add(&values[..count], are_ints);
            (times_ms, values) = (&times_ms[count..], &values[count..]);
        }
    }

    /// Leaves out the window of an instant with points that cannot be read.
    pub(super) fn leave_out(&mut self, time_ms: i64, complete: &mut impl FnMut(Window)) {
        if (self.range_ms.0..self.range_ms.1).contains(&time_ms) {
            let start_ms = time_ms - time_ms.rem_euclid(self.length_ms);
            self.window(start_ms, complete).is_partial = true;
        }
    }

    /// The window of a start; passes on the one before.
    fn window(&mut self, start_ms: i64, complete: &mut impl FnMut(Window)) -> &mut Window {
        let done = self.open.take_if(|window| window.start_ms != start_ms);
        if let Some(done) = done.filter(|window| !window.is_partial) {
            complete(done);
        }
        self.open.get_or_insert(Window::new(start_ms))
    }

    /// Passes on the open window, if it ends at or before an instant.
    pub(super) fn advance(&mut self, until_ms: i64, complete: &mut impl FnMut(Window)) {
        let length_ms = self.length_ms;
        let done = self
            .open
            .take_if(|window| window.start_ms.saturating_add(length_ms) <= until_ms);
        if let Some(done) = done.filter(|window| !window.is_partial) {
            complete(done);
        }
    }

    /// Whether a window has points and is not complete.
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(points: &[(i64, f64, bool)], length_ms: i64, range_ms: (i64, i64)) -> Vec<Window> {
        let mut accumulator = Accumulator::new(length_ms, range_ms);
        let mut windows = Vec::new();
        for (time_ms, value, is_int) in points {
            accumulator.feed(&[*time_ms], &[*value], *is_int, &mut |window| {
                windows.push(window)
            });
        }
        accumulator.advance(i64::MAX, &mut |window| windows.push(window));
        windows
    }

    #[test]
    fn windows_have_all_aggregates() {
        let completed_windows = windows(
            &[(0, 5.0, true), (59_999, -2.0, true), (60_000, 7.0, true)],
            60_000,
            (0, 120_000),
        );
        let values = |window: &Window| AGGREGATES.map(|name| window.value(name).unwrap());
        assert_eq!(
            completed_windows
                .iter()
                .map(|window| window.start_ms)
                .collect::<Vec<_>>(),
            [0, 60_000]
        );
        assert_eq!(values(&completed_windows[0]), [3, 2, -2, 5].map(Value::Int));
        assert_eq!(values(&completed_windows[1]), [7, 1, 7, 7].map(Value::Int));
    }

    #[test]
    fn one_float_makes_values_floats_but_not_the_count() {
        let completed_windows = windows(&[(0, 1.0, true), (1, 2.5, false)], 1000, (0, 1000));
        assert_eq!(completed_windows[0].value("sum"), Some(Value::Double(3.5)));
        assert_eq!(completed_windows[0].value("min"), Some(Value::Double(1.0)));
        assert_eq!(completed_windows[0].value("count"), Some(Value::Int(2)));
    }

    #[test]
    fn sums_beyond_integers_are_doubles_and_infinite_ones_are_left_out() {
        #[expect(clippy::cast_precision_loss, reason = "as queries do")]
        let large = i64::MAX as f64;
        let completed_windows = windows(&[(0, large, true), (1, large, true)], 1000, (0, 1000));
        assert_eq!(
            completed_windows[0].value("sum"),
            Some(Value::Double(large * 2.0))
        );
        let completed_windows = windows(&[(0, f64::MAX, false), (1, f64::MAX, false)], 1000, (0, 1000));
        assert_eq!(completed_windows[0].value("sum"), None);
        assert_eq!(completed_windows[0].value("max"), Some(Value::Double(f64::MAX)));
    }

    #[test]
    fn points_outside_of_the_range_do_not_count() {
        let points: Vec<_> = (0..10).map(|n| (n * 500, 1.0, true)).collect();
        let completed_windows = windows(&points, 1000, (1000, 3000));
        assert_eq!(
            completed_windows
                .iter()
                .map(|window| window.start_ms)
                .collect::<Vec<_>>(),
            [1000, 2000]
        );
        assert!(completed_windows.iter().all(|window| window.count == 2));
    }

    #[test]
    fn only_windows_that_have_ended_are_passed_on() {
        let mut accumulator = Accumulator::new(1000, (0, 10_000));
        accumulator.feed(&[100], &[1.0], true, &mut |_| panic!("the window is open"));
        accumulator.advance(999, &mut |_| panic!("the window is open"));
        assert!(accumulator.is_open());
        let mut done = 0;
        accumulator.advance(1000, &mut |_| done += 1);
        assert_eq!((done, accumulator.is_open()), (1, false));
    }
}
