//! Plots that the tests draw.

use jiff::tz::TimeZone;
use oxtsdb_plot::{
    Axis, AxisSide, Bucket, Gaps, Histogram, Legend, LegendPlace, Mark, Plot, Point, Position, Series, Size,
    Style, Theme, TimeRange, ValueScale,
};

pub(crate) const SECOND: i64 = 1000;
pub(crate) const HOUR: i64 = 3600 * SECOND;
/// 2026-01-05 00:00 UTC, a Monday.
pub(crate) const START: i64 = 1_767_571_200_000;

/// Numbers that look random and are the same on each run.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From -1 to 1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// A wave with noise: a point each `step_ms` of `hours`.
pub(crate) fn wave(seed: u64, hours: i64, step_ms: i64, level: f64, height: f64) -> Vec<Point> {
    let mut noise = Noise::new(seed);
    let points = (0..=hours * HOUR / step_ms).map(|index| {
        let along = index as f64 * step_ms as f64 / (24.0 * HOUR as f64);
        let wave = ((along + seed as f64 * 0.13) * std::f64::consts::TAU).sin();
        Point {
            timestamp_ms: START + index * step_ms,
            value: level + height * (wave + 0.2 * noise.next()),
        }
    });
    points.collect()
}

pub(crate) fn plot(size: Size, hours: i64) -> Plot<'static> {
    Plot::new(
        size,
        TimeRange {
            start_ms: START,
            end_ms: START + hours * HOUR,
        },
    )
}

pub(crate) fn waves(size: Size, series: u64) -> Plot<'static> {
    let mut plot = plot(size, 24);
    plot.title = "CPU usage by host".to_owned();
    plot.series = (0..series)
        .map(|index| {
            let label = format!("sys.cpu.user{{host=web{index:02}}}");
            Series::new(
                label,
                wave(index + 1, 24, 60 * SECOND, 40.0 + 8.0 * index as f64, 15.0),
            )
        })
        .collect();
    plot
}

fn legend(place: LegendPlace, boxed: bool) -> Legend {
    Legend { place, boxed }
}

fn latency(hours: i64) -> Vec<Histogram> {
    let mut noise = Noise::new(5);
    let step = 10 * 60 * SECOND;
    let histogram = |index: i64| {
        let center = 9.0 + 3.0 * (index as f64 / 20.0).sin();
        let bucket = |bucket: i32| {
            let far = (f64::from(bucket) - center) / 2.0;
            let count = (1000.0 * (-far * far).exp() * (1.0 + 0.3 * noise.next())).round();
            Bucket {
                lower: 2_f64.powi(bucket) / 1000.0,
                upper: 2_f64.powi(bucket + 1) / 1000.0,
                count,
            }
        };
        Histogram {
            timestamp_ms: START + index * step,
            buckets: (0..18).map(bucket).collect(),
        }
    };
    (0..hours * HOUR / step)
        .filter(|index| !(60..66).contains(index))
        .map(histogram)
        .collect()
}

