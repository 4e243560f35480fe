//! Heat maps: histograms over time, a column for each, its buckets coloured by count.
//!
//! If a column would be narrower than some pixels, histograms that lie in the same column are added up.

use std::collections::BTreeMap;

use crate::axis::TimeRange;
use crate::canvas::Canvas;
use crate::color::Theme;
use crate::geometry::{Path, Rect};
use crate::scale::Extent;
use crate::series::{Bucket, Histogram};
use crate::size::Size;
use crate::trace_path::Plane;

/// The width of the narrowest column in pixels.
const MIN_WIDTH: f64 = 3.0;
/// The width of the only column, as a share of the plot.
const SINGLE_WIDTH: f64 = 0.02;
/// Colours of counts. Neighbours of the same colour are one shape.
const LEVELS: u32 = 48;

/// The buckets of histograms, in columns of equal widths.
#[derive(Debug, Default)]
pub(crate) struct HeatMap {
    /// The width of a column as a share of the plot.
    width: f64,
    /// By the number of the column.
    columns: BTreeMap<u32, Vec<Bucket>>,
    /// The largest count of a bucket.
    pub(crate) largest: f64,
}

impl HeatMap {
    /// Arranges the histograms in a range. Buckets without count or without bounds are left out, and buckets below 0 if
    /// the axis is logarithmic.
    pub(crate) fn new(histograms: &[Histogram], range: TimeRange, size: Size, only_positive: bool) -> Self {
        let shown = || {
            let within = range.start_ms..=range.end_ms;
            histograms
                .iter()
                .filter(move |histogram| within.contains(&histogram.timestamp_ms))
        };
        let mut times: Vec<i64> = shown().map(|histogram| histogram.timestamp_ms).collect();
        times.sort_unstable();
        times.dedup();
        // A column is as wide as most times are apart.
        let mut distances: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        distances.sort_unstable();
        let usual = distances.get(distances.len() / 2);
        let width = usual.map_or(SINGLE_WIDTH, |usual| range.along(range.start_ms + usual));
        let width = width.clamp(MIN_WIDTH / f64::from(size.width()), 1.0);

        let mut columns: BTreeMap<u32, BTreeMap<(u64, u64), Bucket>> = BTreeMap::new();
        for histogram in shown() {
            let along = range.along(histogram.timestamp_ms);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "along is 0 to 1"
            )]
            let column = columns.entry((along / width + 1e-6) as u32).or_default();
            for bucket in &histogram.buckets {
                let (lower, upper) = (bucket.lower.min(bucket.upper), bucket.lower.max(bucket.upper));
                let has_bounds = bucket.lower.is_finite() && bucket.upper.is_finite();
                let on_axis = !only_positive || upper > 0.0;
                if has_bounds && on_axis && bucket.count > 0.0 && bucket.count.is_finite() {
                    let sum = column.entry((lower.to_bits(), upper.to_bits()));
                    sum.or_insert(Bucket {
                        lower,
                        upper,
                        count: 0.0,
                    })
                    .count += bucket.count;
                }
            }
        }
        let columns: BTreeMap<u32, Vec<Bucket>> = columns
            .into_iter()
            .map(|(index, column)| (index, column.into_values().collect()))
            .collect();
        let largest = columns
            .values()
            .flatten()
            .map(|bucket| bucket.count)
            .fold(0.0, f64::max);
        Self {
            width,
            columns,
            largest,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.largest == 0.0
    }

    /// Returns the bounds of all buckets; on logarithmic axes those above 0.
    pub(crate) fn extent(&self, only_positive: bool) -> Option<Extent> {
        let bounds = self
            .columns
            .values()
            .flatten()
            .flat_map(|bucket| [bucket.lower, bucket.upper]);
        Extent::from_values(bounds.filter(|bound| !only_positive || *bound > 0.0))
    }

    pub(crate) fn draw(&self, canvas: &mut dyn Canvas, plane: &Plane<'_>, theme: &Theme) {
        // One shape for each colour, of rectangles that join cells of neighbouring columns.
        let mut shapes: BTreeMap<u32, Vec<Rect>> = BTreeMap::new();
        for (index, buckets) in &self.columns {
            let side = |index: f64| plane.x((index * self.width).min(1.0)).round();
            let (left, right) = (side(f64::from(*index)), side(f64::from(*index) + 1.0));
            for bucket in buckets {
                let (top, bottom) = (plane.y(bucket.upper).round(), plane.y(bucket.lower).round());
                if bottom < plane.plot.top || top > plane.plot.bottom {
                    continue;
                }
                let top = top.clamp(plane.plot.top, plane.plot.bottom - 1.0);
                // A bucket is at least a pixel high.
                let bottom = bottom.clamp(top + 1.0, plane.plot.bottom.max(top + 1.0));
                // The square root shows small counts beside large ones.
                let share = (bucket.count / self.largest).sqrt();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 to LEVELS"
                )]
                let level = (share * f64::from(LEVELS)).ceil() as u32;
                shapes
                    .entry(level)
                    .or_default()
                    .push(Rect::new(left, top, right.max(left + 1.0), bottom));
            }
        }
        for (level, mut cells) in shapes {
            let key = |cell: &Rect| [cell.top, cell.bottom, cell.left];
            cells.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
            let mut joined: Vec<Rect> = Vec::new();
            for cell in cells {
                match joined.last_mut() {
                    Some(last)
                        if (last.top, last.bottom) == (cell.top, cell.bottom) && last.right >= cell.left =>
                    {
                        last.right = last.right.max(cell.right);
                    }
                    _ => joined.push(cell),
                }
            }
            let mut path = Path::default();
            for Rect {
                left,
                top,
                right,
                bottom,
            } in joined
            {
                path.start();
                path.push(left, top);
                path.push(right, top);
                path.push(right, bottom);
                path.push(left, bottom);
            }
            canvas.fill(&path, theme.heat(f64::from(level) / f64::from(LEVELS)).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(timestamp_ms: i64, buckets: &[(f64, f64, f64)]) -> Histogram {
        let bucket = |(lower, upper, count): &(f64, f64, f64)| Bucket {
            lower: *lower,
            upper: *upper,
            count: *count,
        };
        Histogram {
            timestamp_ms,
            buckets: buckets.iter().map(bucket).collect(),
        }
    }

    fn map(histograms: &[Histogram], only_positive: bool) -> HeatMap {
        let range = TimeRange {
            start_ms: 0,
            end_ms: 1000,
        };
        HeatMap::new(histograms, range, Size::new(300, 200).unwrap(), only_positive)
    }

    #[test]
    fn a_column_is_as_wide_as_histograms_are_apart() {
        let histograms = [0, 100, 200, 500, 600].map(|time| histogram(time, &[(0.0, 1.0, 2.0)]));
        let map = map(&histograms, false);
        assert_eq!(map.columns.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 5, 6]);
        assert_eq!(map.largest, 2.0);
    }

    #[test]
    fn narrow_columns_are_added_up() {
        let histograms: Vec<Histogram> = (0..1000)
            .map(|time| histogram(time, &[(0.0, 1.0, 1.0)]))
            .collect();
        let map = map(&histograms, false);
        assert!(map.columns.len() <= 100);
        assert_eq!(
            map.columns
                .values()
                .flatten()
                .map(|bucket| bucket.count)
                .sum::<f64>(),
            1000.0
        );
    }

    #[test]
    fn buckets_that_cannot_be_shown_are_left_out() {
        let buckets = [
            (-2.0, -1.0, 5.0),
            (0.0, 4.0, 1.0),
            (4.0, 8.0, 0.0),
            (f64::NAN, 1.0, 9.0),
            (8.0, f64::INFINITY, 9.0),
            (1.0, 2.0, f64::NAN),
        ];
        let histograms = [histogram(5, &buckets)];
        assert_eq!(
            map(&histograms, false).extent(false),
            Some(Extent {
                lower: -2.0,
                upper: 4.0
            })
        );
        assert_eq!(
            map(&histograms, true).extent(true),
            Some(Extent {
                lower: 4.0,
                upper: 4.0
            })
        );
        assert!(map(&[], true).is_empty());
    }
}
