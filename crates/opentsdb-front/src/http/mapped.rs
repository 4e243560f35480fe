//! Points of other protocols, with names as OpenTSDB has them. [`write`] stores them.
//!
//! ```text
//!   body ─► chunk: names in one text, tags, points ─► writer ─► the next chunk …          a chunk has up to CHUNK_POINTS
//! ```
//!
//! The rules are the same for all protocols (docs/guide/pipelines.md):
//! - a character that no name has becomes `_`;
//! - a tag with an empty value is left out;
//! - a series without tags gets the tag `source`, with the protocol's name;
//! - a value that is NaN is left out;
//! - a timestamp of whole seconds is stored as seconds, any other one as milliseconds.

pub(super) mod buckets;
pub(super) mod histogram_form;
pub(super) mod suffixed;
pub(super) mod write;

use std::ops::Range;

use oxtsdb_ingest::RejectionKind;
use oxtsdb_metadata::uids::series::{Series, SeriesText};
use oxtsdb_schema::timestamp::TimestampError;
use oxtsdb_schema::value::ValueError;
use oxtsdb_schema::{NameRules, Timestamp, Value};

/// Points of a chunk, and of a write.
pub(super) const CHUNK_POINTS: usize = 10_000;

/// The most tags that a series is read with; the setting `--max-tags` is far below.
pub(super) const MOST_TAGS: usize = 64;

/// Bytes of names above which a chunk is full: a body may repeat a long name in few bytes.
const CHUNK_TEXT: usize = 4 << 20;

/// Characters of a name, of a tag, and of a series that an example has, about.
const MOST_EXAMPLE: usize = 200;

/// The key of the tag of a series that has no others.
const SOURCE: &str = "source";

/// A part of [`Chunk::text`].
type Place = Range<u32>;

/// The places of a key and a value.
pub(super) type Tag = (Place, Place);

/// Which characters names have.
#[derive(Debug)]
pub(super) struct NameMap {
    /// By code point up to U+00FF, as OpenTSDB stores no others.
    allowed: [bool; 256],
    /// Characters that are kept of a name: one more than it may have, so that the writer rejects a longer one.
    most: usize,
    /// The name of the protocol.
    protocol: &'static str,
}

impl NameMap {
    pub(super) fn new(rules: &NameRules, protocol: &'static str) -> Self {
        let allowed = std::array::from_fn(|code| u8::try_from(code).is_ok_and(|byte| rules.allows(byte)));
        Self {
            allowed,
            most: rules.max_length.saturating_add(1),
            protocol,
        }
    }

    /// Whether names have a character.
    pub(super) fn allows(&self, character: char) -> bool {
        self.allowed.get(character as usize).copied().unwrap_or(false)
    }

    /// The characters of a name as it is stored.
    fn mapped<'n>(&'n self, name: &'n str) -> impl Iterator<Item = char> + 'n {
        let kept = name.chars().take(self.most);
        kept.map(|c| if self.allows(c) { c } else { '_' })
    }

    /// Whether a name is stored as it is, as most names are.
    pub(super) fn keeps(&self, name: &str) -> bool {
        let is_stored = |byte: u8| byte.is_ascii() && self.allows(byte.into());
        name.len() <= self.most && name.bytes().all(is_stored)
    }

    /// Appends a name as it is stored.
    fn push(&self, name: &str, text: &mut String) {
        if self.keeps(name) {
            text.push_str(name);
        } else {
            text.extend(self.mapped(name));
        }
    }

    /// A name as it is stored.
    pub(super) fn name(&self, name: &str) -> String {
        self.mapped(name).collect()
    }
}

/// A point of a chunk.
#[derive(Debug)]
struct ChunkPoint {
    series: MappedSeries,
    timestamp: Timestamp,
    value: Value,
}

/// One of OpenTSDB's histograms of a chunk.
#[derive(Debug)]
struct ChunkCell {
    series: MappedSeries,
    timestamp: Timestamp,
    value: Vec<u8>,
}

/// A point that is not stored.
#[derive(Debug)]
struct Rejected {
    number: usize,
    kind: RejectionKind,
    reason: String,
    point: RejectedPoint,
}

/// A rejected point, for the record of rejected points.
#[derive(Debug)]
enum RejectedPoint {
    /// As it was sent.
    Sent(String),
    OfSeries(MappedSeries),
}