/// Plots that show each feature, by name.
pub(crate) fn gallery(size: Size) -> Vec<(&'static str, Plot<'static>)> {
    let mut gallery = Vec::new();

    gallery.push(("lines", waves(size, 3)));

    let mut dark = waves(size, 7);
    dark.theme = Theme::dark();
    dark.legend = legend(LegendPlace::Right, false);
    dark.axes[0].label = "percent".to_owned();
    gallery.push(("dark", dark));

    let mut many = waves(size, 40);
    many.legend = legend(LegendPlace::Bottom, true);
    gallery.push(("many", many));

    let mut gaps = plot(size, 6);
    gaps.title = "Gaps, steps, points".to_owned();
    let mut broken = wave(1, 6, 120 * SECOND, 50.0, 20.0);
    broken.drain(40..70);
    broken[100].value = f64::NAN;
    broken[110].value = f64::NAN;
    let mut line = Series::new("line", broken);
    line.gaps = Gaps::LongerThanMs(300 * SECOND);
    let mut steps = Series::new("steps", wave(2, 6, 900 * SECOND, 120.0, 20.0));
    steps.style = Style::Steps;
    let mut dots = Series::new("points", wave(3, 6, 300 * SECOND, 190.0, 20.0));
    dots.style = Style::Points;
    let mut both = Series::new("line and points", wave(4, 6, 900 * SECOND, 260.0, 20.0));
    both.style = Style::LineAndPoints;
    gaps.series = vec![line, steps, dots, both];
    gaps.legend = legend(LegendPlace::Top, false);
    gallery.push(("styles", gaps));

    let mut stacked = waves(size, 4);
    stacked.title = "Bytes in the cache".to_owned();
    for (index, series) in stacked.series.iter_mut().enumerate() {
        series.style = Style::StackedArea;
        series.points = wave(index as u64 + 1, 24, 600 * SECOND, 2e9, 1e9).into();
    }
    stacked.legend = legend(LegendPlace::Inside(Position::TopLeft), true);
    stacked.axes[0].format = "%.1s %cB".parse().ok();
    gallery.push(("stacked", stacked));

    let mut heat = plot(size, 24);
    heat.title = "Latency of requests".to_owned();
    heat.series = vec![Series::new("http.latency", latency(24))];
    heat.axes[0] = Axis {
        label: "seconds".to_owned(),
        scale: ValueScale::Logarithmic,
        ..Axis::default()
    };
    gallery.push(("heat", heat.clone()));
    heat.theme = Theme::dark();
    heat.axes[0].scale = ValueScale::Linear;
    heat.axes[0].upper = Some(20.0);
    heat.legend = legend(LegendPlace::Hidden, false);
    gallery.push(("heat_linear_dark", heat));

    let mut two = plot(size, 24 * 14);
    two.title = "Requests and errors".to_owned();
    two.axes[0].label = "requests/s".to_owned();
    two.axes[1] = Axis {
        label: "errors/s".to_owned(),
        lower: Some(0.0),
        upper: Some(5.0),
        ..Axis::default()
    };
    let mut errors = Series::new("errors", wave(7, 24 * 14, HOUR, 1.5, 1.0));
    errors.axis = AxisSide::Right;
    two.series = vec![
        Series::new("requests", wave(2, 24 * 14, HOUR, 1_200_000.0, 300_000.0)),
        errors,
    ];
    two.marks = vec![
        Mark {
            timestamp_ms: START + 50 * HOUR,
            text: "1".to_owned(),
        },
        Mark {
            timestamp_ms: START + 52 * HOUR,
            text: "deploy 2.4".to_owned(),
        },
        Mark {
            timestamp_ms: START + 330 * HOUR,
            text: "rollback".to_owned(),
        },
    ];
    two.legend = legend(LegendPlace::Inside(Position::BottomLeft), false);
    gallery.push(("two_axes", two));

    let mut log = plot(size, 3);
    log.title = "Logarithmic".to_owned();
    log.axes[0].scale = ValueScale::Logarithmic;
    let mut noise = Noise::new(3);
    let values = (0..180).map(|minute| {
        let value = if minute % 37 == 0 {
            0.0
        } else {
            10_f64.powf(2.0 + 3.0 * noise.next())
        };
        Point {
            timestamp_ms: START + minute * 60 * SECOND,
            value,
        }
    });
    log.series = vec![Series::new("queue", values.collect::<Vec<_>>())];
    log.zone = TimeZone::get("Asia/Kolkata").unwrap_or(TimeZone::UTC);
    gallery.push(("logarithmic", log));

    let mut clock = plot(size, 48);
    // Clocks in Berlin change on 2026-03-29.
    let shift = 82 * 24 * HOUR;
    clock.range = TimeRange {
        start_ms: START + shift,
        end_ms: START + shift + 48 * HOUR,
    };
    clock.zone = TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::UTC);
    let mut points = wave(4, 48, 600 * SECOND, 0.000_3, 0.000_1);
    points.iter_mut().for_each(|point| point.timestamp_ms += shift);
    clock.series = vec![Series::new("Zeit · время · χρόνος · 時間", points)];
    clock.axes[0].upper = Some(0.0006);
    gallery.push(("clock_change", clock));

    let mut empty = plot(size, 24 * 400);
    empty.title = "A title that is much too long for the picture ".repeat(8);
    empty.series = vec![Series::new("nothing", Vec::<Point>::new())];
    empty.legend = legend(LegendPlace::Inside(Position::BottomRight), true);
    gallery.push(("empty", empty));

    let mut colors = waves(size, 12);
    colors.theme.background = "#fdf6e3".parse().unwrap_or(colors.theme.background);
    colors.theme.foreground = "#073642".parse().unwrap_or(colors.theme.foreground);
    colors.series[0].color = "#dc322f".parse().ok();
    colors.legend = legend(LegendPlace::Right, true);
    colors.axes[0].lower = Some(20.0);
    colors.axes[0].upper = Some(130.0);
    gallery.push(("colors", colors));

    gallery
}
