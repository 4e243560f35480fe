//! Arranges a frame in lines for the width and the height of a screen.
//!
//! Sections that do not fit are first written closer: without empty lines, with short tables on one line, with fewer rows of
//! long tables. The number of rows that are left out is shown.

use oxtsdb_access::shown::is_printable;

use super::figure::Figure;
use super::frame::{Frame, Sort};
use super::section::{Section, Shape};

/// How a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// The first line.
    Title,
    /// Names of columns.
    Header,
    Plain,
    /// Something is wrong.
    Alarm,
}

/// A line of a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) style: Style,
    pub(super) text: String,
}

impl Line {
    fn new(style: Style, text: impl Into<String>) -> Self {
        Self {
            style,
            text: text.into(),
        }
    }

    pub(super) fn empty() -> Self {
        Self::new(Style::Plain, "")
    }

    /// The last line of a screen.
    pub(super) fn footer(text: &str, width: usize) -> Self {
        Self::new(Style::Header, cut(text, width))
    }
}

/// How much is shown.
#[derive(Clone, Copy, Debug)]
struct Density {
    /// An empty line between sections.
    is_spaced: bool,
    /// Short tables on one line.
    is_inline: bool,
    /// Most rows of a long table.
    max_rows: usize,
}

/// From the most to the least.
const DENSITIES: [Density; 6] = [
    density(true, false, usize::MAX),
    density(true, false, 10),
    density(false, false, 10),
    density(false, true, 10),
    density(false, true, 5),
    density(false, true, 3),
];

const fn density(is_spaced: bool, is_inline: bool, max_rows: usize) -> Density {
    Density {
        is_spaced,
        is_inline,
        max_rows,
    }
}

/// All of a frame, for a text without height.
pub(super) fn whole(frame: &Frame, width: usize) -> Vec<Line> {
    let mut lines = vec![title(frame)];
    lines.extend(arrange(frame, DENSITIES[0], width));
    lines
}

/// A frame on a screen. The first line stays when the others are scrolled.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    pub(super) title: Line,
    pub(super) body: Vec<Line>,
}

/// The choices of the user.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choice {
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
}

impl Screen {
    /// Arranges a frame for a screen of `width` columns, with `height` lines below the title.
    pub(super) fn new(frame: &Frame, choice: Choice, width: usize, height: usize) -> Self {
        let mut body = Vec::new();
        for density in DENSITIES {
            body = arrange(frame, density, width);
            if body.len() <= height {
                break;
            }
        }
        let mut title = title(frame);
        title.text += &format!("  sorted by {}", choice.sort.name());
        if choice.is_paused {
            title.text += "  PAUSED";
        }
        for line in body.iter_mut().chain([&mut title]) {
            line.text = cut(&line.text, width);
        }
        Self { title, body }
    }
}

fn title(frame: &Frame) -> Line {
    let (ready, all) = frame.ready;
    let rates = match frame.seconds {
        Some(_) if frame.is_since_start => "rates since the start".to_owned(),
        Some(seconds) => format!("rates over {seconds:.1} s"),
        None => "no server responds".to_owned(),
    };
    let at = frame.at.strftime("%Y-%m-%d %H:%M:%SZ");
    Line::new(
        Style::Title,
        format!("tsdb top  {at}  {ready} of {all} ready  {rates}"),
    )
}

fn arrange(frame: &Frame, density: Density, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for section in &frame.sections {
        if density.is_spaced && !lines.is_empty() {
            lines.push(Line::empty());
        }
        match section.shape {
            Shape::Facts => section
                .rows
                .iter()
                .for_each(|row| lines.extend(facts(section, row, width))),
            Shape::ShortTable if density.is_inline => lines.extend(inline(section, width)),
            Shape::ShortTable => lines.extend(table(section, usize::MAX)),
            // Every server is shown.
            Shape::Table if section.key == "servers" => lines.extend(table(section, usize::MAX)),
            Shape::Table => lines.extend(table(section, density.max_rows)),
        }
    }
    // Text of servers and queries may have characters that a terminal would execute, hide or reorder.
    let is_hidden = |c: char| !is_printable(c);
    for line in &mut lines {
        if line.text.contains(is_hidden) {
            line.text = line.text.replace(is_hidden, "\u{fffd}");
        }
    }
    lines
}

