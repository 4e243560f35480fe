//! `tsdb compare`: whether two places have the same rows.
//!
//! Both sides are read in order of their keys and merged: every row is compared, and each range of keys and time has
//! counts and a checksum of either side. Memory holds a few batches of rows.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::process::ExitCode;

use clap::Args;
use futures::TryStreamExt as _;
use futures::future::LocalBoxFuture;
use oxtsdb_command::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::table_args::TableArgs;
use oxtsdb_point_store::view::{ShownCell, shown_cells, shown_rollups};
use oxtsdb_row_store::Row;
use oxtsdb_schema::RowKeyLayout;
use xxhash_rust::xxh3::Xxh3;

use super::place::Place;
use super::roles::{DATA, has_keys_of_points};
use super::source::Rows;

/// Bytes of a value that are printed.
const PRINTED_BYTES: usize = 32;

/// Compare all rows of two stores or exports
///
/// Reads all tables of both and compares every row. Points are equal if instant, resolution, type and value are equal,
/// whether they are cells of their own or compacted; all other cells are equal if their bytes are. Timestamps of cells
/// are not compared. Of two cells with one instant, the newest is compared, as queries read it.
///
/// Prints the first differing rows, `TABLE row KEY: ...`, and a line for each table with rows, cells and checksum. With
/// one STORE, prints its sums, for a comparison with the sums of another machine. Rows that are written meanwhile differ.
///
/// Exit status: 0 if all rows are equal, else 1.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// One or two of hbase-quorum:HOST[:PORT][,...][/ZNODE], hbase-masters:HOST[:PORT][,...], hbase:HOST:PORT[,...]
    /// (Thrift), embedded:DIR and export:DIR
    #[arg(value_name = "STORE", required = true, num_args = 1..=2)]
    places: Vec<Place>,

    /// Print the sums of each range: of a metric's UID (with salt) and a day (UTC)
    #[arg(long)]
    ranges: bool,

    /// Compare the bytes of cells: compacted points differ from single ones
    #[arg(long)]
    exact: bool,

    /// Differing rows that are printed, of each table
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    max: u64,

    #[command(flatten)]
    tables: TableArgs,
}

/// Compares the places.
///
/// # Errors
///
/// A place cannot be read.
pub fn run(args: CompareArgs) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(execute(args))
}

