//! `tsdb search --text`: metadata that matches a text.

use std::process::ExitCode;

use clap::ValueEnum;
use oxtsdb_client::proto::data::v1::search_metadata_response::result::Metadata;
use oxtsdb_client::proto::data::v1::{MetadataKind, SearchMetadataRequest};
use oxtsdb_client::proto::uid_kind;
use oxtsdb_client::{DataClient, UidKind};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::Format;

/// Results of a page.
const PAGE_SIZE: i32 = 1000;

/// The documents that are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Metadata of metrics, tag keys and tag values: kind, UID, name, display name, description, notes
    Uid,
    /// Metadata of series: TSUID, metric, tags, display name, description, notes
    Series,
    /// Annotations: start and end in milliseconds, TSUID, description, notes
    Annotation,
}

impl Kind {
    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Uid => &["kind", "uid", "name", "display_name", "description", "notes"],
            Self::Series => &["tsuid", "metric", "tags", "display_name", "description", "notes"],
            Self::Annotation => &["start_ms", "end_ms", "tsuid", "description", "notes"],
        }
    }
}

/// Prints results page by page.
///
/// # Errors
///
/// If the call fails, for example because the query cannot be parsed.
pub(super) async fn run(
    server: &Server<DataClient>,
    query: String,
    kind: Kind,
    format: Format,
    limit: u64,
) -> anyhow::Result<ExitCode> {
    let mut request = SearchMetadataRequest {
        kind: match kind {
            Kind::Uid => MetadataKind::Uid,
            Kind::Series => MetadataKind::Series,
            Kind::Annotation => MetadataKind::Annotation,
        }
        .into(),
        query,
        page_size: PAGE_SIZE,
        page_token: String::new(),
    };
    let mut left = if limit == 0 { u64::MAX } else { limit };
    let mut writer = Writer {
        format,
        kind,
        count: 0,
    };
    loop {
        let page = server.client.search_metadata(request.clone()).await;
        let page = page.map_err(|error| server.error("search", &error))?;
        let mut rows: Vec<Vec<String>> = page
            .results
            .into_iter()
            .filter_map(|result| result.metadata)
            .map(cells)
            .collect();
        rows.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= rows.len() as u64;
        print(&writer.rows(&rows)?)?;
        request.page_token = page.next_page_token;
        if left == 0 || request.page_token.is_empty() {
            break;
        }
    }
    print(&writer.end()?)?;
    Ok(ExitCode::from(u8::from(writer.count == 0)))
}

/// The cells of a result, in the order of the columns.
fn cells(metadata: Metadata) -> Vec<String> {
    match metadata {
        Metadata::Uid(meta) => {
            let kind = uid_kind(meta.kind).unwrap_or(UidKind::Metric).as_str();
            let uid = hex::encode_upper(&meta.uid);
            let texts = [meta.name, meta.display_name, meta.description, meta.notes];
            [kind.to_owned(), uid].into_iter().chain(texts).collect()
        }
        Metadata::Series(meta) => {
            let name = meta.name.unwrap_or_default();
            let tags = name.tags.iter().map(|tag| format!("{}={}", tag.key, tag.value));
            let tags = tags.collect::<Vec<_>>().join(" ");
            let tsuid = hex::encode_upper(&meta.tsuid);
            vec![
                tsuid,
                name.metric,
                tags,
                meta.display_name,
                meta.description,
                meta.notes,
            ]
        }
        Metadata::Annotation(note) => vec![
            note.start_ms.to_string(),
            note.end_ms.to_string(),
            hex::encode_upper(&note.tsuid),
            note.description,
            note.notes,
        ],
    }
}

/// Writes rows in a format.
struct Writer {
    format: Format,
    kind: Kind,
    count: u64,
}

impl Writer {
    /// The text of more rows.
    ///
    /// # Errors
    ///
    /// Never: memory can be written.
    fn rows(&mut self, rows: &[Vec<String>]) -> anyhow::Result<String> {
        let mut text = String::new();
        let mut csv = csv::Writer::from_writer(Vec::new());
        for row in rows {
            match self.format {
                Format::Text => {
                    let line = row.join("\t");
                    let line: String = line
                        .chars()
                        .map(|char| if char == '\n' { ' ' } else { char })
                        .collect();
                    text += line.trim_end();
                    text.push('\n');
                }
                Format::Json => {
                    let columns = self.kind.columns().iter().zip(row);
                    let columns = columns.map(|(column, cell)| ((*column).to_owned(), cell.as_str().into()));
                    let object: serde_json::Map<String, serde_json::Value> = columns.collect();
                    text += if self.count == 0 { "[" } else { ",\n" };
                    text += &serde_json::Value::from(object).to_string();
                }
                Format::Csv => {
                    if self.count == 0 {
                        csv.write_record(self.kind.columns())?;
                    }
                    csv.write_record(row)?;
                }
            }
            self.count += 1;
        }
        Ok(text + &String::from_utf8(csv.into_inner()?)?)
    }

    /// The text after the last row.
    ///
    /// # Errors
    ///
    /// Never: memory can be written.
    fn end(&self) -> anyhow::Result<String> {
        Ok(match self.format {
            Format::Json if self.count == 0 => "[]\n".to_owned(),
            Format::Json => "]\n".to_owned(),
            Format::Csv if self.count == 0 => self.kind.columns().join(",") + "\n",
            Format::Text | Format::Csv => String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::proto::data::v1::Annotation;

    use super::*;

    #[test]
    fn rows_are_one_text_of_the_format() {
        let written = |format| {
            let mut writer = Writer {
                format,
                kind: Kind::Annotation,
                count: 0,
            };
            let row = |start_ms, description: &str| {
                cells(Metadata::Annotation(Annotation {
                    start_ms,
                    tsuid: vec![0, 255].into(),
                    description: description.to_owned(),
                    ..Annotation::default()
                }))
            };
            let mut text = writer.rows(&[row(1000, "a\nb")]).unwrap();
            text += &writer.rows(&[row(2000, "c,d")]).unwrap();
            text + &writer.end().unwrap()
        };
        assert_eq!(written(Format::Text), "1000\t0\t00FF\ta b\n2000\t0\t00FF\tc,d\n");
        assert_eq!(
            written(Format::Csv),
            "start_ms,end_ms,tsuid,description,notes\n1000,0,00FF,\"a\nb\",\n2000,0,00FF,\"c,d\",\n"
        );
        let json: serde_json::Value = serde_json::from_str(&written(Format::Json)).unwrap();
        assert_eq!(json[1]["description"], "c,d");
    }
}
