//! No input panics: extreme values, times, sizes and texts.

use jiff::tz::TimeZone;
use oxtsdb_plot::{
    Axis, AxisSide, Bucket, Color, Gaps, Histogram, Legend, LegendPlace, Mark, Message, Plot, Point, Points,
    Position, Series, Size, Style, Theme, TimeRange, ValueScale,
};
use proptest::prelude::*;

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 1_767_571_200_000_i64..1_767_581_200_000,
        1 => any::<i64>(),
        1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]),
        1 => -400_000_000_000_000_i64..400_000_000_000_000,
    ]
}

fn value() -> impl Strategy<Value = f64> {
    let extremes = vec![
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        0.0,
        -0.0,
        1e300,
        -1e300,
        1e-300,
    ];
    prop_oneof![4 => -1e3..1e6_f64, 1 => any::<f64>(), 1 => prop::sample::select(extremes)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        any::<String>(),
        "[a-zA-Z<>&\u{0}-\u{20}\u{200b}-\u{202e}é漢]{0,200}",
        Just("x".repeat(10_000)),
    ]
}

fn size() -> impl Strategy<Value = Size> {
    let sides = prop_oneof![6 => (64..500_u32, 48..300_u32), 1 => Just((4096, 48)), 1 => Just((64, 1500))];
    sides.prop_map(|(width, height)| Size::new(width, height).expect("a size within the limits"))
}

fn points() -> impl Strategy<Value = Points<'static>> {
    let point = (time(), value()).prop_map(|(timestamp_ms, value)| Point { timestamp_ms, value });
    let points = (prop::collection::vec(point, 0..60), any::<bool>()).prop_map(|(mut points, sorted)| {
        if sorted {
            points.sort_by_key(|point| point.timestamp_ms);
        }
        Points::from(points)
    });
    let bucket = (value(), value(), value()).prop_map(|(lower, upper, count)| Bucket { lower, upper, count });
    let histogram =
        (time(), prop::collection::vec(bucket, 0..8)).prop_map(|(timestamp_ms, buckets)| Histogram {
            timestamp_ms,
            buckets,
        });
    let histograms = prop::collection::vec(histogram, 0..20).prop_map(Points::from);
    prop_oneof![4 => points, 1 => histograms]
}

fn series() -> impl Strategy<Value = Series<'static>> {
    let styles = vec![
        Style::Line,
        Style::LineAndPoints,
        Style::Points,
        Style::Steps,
        Style::StackedArea,
    ];
    let gaps = prop_oneof![
        Just(Gaps::Connect),
        Just(Gaps::NotFinite),
        any::<i64>().prop_map(Gaps::LongerThanMs),
        (0..100_000_i64).prop_map(Gaps::LongerThanMs)
    ];
    let sides = prop::sample::select(vec![AxisSide::Left, AxisSide::Right]);
    (text(), points(), prop::sample::select(styles), gaps, sides).prop_map(
        |(label, points, style, gaps, axis)| Series {
            label,
            axis,
            style,
            gaps,
            color: None,
            points,
        },
    )
}

fn axis() -> impl Strategy<Value = Axis> {
    let scales = prop::sample::select(vec![ValueScale::Linear, ValueScale::Logarithmic]);
    let formats = prop::sample::select(vec!["", "%.2f", "%g", "%s%c", "%+032.17e <&>", "%.17f"]);
    let ends = (prop::option::of(value()), prop::option::of(value()));
    (text(), scales, ends, formats).prop_map(|(label, scale, (lower, upper), format)| Axis {
        label,
        scale,
        lower,
        upper,
        format: format.parse().ok(),
    })
}

fn legend() -> impl Strategy<Value = Legend> {
    let places = vec![
        LegendPlace::Hidden,
        LegendPlace::Inside(Position::TopLeft),
        LegendPlace::Inside(Position::Center),
        LegendPlace::Inside(Position::BottomRight),
        LegendPlace::Right,
        LegendPlace::Top,
        LegendPlace::Bottom,
    ];
    (prop::sample::select(places), any::<bool>()).prop_map(|(place, boxed)| Legend { place, boxed })
}

fn theme() -> impl Strategy<Value = Theme> {
    let color = || any::<(u8, u8, u8)>().prop_map(|(red, green, blue)| Color::rgb(red, green, blue));
    (color(), color()).prop_map(|(background, foreground)| Theme {
        background,
        foreground,
    })
}

fn plot() -> impl Strategy<Value = Plot<'static>> {
    let zones = prop::sample::select(vec!["UTC", "Europe/Berlin", "America/Havana", "Pacific/Apia"]);
    let mark = (time(), text()).prop_map(|(timestamp_ms, text)| Mark { timestamp_ms, text });
    let data = (
        prop::collection::vec(series(), 0..6),
        [axis(), axis()],
        (time(), time()),
    );
    let looks = (
        size(),
        text(),
        legend(),
        zones,
        theme(),
        prop::collection::vec(mark, 0..6),
    );
    (data, looks).prop_map(
        |((series, axes, (start_ms, end_ms)), (size, title, legend, zone, theme, marks))| Plot {
            size,
            title,
            series,
            axes,
            legend,
            range: TimeRange { start_ms, end_ms },
            zone: TimeZone::get(zone).unwrap_or(TimeZone::UTC),
            theme,
            marks,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_plot_is_valid(plot in plot()) {
        let svg = plot.svg();
        prop_assert!(roxmltree::Document::parse(&svg).is_ok(), "{svg}");
        let png = plot.png();
        let info = png::Decoder::new(std::io::Cursor::new(png)).read_info();
        prop_assert!(info.is_ok());
        prop_assert!(svg.len() as u64 <= Plot::memory_bytes(plot.size, plot.series.len()));
    }

    #[test]
    fn every_message_is_valid(size in size(), title in text(), text in text(), theme in theme()) {
        let message = Message { size, theme, title, text };
        let svg = message.svg();
        prop_assert!(roxmltree::Document::parse(&svg).is_ok(), "{svg}");
        prop_assert!(!message.png().is_empty());
    }

    #[test]
    fn every_format_parses_or_is_rejected(format in "[%.0-9 +a-z-]{0,12}", value in value()) {
        if let Ok(format) = format.parse::<oxtsdb_plot::NumberFormat>() {
            let axes = [Axis { format: Some(format), ..Axis::default() }, Axis::default()];
            let size = Size::new(100, 60).expect("a size within the limits");
            let points = vec![Point { timestamp_ms: 5, value }];
            let range = TimeRange { start_ms: 0, end_ms: 10 };
            let plot = Plot { axes, series: vec![Series::new("", points)], ..Plot::new(size, range) };
            prop_assert!(!plot.svg().is_empty());
        }
    }
}
