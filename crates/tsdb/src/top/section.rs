//! A section of a frame: rows of figures, the same for a terminal, a text and JSON.

use serde_json::{Map, Value};

use super::figure::Figure;

/// How the rows of a section are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A line for each row, below a header; the rows that do not fit are counted.
    Table,
    /// A line for each row, below a header; on a small screen one behind the other.
    ShortTable,
    /// Pairs of name and value.
    Facts,
}

/// Figures of one subject.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The name in JSON.
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) shape: Shape,
    /// Names of the columns: in JSON, and as they are shown. The title stands above the first column of a table.
    pub(super) columns: Vec<(&'static str, &'static str)>,
    /// A row has a figure for each column.
    pub(super) rows: Vec<Vec<Figure>>,
}

impl Section {
    pub(super) fn new(
        key: &'static str,
        title: &'static str,
        shape: Shape,
        columns: &[(&'static str, &'static str)],
    ) -> Self {
        Self {
            key,
            title,
            shape,
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Leaves out a column, such as the name of the server if there is only one.
    pub(super) fn without(mut self, key: &str) -> Self {
        if let Some(at) = self.columns.iter().position(|(column, _)| *column == key) {
            self.columns.remove(at);
            for row in &mut self.rows {
                row.remove(at);
            }
        }
        self
    }

    /// An array of objects.
    pub(super) fn json(&self) -> Value {
        let object = |row: &Vec<Figure>| {
            let keys = self.columns.iter().map(|(key, _)| (*key).to_owned());
            Value::Object(keys.zip(row.iter().map(Figure::json)).collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }
}