/// A header, rows, and how many are left out.
fn table(section: &Section, max_rows: usize) -> Vec<Line> {
    let shown = match section.rows.len() {
        // A row fits into the line that counts what is left out.
        rows if rows <= max_rows.saturating_add(1) => rows,
        _ => max_rows,
    };
    let rows = &section.rows[..shown];
    let columns: Vec<Column> = shown_columns(section, rows)
        .map(|at| {
            let name = if at == 0 {
                section.title
            } else {
                section.columns[at].1
            };
            let cells = rows.iter().map(|row| row[at].text());
            Column::new(name, cells, at > 0 && rows.iter().all(|row| row[at].is_number()))
        })
        .collect();
    let line = |row: usize| {
        let cells: Vec<String> = columns.iter().map(|column| column.cell(row)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![Line::new(Style::Header, line(0))];
    for (at, row) in rows.iter().enumerate() {
        let notes = row.iter().filter(|figure| matches!(figure, Figure::Note(_)));
        let notes: Vec<Line> = notes
            .map(|note| Line::new(Style::Alarm, format!("  {}", note.text())))
            .collect();
        let style = if notes.is_empty() {
            Style::Plain
        } else {
            Style::Alarm
        };
        lines.push(Line::new(style, line(at + 1)));
        lines.extend(notes);
    }
    let hidden = section.rows.len() - shown;
    if hidden > 0 {
        lines.push(Line::new(Style::Plain, format!("  … {hidden} more")));
    }
    lines
}

/// The columns that have a figure; notes have lines of their own.
fn shown_columns<'a>(section: &'a Section, rows: &'a [Vec<Figure>]) -> impl Iterator<Item = usize> + 'a {
    let is_shown = |figure: &Figure| !matches!(figure, Figure::Missing | Figure::Note(_));
    (0..section.columns.len()).filter(move |at| *at == 0 || rows.iter().any(|row| is_shown(&row[*at])))
}

/// A column of a table: its name, and cells of the same width.
struct Column {
    cells: Vec<String>,
    width: usize,
    is_number: bool,
}

impl Column {
    fn new(name: &str, cells: impl Iterator<Item = String>, is_number: bool) -> Self {
        let cells: Vec<String> = std::iter::once(name.to_owned()).chain(cells).collect();
        let width = cells.iter().map(|cell| width_of(cell)).max().unwrap_or_default();
        Self {
            cells,
            width,
            is_number,
        }
    }

    /// Numbers are aligned to the right; row 0 is the name.
    fn cell(&self, row: usize) -> String {
        let cell = &self.cells[row];
        let padding = " ".repeat(self.width - width_of(cell));
        match self.is_number {
            true => padding + cell,
            false => format!("{cell}{padding}"),
        }
    }
}

/// Rows one behind the other: `STAGES (/s, p50, p99)  queue 12.0, 250 us, 1.0 ms  plan ...`.
fn inline(section: &Section, width: usize) -> Vec<Line> {
    let columns: Vec<usize> = shown_columns(section, &section.rows).skip(1).collect();
    let names: Vec<&str> = columns.iter().map(|at| section.columns[*at].1).collect();
    let items = section.rows.iter().map(|row| {
        let figures: Vec<String> = columns.iter().map(|at| row[*at].text()).collect();
        format!("{} {}", row[0].text(), figures.join(", "))
    });
    wrapped(&format!("{} ({})", section.title, names.join(", ")), items, width)
}

/// Names and values: `QUERIES  running 1  queued 0`. Missing values are left out.
fn facts(section: &Section, row: &[Figure], width: usize) -> Vec<Line> {
    let mut title = section.title.to_owned();
    let pairs = section
        .columns
        .iter()
        .zip(row)
        .filter(|(_, figure)| **figure != Figure::Missing);
    let mut items = Vec::new();
    for ((_, name), figure) in pairs {
        match figure {
            Figure::Text(text) => title = format!("{title} {text}"),
            figure => items.push(format!("{name} {}", figure.text())),
        }
    }
    wrapped(&title, items.into_iter(), width)
}

/// A title and items, on as many lines as they need.
fn wrapped(title: &str, items: impl Iterator<Item = String>, width: usize) -> Vec<Line> {
    let mut lines: Vec<String> = vec![title.to_owned()];
    for item in items {
        match lines.last_mut() {
            Some(line) if width_of(line) + 2 + width_of(&item) <= width => {
                line.push_str("  ");
                line.push_str(&item);
            }
            _ => lines.push(format!("  {item}")),
        }
    }
    lines
        .into_iter()
        .map(|line| Line::new(Style::Plain, line))
        .collect()
}

fn width_of(text: &str) -> usize {
    text.chars().count()
}

/// The beginning of a text that is too long.
fn cut(text: &str, width: usize) -> String {
    match width_of(text) > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
