//! Parses the lines of a batch by their commands. Lines that are points usually go through [`puts`](super::puts)
//! instead, unless they are stored again.
//!
//! ```text
//!   put METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//!   histogram METRIC TIMESTAMP [ID] HISTOGRAM TAGK=TAGV [TAGK=TAGV ...]
//!   rollup AGGREGATE METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//!   version | help | stats | dropcaches | exit
//! ```
//!
//! Commands are lower case. Only one carriage return at the end of a line is trimmed.

use memchr::memchr;
use oxtsdb_schema::HistogramCodecs;

use super::histogram;
use super::lines::{Batch, Command, OtherLine, split_word};
use super::rollup;

/// Parses whole lines until `max_points` points, `exit`, a line of more than `max_line_bytes` characters, or the
/// end. `text` ends in a newline.
///
/// Histograms are decoded by `histograms`; `None`: they are rejected.
pub(crate) fn parse<'a>(
    text: &'a str,
    max_line_bytes: usize,
    max_points: usize,
    histograms: Option<&HistogramCodecs>,
) -> Batch<'a> {
    let mut batch = Batch::default();
    // A line with a point has about 64 characters; a wrong guess only costs a copy.
    let guess = (text.len() / 64).min(max_points);
    batch.points.reserve(guess);
    batch.tags.reserve(guess * 2);
    let mut rest = text;
    // Other lines than points need memory too, for their replies.
    while batch.points.len() < max_points && batch.others.len() < max_points {
        let Some(end) = memchr(b'\n', rest.as_bytes()) else {
            break;
        };
        let (line, behind) = rest.split_at(end);
        // Only a line with characters above ASCII has fewer of them than bytes.
        if line.len() > max_line_bytes && line.chars().count() > max_line_bytes {
            batch.too_long = true;
            break;
        }
        rest = behind.get(1..).unwrap_or_default();
        batch.lines += 1;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (word, words) = split_word(line);
        let command = match word {
            "put" => match batch.parse_put(words) {
                Ok(()) => continue,
                Err(command) => command,
            },
            "histogram" => match histogram::parse(words, histograms) {
                Ok(histogram) => Command::Histogram(histogram),
                Err(command) => command,
            },
            "rollup" => match rollup::parse(words) {
                Ok(rollup) => Command::Rollup(rollup),
                Err(command) => command,
            },
            "version" => Command::Version,
            "help" => Command::Help,
            "stats" => Command::Stats,
            "dropcaches" => Command::DropCaches,
            "exit" => {
                batch.exit = true;
                break;
            }
            unknown => Command::Unknown(unknown),
        };
        batch.others.push(OtherLine {
            points_before: batch.points.len(),
            line,
            command,
        });
    }
    batch.read = text.len() - rest.len();
    batch
}