/// A histogram that was sent.
#[derive(Debug)]
struct ChunkHistogram {
    /// The places of its points and cells.
    points: Range<usize>,
    cells: Range<usize>,
    /// Whether none of its points is rejected.
    is_complete: bool,
}

/// A part of a body.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// All names, one after the other.
    text: String,
    tags: Vec<Tag>,
    known: Vec<Series>,
    points: Vec<ChunkPoint>,
    cells: Vec<ChunkCell>,
    rejected: Vec<Rejected>,
    /// Ascending.
    histograms: Vec<ChunkHistogram>,
    /// Of the values of `cells`.
    cell_bytes: usize,
    /// Values that the protocol has and OpenTSDB has not, such as texts.
    pub(super) left_out: usize,
    /// Samples among them that say that there is no value.
    pub(super) without_value: usize,
    /// How parts of the body identify series, if they do.
    sent_as: Option<SentAs>,
}

/// A series of a chunk, for adding points.
#[derive(Clone, Debug)]
pub(super) struct MappedSeries {
    /// Its names; empty if it is known.
    metric: Place,
    /// Of [`Chunk::tags`].
    tags: Range<u32>,
    /// The part of the body that identifies it; empty if none does.
    sent: Place,
    /// Of [`Chunk::known`], if it is known by that part.
    known: Option<u32>,
    /// The line or the series that its points were sent in, from 1.
    number: usize,
}

impl MappedSeries {
    /// The same metric with other tags, of another data point.
    pub(super) fn with(&self, tags: Range<u32>, number: usize) -> Self {
        Self {
            tags,
            number,
            ..self.clone()
        }
    }

    /// The series, which a part of the body identifies.
    pub(super) fn sent_as(self, sent: Range<usize>) -> Self {
        Self {
            sent: place(sent),
            ..self
        }
    }
}

/// How a part of a body identifies a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentAs {
    /// The text of a series by its metric and its part of the body.
    pub(super) text: for<'a> fn(metric: &'a str, sent: &'a str) -> SeriesText<'a>,
    /// That part for the record of rejected points.
    pub(super) shown: fn(&str) -> String,
}

impl Chunk {
    /// An empty chunk of a body; parts of the body identify series.
    pub(super) fn with_sent(sent_as: SentAs) -> Self {
        Self {
            sent_as: Some(sent_as),
            ..Self::default()
        }
    }

    /// Whether it has as many points as a write takes.
    pub(super) fn is_full(&self) -> bool {
        self.len() + self.rejected.len() >= CHUNK_POINTS || self.text.len() > CHUNK_TEXT
    }

    /// The memory that it takes.
    fn held_bytes(&self) -> usize {
        let rejected = self.rejected.iter();
        let rejected: usize = rejected
            .map(|one| {
                one.reason.capacity()
                    + match &one.point {
                        RejectedPoint::Sent(sent) => sent.capacity(),
                        RejectedPoint::OfSeries(_) => 0,
                    }
            })
            .sum();
        self.text.capacity()
            + self.tags.capacity() * size_of::<Tag>()
            + self.known.capacity() * size_of::<Series>()
            + self.points.capacity() * size_of::<ChunkPoint>()
            + self.cells.capacity() * size_of::<ChunkCell>()
            + self.cell_bytes
            + self.rejected.capacity() * size_of::<Rejected>()
            + self.histograms.capacity() * size_of::<ChunkHistogram>()
            + rejected
    }

    /// The number of its points; cells count as the points that take as much memory.
    pub(super) const fn len(&self) -> usize {
        self.points.len() + self.cells.len() + self.cell_bytes / size_of::<ChunkPoint>()
    }

    /// Adds the points and cells of a histogram by `add`. The histogram counts as written if all of them are stored.
    pub(super) fn histogram(&mut self, add: impl FnOnce(&mut Self)) {
        let (points, cells, rejected) = (self.points.len(), self.cells.len(), self.rejected.len());
        add(self);
        self.histograms.push(ChunkHistogram {
            points: points..self.points.len(),
            cells: cells..self.cells.len(),
            is_complete: self.rejected.len() == rejected,
        });
    }

    /// Adds a name; `parts` are joined.
    fn name(&mut self, map: &NameMap, parts: &[&str]) -> Place {
        let start = self.text.len();
        for part in parts {
            map.push(part, &mut self.text);
        }
        place(start..self.text.len())
    }

