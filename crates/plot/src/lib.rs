//! Pictures of query results: time series and histograms as SVG and PNG.
//!
//! ```text
//! Plot -> reduce (4 points for each pixel column) -> scales, ticks, layout -> Canvas: SVG text, or pixels -> PNG
//! ```
//!
//! One drawing serves both formats: `chart` draws on the trait `Canvas`, and `svg` and `raster` implement it, so a
//! picture has the same layout in both. `tiny_skia` fills and strokes, and the crate `png` encodes.
//!
//! The font (`fonts/`) is compiled in: widths of texts, and so the layout, do not depend on the machine. SVG names
//! common fonts of about the same widths and embeds none.
//!
//! All texts may come from strangers. `text::clean` removes characters that XML does not allow or that reorder text,
//! `svg` escapes the rest, and `chart` cuts texts to their space.
//!
//! ```
//! use oxtsdb_plot::{Plot, Point, Series, Size, TimeRange};
//!
//! let range = TimeRange { start_ms: 1_767_571_200_000, end_ms: 1_767_574_800_000 };
//! let mut plot = Plot::new(Size::new(800, 400)?, range);
//! plot.title = "CPU usage".to_owned();
//! let points = [(0, 0.5), (60_000, 0.75)];
//! let points = points.map(|(after_ms, value)| Point { timestamp_ms: range.start_ms + after_ms, value });
//! plot.series.push(Series::new("sys.cpu.user{host=web01}", points.to_vec()));
//! assert!(plot.svg().starts_with("<svg"));
//! assert!(plot.png().starts_with(b"\x89PNG"));
//! # Ok::<(), oxtsdb_plot::PlotError>(())
//! ```

mod axis;
mod canvas;
mod chart;
mod color;
mod error;
mod font;
mod format;
mod geometry;
mod heat_map;
mod layout;
mod legend;
mod message;
mod picture;
mod plot;
mod png;
mod raster;
mod reduce;
mod scale;
mod series;
mod size;
mod stack;
mod svg;
mod text;
mod time_ticks;
mod trace_path;
mod value_ticks;

pub use axis::{Axis, AxisSide, TimeRange, ValueScale};
pub use color::{Color, Theme};
pub use error::PlotError;
pub use format::NumberFormat;
pub use message::Message;
pub use plot::{Legend, LegendPlace, Mark, Plot, Position};
pub use series::{Bucket, Gaps, Histogram, Point, PointSource, Points, Series, Style};
pub use size::{Size, SizeError};
