//! Drawing times, to be measured in release: `cargo test --release -p oxtsdb-plot --test times -- --ignored --nocapture`.

mod plots;

use std::time::Instant;

use oxtsdb_plot::{Plot, Point, Series, Size};

use crate::plots::{SECOND, START, gallery, plot, wave};

#[test]
#[ignore = "measures for seconds"]
fn drawing_times() {
    let size = Size::new(1200, 600).expect("a size within the limits");
    let day = |series: u64| {
        let mut plot = plot(size, 24);
        plot.series = (0..series)
            .map(|index| {
                Series::new(
                    format!("m{{host=web{index}}}"),
                    wave(index, 24, 10 * SECOND, 50.0, 40.0),
                )
            })
            .collect();
        plot
    };
    measure("1 series, a day at 10 s", &day(1));
    measure("100 series, a day at 10 s", &day(100));
    measure("1,000 series, a day at 10 s", &day(1000));
    let mut noise = day(100);
    noise.series = (0..100)
        .map(|index| {
            let points = (0..24 * 60).map(|minute| Point {
                timestamp_ms: START + minute * 60 * SECOND,
                value: (minute * 7 + index * 13).rem_euclid(41) as f64,
            });
            Series::new(format!("m{{host=web{index}}}"), points.collect::<Vec<_>>())
        })
        .collect();
    measure("100 series that jump over the axis", &noise);
    let mut million = plot(size, 24);
    million.series = vec![Series::new("m", wave(1, 24, 86, 50.0, 40.0))];
    measure("1 series of a million points", &million);
    for (name, plot) in gallery(size) {
        measure(name, &plot);
    }
}

fn measure(name: &str, plot: &Plot<'_>) {
    let started = Instant::now();
    let svg = plot.svg();
    let svg_time = started.elapsed();
    let started = Instant::now();
    let png = plot.png();
    let png_time = started.elapsed();
    println!(
        "{name:34} SVG {:7.1} ms {:6} kB   PNG {:7.1} ms {:5} kB   estimate {:6} kB",
        svg_time.as_secs_f64() * 1e3,
        svg.len() / 1000,
        png_time.as_secs_f64() * 1e3,
        png.len() / 1000,
        Plot::memory_bytes(plot.size, plot.series.len()) / 1000
    );
}