    /// Adds the tags of a series, with a value each that is not empty.
    pub(super) fn tags<'t>(
        &mut self,
        map: &NameMap,
        tags: impl Iterator<Item = (&'t str, &'t str)>,
    ) -> Range<u32> {
        let start = self.tags.len();
        for (key, value) in tags {
            let tag = self.tag(map, key, value);
            self.tags.extend(tag);
        }
        self.tags_from(map, start)
    }

    /// Adds the texts of a tag, for [`Chunk::tag_list`]; `None` if its value is empty.
    pub(super) fn tag(&mut self, map: &NameMap, key: &str, value: &str) -> Option<Tag> {
        (!value.is_empty()).then(|| (self.name(map, &[key]), self.name(map, &[value])))
    }

    /// Adds the tags of a series. The texts of the tags are in the chunk already.
    pub(super) fn tag_list<'t>(&mut self, map: &NameMap, tags: impl Iterator<Item = &'t Tag>) -> Range<u32> {
        let start = self.tags.len();
        self.tags.extend(tags.cloned());
        self.tags_from(map, start)
    }

    fn tags_from(&mut self, map: &NameMap, start: usize) -> Range<u32> {
        if self.tags.len() == start {
            let (key, value) = (self.name(map, &[SOURCE]), self.name(map, &[map.protocol]));
            self.tags.push((key, value));
        }
        place(start..self.tags.len())
    }

    /// Adds a series: the parts of its metric, joined, and its tags.
    pub(super) fn series(
        &mut self,
        map: &NameMap,
        metric: &[&str],
        tags: Range<u32>,
        number: usize,
    ) -> MappedSeries {
        let metric = self.name(map, metric);
        MappedSeries {
            metric,
            tags,
            sent: 0..0,
            known: None,
            number,
        }
    }

    /// Adds a series that is known by a part of the body.
    pub(super) fn known_series(&mut self, series: Series, sent: Range<usize>, number: usize) -> MappedSeries {
        let index = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        self.known.push(series);
        MappedSeries {
            metric: 0..0,
            tags: 0..0,
            sent: place(sent),
            known: Some(index),
            number,
        }
    }

    /// Adds a point.
    pub(super) fn point(
        &mut self,
        series: &MappedSeries,
        timestamp_ms: i64,
        value: Result<Value, ValueError>,
    ) {
        let timestamp = timestamp(timestamp_ms);
        match (timestamp, value) {
            (Ok(timestamp), Ok(value)) => self.points.push(ChunkPoint {
                series: series.clone(),
                timestamp,
                value,
            }),
            (Err(error), _) => self.reject_point(series, RejectionKind::Timestamp, error.to_string()),
            // A sender has no value, as of the quantiles of a summary without observations.
            (_, Err(ValueError::NotFinite { value })) if value.is_nan() => self.left_out += 1,
            (_, Err(error)) => self.reject_point(series, RejectionKind::Value, error.to_string()),
        }
    }

    /// Adds one of OpenTSDB's histograms: the value of its cell, or why it has none.
    pub(super) fn cell(&mut self, series: &MappedSeries, timestamp_ms: i64, value: Result<Vec<u8>, String>) {
        match (timestamp(timestamp_ms), value) {
            (Ok(timestamp), Ok(value)) => {
                self.cell_bytes += value.capacity();
                self.cells.push(ChunkCell {
                    series: series.clone(),
                    timestamp,
                    value,
                });
            }
            (Err(error), _) => self.reject_point(series, RejectionKind::Timestamp, error.to_string()),
            (_, Err(reason)) => self.reject_point(series, RejectionKind::Histogram, reason),
        }
    }

    fn reject_point(&mut self, series: &MappedSeries, kind: RejectionKind, reason: String) {
        self.rejected.push(Rejected {
            number: series.number,
            kind,
            reason,
            point: RejectedPoint::OfSeries(series.clone()),
        });
    }

    /// Adds a point that is not stored, as it was sent.
    pub(super) fn reject(&mut self, number: usize, kind: RejectionKind, reason: String, sent: String) {
        self.rejected.push(Rejected {
            number,
            kind,
            reason,
            point: RejectedPoint::Sent(sent),
        });
    }

    fn at(&self, place: &Place) -> &str {
        self.text
            .get(place.start as usize..place.end as usize)
            .unwrap_or_default()
    }

    fn tags_at(&self, tags: &Range<u32>) -> &[Tag] {
        self.tags
            .get(tags.start as usize..tags.end as usize)
            .unwrap_or_default()
    }

    /// A series as telnet has it, or its part of `body` if it is known by that.
    fn shown(&self, series: &MappedSeries, body: &[u8]) -> String {
        if series.known.is_some() {
            let shown = self.sent_as.map(|sent_as| sent_as.shown);
            return shown.map_or_else(String::new, |shown| shown(sent(body, &series.sent)));
        }
        let mut shown = self.at(&series.metric).to_owned();
        for (key, value) in self.tags_at(&series.tags) {
            shown.push(' ');
            shown.push_str(self.at(key));
            shown.push('=');
            shown.push_str(self.at(value));
        }
        shown
    }
}

