//! `Plot::memory_bytes` is an upper estimate of the memory that drawing allocates at a time.

mod plots;

use oxtsdb_plot::{Plot, Series, Size, Style};

use crate::plots::{SECOND, gallery, plot, wave};

fn assert_within_estimate(name: &str, plot: &Plot<'_>) {
    let estimate = Plot::memory_bytes(plot.size, plot.series.len());
    let png = allocation_counter::measure(|| drop(plot.png())).bytes_max;
    let svg = allocation_counter::measure(|| drop(plot.svg())).bytes_max;
    assert!(
        png <= estimate && svg <= estimate,
        "{name}: PNG {png}, SVG {svg}, estimate {estimate}"
    );
}

#[test]
fn drawing_stays_within_the_estimate() {
    for (width, height) in [(64, 48), (320, 200), (700, 350)] {
        let size = Size::new(width, height).expect("a size within the limits");
        for (name, plot) in gallery(size) {
            assert_within_estimate(name, &plot);
        }
    }
}

#[test]
fn many_points_and_series_stay_within_the_estimate() {
    let size = Size::new(600, 200).expect("a size within the limits");
    for (name, series, step_ms) in [
        ("many points", 1, 2 * SECOND),
        ("two points for each column", 20, 72 * SECOND),
        ("some series", 20, 30 * SECOND),
        ("many series", 200, 600 * SECOND),
    ] {
        for style in [Style::Line, Style::Steps, Style::StackedArea, Style::Points] {
            let mut plot = plot(size, 24);
            plot.series = (0..series)
                .map(|index| {
                    let points = wave(index, 24, step_ms, 50.0, 40.0);
                    Series {
                        style,
                        ..Series::new("a label of some length{host=web01}".repeat(4), points)
                    }
                })
                .collect();
            assert_within_estimate(name, &plot);
        }
    }
}