async fn execute(args: CompareArgs) -> anyhow::Result<ExitCode> {
    let layout = args.tables.layout()?;
    let mut opened = Vec::new();
    for place in &args.places {
        opened.push(place.open(&args.tables).await?);
    }
    let mut roles: Vec<String> = Vec::new();
    for role in opened.iter().flat_map(super::place::Opened::roles) {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    let bar = progress::progress();
    let mut are_equal = true;
    for role in &roles {
        let mut sides = Vec::new();
        for opened in &opened {
            sides.push(Side::new(opened.rows(role).await?));
        }
        let mut comparison = Comparison {
            role,
            layout: &layout,
            args: &args,
            text: String::new(),
            range: None,
            differing: 0,
        };
        while comparison.step(&mut sides).await? {
            if !comparison.text.is_empty() {
                let text = std::mem::take(&mut comparison.text);
                bar.suspend(|| print(&text))?;
            }
            let rows = sides.first().map_or(0, |side| side.total.rows);
            if rows % 1024 == 0 {
                bar.set_message(format!("{role}: {rows} rows"));
            }
        }
        are_equal &= comparison.differing == 0;
        let text = comparison.summary(&mut sides);
        bar.suspend(|| print(&text))?;
    }
    bar.finish_and_clear();
    for opened in opened {
        opened.close().await?;
    }
    Ok(if are_equal {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Counts and checksum of rows.
#[derive(Default)]
struct Sum {
    rows: u64,
    cells: u64,
    hash: Xxh3,
}

impl Sum {
    fn add(&mut self, key: &[u8], cells: &[ShownCell]) {
        self.rows += 1;
        self.cells += cells.len() as u64;
        self.bytes(key);
        self.hash.update(&(cells.len() as u64).to_be_bytes());
        for cell in cells {
            self.bytes(cell.family.as_bytes());
            self.bytes(&cell.qualifier);
            self.bytes(&cell.value);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.hash.update(&(bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }

    fn text(&self) -> String {
        format!(
            "{} rows {} cells {:016x}",
            self.rows,
            self.cells,
            self.hash.digest()
        )
    }
}

/// One side of a table.
struct Side {
    rows: Rows,
    batch: VecDeque<Row>,
    /// Of the range that is read, and of all.
    range: Sum,
    total: Sum,
}

impl Side {
    fn new(rows: Rows) -> Self {
        Self {
            rows,
            batch: VecDeque::new(),
            range: Sum::default(),
            total: Sum::default(),
        }
    }

    /// Reads the next row, if none is there.
    async fn fill(&mut self) -> anyhow::Result<()> {
        while self.batch.is_empty() {
            match self.rows.try_next().await? {
                Some(batch) => self.batch.extend(batch),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.batch.front().map(Row::key)
    }

    /// Takes the next row if it has this key.
    fn take(&mut self, key: &[u8]) -> Option<Row> {
        let is_next = self.key() == Some(key);
        is_next.then(|| self.batch.pop_front()).flatten()
    }
}

/// The comparison of a table.
struct Comparison<'a> {
    role: &'a str,
    layout: &'a RowKeyLayout,
    args: &'a CompareArgs,
    /// To print.
    text: String,
    range: Option<String>,
    differing: u64,
}

impl Comparison<'_> {
    /// Compares the next row of the sides; `false` if there is none.
    async fn step(&mut self, sides: &mut [Side]) -> anyhow::Result<bool> {
        for side in sides.iter_mut() {
            side.fill().await?;
        }
        let key = sides.iter().filter_map(Side::key).min().map(<[u8]>::to_vec);
        let Some(key) = key else { return Ok(false) };
        if self.args.ranges {
            let range = self.range_of(&key);
            if self.range.as_ref() != Some(&range) {
                self.end_range(sides);
                self.range = Some(range);
            }
        }
        let mut rows = Vec::with_capacity(sides.len());
        for side in sides.iter_mut() {
            let cells = side.take(&key).map(|row| self.cells(&row));
            if let Some(cells) = &cells {
                side.total.add(&key, cells);
                if self.args.ranges {
                    side.range.add(&key, cells);
                }
            }
            rows.push(cells);
        }
        if let [a, b] = &rows[..]
            && a != b
        {
            self.differing += 1;
            if self.differing <= self.args.max {
                let difference = difference(a.as_deref(), b.as_deref());
                self.text += &format!("{} row {}: {difference}\n", self.role, hex::encode(&key));
            }
        }
        Ok(true)
    }

    /// The cells of a row that are compared.
    fn cells(&self, row: &Row) -> Vec<ShownCell> {
        if !self.args.exact && self.role == DATA {
            return shown_cells(row, self.layout);
        }
        if !self.args.exact && has_keys_of_points(self.role) {
            return shown_rollups(row, self.layout);
        }
        let cells = row.cells().map(|cell| ShownCell {
            family: cell.family.to_owned(),
            qualifier: cell.qualifier.to_vec(),
            value: cell.value.to_vec(),
        });
        cells.collect()
    }

    /// The range of a key: salt and metric, and the day.
    fn range_of(&self, key: &[u8]) -> String {
        let prefix = self.layout.salt.width() + self.layout.widths.metric.bytes();
        let time = key
            .get(prefix..prefix + 4)
            .filter(|_| has_keys_of_points(self.role));
        let Some(time) = time.and_then(|bytes| bytes.try_into().ok()) else {
            return "all".to_owned();
        };
        let day = i64::from(u32::from_be_bytes(time)) / 86_400 * 86_400;
        let day = jiff::Timestamp::from_second(day)
            .map(|day| day.strftime("%Y-%m-%d").to_string())
            .unwrap_or_default();
        format!("{} {day}", hex::encode_upper(&key[..prefix]))
    }

    fn end_range(&mut self, sides: &mut [Side]) {
        let sums: Vec<Sum> = sides
            .iter_mut()
            .map(|side| std::mem::take(&mut side.range))
            .collect();
        if let Some(range) = self.range.take() {
            self.text += &line(
                &format!("{} {range}", self.role),
                &sums.iter().collect::<Vec<_>>(),
            );
        }
    }

    /// The lines that are left to print.
    fn summary(&mut self, sides: &mut [Side]) -> String {
        self.end_range(sides);
        if self.differing > self.args.max {
            self.text += &format!("{}: {} rows differ\n", self.role, self.differing);
        }
        let sums: Vec<&Sum> = sides.iter().map(|side| &side.total).collect();
        std::mem::take(&mut self.text) + &line(&format!("{} total", self.role), &sums)
    }
}

/// A line with the sums of a range.
fn line(range: &str, sums: &[&Sum]) -> String {
    match sums {
        [a, b] if a.text() == b.text() => format!("{range}: equal, {}\n", a.text()),
        [a, b] => format!("{range}: differs, {}; {}\n", a.text(), b.text()),
        sums => {
            let sums: Vec<String> = sums.iter().map(|sum| sum.text()).collect();
            format!("{range}: {}\n", sums.join("; "))
        }
    }
}

/// The first difference between rows.
fn difference(a: Option<&[ShownCell]>, b: Option<&[ShownCell]>) -> String {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => return format!("only the first has it, with {} cells", a.len()),
        (None, _) => return format!("only the second has it, with {} cells", b.map_or(0, <[_]>::len)),
    };
    let column = |cell: &ShownCell| format!("{}:{}", cell.family, hex::encode(&cell.qualifier));
    let address = |cell: &ShownCell| (cell.family.clone(), cell.qualifier.clone());
    let pairs = a.iter().map(Some).chain(std::iter::repeat(None));
    let others = b.iter().map(Some).chain(std::iter::repeat(None));
    let longest = a.len().max(b.len());
    let pair = pairs.zip(others).take(longest).find(|(a, b)| a != b);
    match pair {
        Some((Some(a), Some(b))) => match address(a).cmp(&address(b)) {
            Ordering::Less => format!("only the first has cell {}", column(a)),
            Ordering::Greater => format!("only the second has cell {}", column(b)),
            Ordering::Equal => format!(
                "cell {} is {} and {}",
                column(a),
                short(&a.value),
                short(&b.value)
            ),
        },
        Some((Some(a), None)) => format!("only the first has cell {}", column(a)),
        Some((None, Some(b))) => format!("only the second has cell {}", column(b)),
        Some((None, None)) | None => "cells differ".to_owned(),
    }
}

fn short(value: &[u8]) -> String {
    let shown = hex::encode(&value[..value.len().min(PRINTED_BYTES)]);
    match value.len() {
        0 => "empty".to_owned(),
        length if length > PRINTED_BYTES => format!("{shown}… ({length} bytes)"),
        _ => shown,
    }
}
