//! Points as columns: a column of instants and a column of values.

use std::ops::Range;

/// A value inside a query. Floats of 4 bytes are widened when they are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// Floating point. NaN only where a fill policy put it.
    Double(f64),
}

impl Number {
    /// The value as a double; integers beyond 2^53 are rounded to nearest.
    #[expect(clippy::cast_precision_loss, reason = "documented")]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Double(double) => double,
        }
    }

    /// Whether the value is an integer.
    pub const fn is_int(self) -> bool {
        matches!(self, Self::Int(_))
    }
}

impl From<oxtsdb_schema::Value> for Number {
    fn from(value: oxtsdb_schema::Value) -> Self {
        match value {
            oxtsdb_schema::Value::Int(int) => Self::Int(int),
            oxtsdb_schema::Value::Float(float) => Self::Double(f64::from(float)),
            oxtsdb_schema::Value::Double(double) => Self::Double(double),
        }
    }
}

/// A column of values. Nearly every series has values of one type only, and is computed with as an
/// array of that type; the third form is for the others.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// All are integers.
    Ints(Vec<i64>),
    /// All are floating point.
    Doubles(Vec<f64>),
    /// Both.
    Mixed(Vec<Number>),
}

impl Values {
    /// How many there are.
    pub const fn len(&self) -> usize {
        match self {
            Self::Ints(values) => values.len(),
            Self::Doubles(values) => values.len(),
            Self::Mixed(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at an index.
    ///
    /// # Panics
    ///
    /// If the index is out of bounds.
    #[inline]
    pub fn get(&self, index: usize) -> Number {
        match self {
            Self::Ints(values) => Number::Int(values[index]),
            Self::Doubles(values) => Number::Double(values[index]),
            Self::Mixed(values) => values[index],
        }
    }

    fn push(&mut self, value: Number) {
        match (&mut *self, value) {
            (Self::Ints(values), Number::Int(int)) => values.push(int),
            (Self::Doubles(values), Number::Double(double)) => values.push(double),
            (Self::Mixed(values), value) => values.push(value),
            (Self::Ints(values), Number::Double(double)) if values.is_empty() => {
                *self = Self::Doubles(vec![double]);
            }
            (Self::Doubles(values), Number::Int(int)) if values.is_empty() => *self = Self::Ints(vec![int]),
            (Self::Ints(values), value) => {
                let mut mixed: Vec<_> = values.iter().copied().map(Number::Int).collect();
                mixed.push(value);
                *self = Self::Mixed(mixed);
            }
            (Self::Doubles(values), value) => {
                let mut mixed: Vec<_> = values.iter().copied().map(Number::Double).collect();
                mixed.push(value);
                *self = Self::Mixed(mixed);
            }
        }
    }
}

/// Points of a series or of a group, in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    times_ms: Vec<i64>,
    values: Values,
}

impl Default for Points {
    fn default() -> Self {
        Self {
            times_ms: Vec::new(),
            values: Values::Ints(Vec::new()),
        }
    }
}

impl Points {
    /// Points of two columns.
    ///
    /// # Panics
    ///
    /// If the columns differ in length.
    pub fn new(times_ms: Vec<i64>, values: Values) -> Self {
        assert_eq!(times_ms.len(), values.len(), "instants and values come in pairs");
        Self { times_ms, values }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.times_ms.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }

    /// The instants, milliseconds since the epoch, ascending.
    pub fn times_ms(&self) -> &[i64] {
        &self.times_ms
    }

    /// The values, in the order of the instants.
    pub const fn values(&self) -> &Values {
        &self.values
    }

    /// Memory of its columns, in bytes.
    pub const fn held_bytes(&self) -> u64 {
        let values = match &self.values {
            Values::Ints(values) => values.capacity() * size_of::<i64>(),
            Values::Doubles(values) => values.capacity() * size_of::<f64>(),
            Values::Mixed(values) => values.capacity() * size_of::<Number>(),
        };
        (self.times_ms.capacity() * size_of::<i64>() + values) as u64
    }

    /// Instants with their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i64, Number)> + '_ {
        self.times_ms
            .iter()
            .enumerate()
            .map(|(index, time_ms)| (*time_ms, self.values.get(index)))
    }

    /// Adds a point at the end.
    #[inline]
    pub fn push(&mut self, time_ms: i64, value: Number) {
        self.times_ms.push(time_ms);
        self.values.push(value);
    }

    /// Both columns, for appending; the caller keeps their lengths equal.
    pub(super) const fn columns_mut(&mut self) -> (&mut Vec<i64>, &mut Values) {
        (&mut self.times_ms, &mut self.values)
    }

    /// Reserves capacity for more points.
    pub fn reserve(&mut self, points: usize) {
        self.times_ms.reserve(points);
        match &mut self.values {
            Values::Ints(values) => values.reserve(points),
            Values::Doubles(values) => values.reserve(points),
            Values::Mixed(values) => values.reserve(points),
        }
    }

    /// Adds points that come after these.
    pub fn append(&mut self, mut later: Self) {
        if self.is_empty() {
            *self = later;
            return;
        }
        match (&mut self.values, &mut later.values) {
            (Values::Ints(values), Values::Ints(more)) => values.append(more),
            (Values::Doubles(values), Values::Doubles(more)) => values.append(more),
            (Values::Mixed(values), Values::Mixed(more)) => values.append(more),
            _ => {
                for (time_ms, value) in later.iter() {
                    self.push(time_ms, value);
                }
                return;
            }
        }
        self.times_ms.append(&mut later.times_ms);
    }

    /// Drops the first points, and the memory of columns that become mostly empty.
    pub fn drop_front(&mut self, count: usize) {
        fn drop_first<T>(column: &mut Vec<T>, count: usize) {
            column.drain(..count);
            if column.len() < column.capacity() / 4 {
                column.shrink_to_fit();
            }
        }
        drop_first(&mut self.times_ms, count);
        match &mut self.values {
            Values::Ints(values) => drop_first(values, count),
            Values::Doubles(values) => drop_first(values, count),
            Values::Mixed(values) => drop_first(values, count),
        }
    }

    /// The indices of the points with timestamps in the range, both ends included.
    pub fn indices_between(&self, start_ms: i64, end_ms: i64) -> Range<usize> {
        let from = self.times_ms.partition_point(|time_ms| *time_ms < start_ms);
        let to = self.times_ms.partition_point(|time_ms| *time_ms <= end_ms);
        from..to.max(from)
    }

    /// A copy of the points with timestamps in the range, both ends included.
    #[must_use]
    pub fn between(&self, start_ms: i64, end_ms: i64) -> Self {
        let indices = self.indices_between(start_ms, end_ms);
        Self {
            times_ms: self.times_ms[indices.clone()].to_vec(),
            values: match &self.values {
                Values::Ints(values) => Values::Ints(values[indices].to_vec()),
                Values::Doubles(values) => Values::Doubles(values[indices].to_vec()),
                Values::Mixed(values) => Values::Mixed(values[indices].to_vec()),
            },
        }
    }
}

impl FromIterator<(i64, Number)> for Points {
    fn from_iter<I: IntoIterator<Item = (i64, Number)>>(points: I) -> Self {
        let mut all = Self::default();
        for (time_ms, value) in points {
            all.push(time_ms, value);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_use_the_narrowest_type() {
        let mut points = Points::default();
        points.push(1, Number::Double(0.5));
        assert_eq!(
            points.values(),
            &Values::Doubles(vec![0.5]),
            "an empty column takes any type"
        );
        points.push(2, Number::Int(7));
        assert_eq!(
            points.values(),
            &Values::Mixed(vec![Number::Double(0.5), Number::Int(7)])
        );

        let ints: Points = [(1, Number::Int(1)), (2, Number::Int(2))].into_iter().collect();
        assert_eq!(ints.values(), &Values::Ints(vec![1, 2]));
    }

    #[test]
    fn ranges_include_both_ends() {
        let points: Points = (0..10).map(|i| (i * 10, Number::Int(i))).collect();
        let cut = points.between(20, 40);
        assert_eq!(cut, Points::new(vec![20, 30, 40], Values::Ints(vec![2, 3, 4])));
        assert!(points.between(41, 49).is_empty());
        assert!(points.between(50, 10).is_empty(), "an empty range has no points");
    }
}
