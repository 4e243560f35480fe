//! The pictures of a plot: SVG, PNG, and the memory that they need.

use crate::chart;
use crate::plot::Plot;
use crate::png;
use crate::raster::RasterCanvas;
use crate::reduce;
use crate::size::Size;
use crate::svg::SvgCanvas;
use crate::text;

impl Plot<'_> {
    /// Returns the picture as an SVG document: valid XML without scripts and references, for a file or an HTML page.
    pub fn svg(&self) -> String {
        let title = text::clean(&self.title);
        let spoken = if title.is_empty() {
            chart::spoken_title(self)
        } else {
            title
        };
        let mut canvas = SvgCanvas::new(self.size, &spoken);
        chart::draw(self, &mut canvas);
        canvas.finish()
    }

    /// Returns the picture as a PNG file.
    pub fn png(&self) -> Vec<u8> {
        let mut canvas = RasterCanvas::new(self.size, self.theme.background);
        chart::draw(self, &mut canvas);
        png::encode(&canvas.finish())
    }

    /// Returns an upper estimate of the memory in bytes that `svg` or `png` allocates at a time, with the result, for a
    /// plot of `series` series of values. Heat maps and marks take less than the histograms and texts themselves.
    pub fn memory_bytes(size: Size, series: usize) -> u64 {
        // The pixels, and those within the plot a second time, or the file while it grows.
        let png = size.pixels() * (4 + 6);
        let points = reduce::max_points(size, series);
        // A reduced point and its place; up to 14 bytes of SVG, twice while it grows.
        let reduced = points * (16 + 28);
        // Outlines and edges of one line's dashes.
        let stroke = u64::from(size.width()) * 4096;
        // Labels are cut. The compressor has 350 KiB.
        let texts = series as u64 * 2048;
        png + reduced + stroke + texts + 512 * 1024
    }
}