/// The start of a series as it was sent, for the record of rejected points. Many points may have one long name.
pub(super) fn example<'t>(metric: &str, tags: impl Iterator<Item = (&'t str, &'t str)>) -> String {
    let mut example: String = metric.chars().take(MOST_EXAMPLE).collect();
    for (key, value) in tags {
        if example.len() > MOST_EXAMPLE {
            break;
        }
        example.push(' ');
        example.extend(
            key.chars()
                .chain("=".chars())
                .chain(value.chars())
                .take(MOST_EXAMPLE),
        );
    }
    example
}

/// The instant of a point, in the fewest bytes that have it.
fn timestamp(timestamp_ms: i64) -> Result<Timestamp, TimestampError> {
    if timestamp_ms <= 0 {
        return Err(TimestampError::NotPositive { value: timestamp_ms });
    }
    match u32::try_from(timestamp_ms / 1000) {
        Ok(seconds) if timestamp_ms % 1000 == 0 => Ok(Timestamp::from_seconds(seconds)),
        _ => Timestamp::from_millis(timestamp_ms),
    }
}

fn place(range: Range<usize>) -> Range<u32> {
    let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    place(range.start)..place(range.end)
}

/// A part of a body that identifies a series.
fn sent<'b>(body: &'b [u8], place: &Place) -> &'b str {
    let part = body.get(place.start as usize..place.end as usize);
    part.and_then(|part| std::str::from_utf8(part).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_characters_that_names_have() {
        let map = NameMap::new(&NameRules::default(), "influx");
        let mut chunk = Chunk::default();
        for (parts, expected) in [
            (&["cpu", ".", "usage_idle"][..], "cpu.usage_idle"),
            (&["go:gc duration%"], "go_gc_duration_"),
            (&["température", "-", "温度"], "température-__"),
        ] {
            let place = chunk.name(&map, parts);
            assert_eq!(chunk.at(&place), expected);
        }
        let rules = NameRules {
            extra_characters: ":".to_owned(),
            ..NameRules::default()
        };
        let place = chunk.name(&NameMap::new(&rules, "influx"), &["a:b c"]);
        assert_eq!(chunk.at(&place), "a:b_c");
    }

    #[test]
    fn every_series_has_a_tag() {
        let map = NameMap::new(&NameRules::default(), "prometheus");
        let mut chunk = Chunk::default();
        let none = chunk.tags(&map, [("a", "")].into_iter());
        let none = chunk.series(&map, &["m"], none, 1);
        assert_eq!(chunk.shown(&none, b""), "m source=prometheus");
        let some = chunk.tags(&map, [("le", "+Inf"), ("b", ""), ("c", "1")].into_iter());
        let some = chunk.series(&map, &["m"], some, 1);
        assert_eq!(chunk.shown(&some, b""), "m le=_Inf c=1");
    }

    #[test]
    fn whole_seconds_are_stored_as_seconds() {
        for (ms, is_millis) in [(1_700_000_000_000, false), (1_700_000_000_001, true)] {
            let timestamp = timestamp(ms).unwrap();
            assert_eq!(timestamp.is_millis(), is_millis, "{ms}");
            assert_eq!(timestamp.as_millis(), ms);
        }
        for ms in [0, -1, -1000, 4_294_967_296_000, i64::MIN, i64::MAX] {
            assert!(timestamp(ms).is_err(), "{ms}");
        }
    }
}
