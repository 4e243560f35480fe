//! The files of records.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::json::Json;
use crate::paths;

/// Requests to one OpenTSDB with tables of its own, in their order.
#[derive(Debug)]
pub struct Section {
    /// The file's name without its ending.
    pub file: String,
    /// Unique in its file.
    pub name: String,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) records: Vec<Record>,
    pub(super) dumps: Vec<Dump>,
}

/// A request and its response.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) request: Option<Request>,
    /// A line of telnet, in place of a request.
    pub(super) telnet: Option<String>,
    pub(super) response: Response,
    /// The request is repeated until its response is the recorded one.
    #[serde(default)]
    pub(super) settle: bool,
    /// Arrays of the response are in no defined order.
    #[serde(default)]
    pub(super) unordered: bool,
}

/// A request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// A body of JSON.
    pub(super) body: Option<Json>,
    /// Any other body.
    pub(super) text: Option<String>,
}

/// The response of OpenTSDB.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Response {
    /// 0 for telnet.
    #[serde(default)]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) json: Option<Json>,
    pub(super) text: Option<String>,
}

/// Cells of tables after a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dump {
    file: String,
    section: String,
    pub(super) after: String,
    pub(super) tables: Vec<String>,
    /// Table, row key, column, value.
    pub(super) cells: Vec<[String; 4]>,
}

/// The first line of a section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    section: String,
    settings: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Head(Head),
    Record(Box<Record>),
}

/// Reads the sections of a file, such as `uid`.
///
/// # Errors
///
/// If a file is missing, or a line of it has another form.
pub fn sections(file: &str) -> anyhow::Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for line in lines(file)? {
        match (line, sections.last_mut()) {
            (Line::Head(head), _) => sections.push(Section {
                file: file.to_owned(),
                name: head.section,
                settings: head.settings,
                records: Vec::new(),
                dumps: Vec::new(),
            }),
            (Line::Record(record), Some(section)) => section.records.push(*record),
            (Line::Record(record), None) => bail!("`{}` of {file} is in no section", record.name),
        }
    }
    for dump in lines::<Dump>("cells")? {
        let of = |section: &&mut Section| section.file == dump.file && section.name == dump.section;
        if let Some(section) = sections.iter_mut().find(of) {
            ensure!(
                section.records.iter().any(|record| record.name == dump.after),
                "cells of {file}/{}: no record `{}`",
                section.name,
                dump.after
            );
            section.dumps.push(dump);
        }
    }
    Ok(sections)
}

fn lines<T: serde::de::DeserializeOwned>(file: &str) -> anyhow::Result<Vec<T>> {
    let path = paths::package().join(format!("testdata/recorded/{file}.jsonl"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), number + 1))
    };
    text.lines().enumerate().map(parse).collect()
}
