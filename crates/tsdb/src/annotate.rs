//! `tsdb annotate`: sets, lists and deletes annotations.

mod series;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use jiff::tz::TimeZone;
use oxtsdb_client::proto::common::v1::{TimeRange, time_range};
use oxtsdb_client::proto::data::v1::put_annotation_request::Precondition;
use oxtsdb_client::proto::data::v1::{
    Annotation as AnnotationMessage, DeleteAnnotationRequest, ListAnnotationsRequest, PutAnnotationRequest,
};
use oxtsdb_client::{Annotation, DataClient};
use oxtsdb_command::annotations::{json_object, lines};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::{DataTarget, Server, UidTarget};
use oxtsdb_command::time_zone::{self, TimeZoneArgs};

use self::series::SeriesArgs;

/// Annotations of a page.
const PAGE_SIZE: i32 = 1000;

/// Set, list and delete annotations: notes on a series, or global ones
///
/// SERIES is METRIC{TAGK=TAGV,...} with all tags of the series; --tsuid names it by its TSUID, and --global is for
/// annotations of everything. Times are as for `tsdb query`. The begin of an annotation is its key.
///
/// Exit status: 1 if a name is unknown, or there is no such annotation.
#[derive(Debug, Args)]
pub(crate) struct AnnotateArgs {
    #[command(flatten)]
    target: DataTarget,

    #[command(flatten)]
    uid_target: UidTarget,

    #[command(subcommand)]
    action: Action,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
enum Action {
    /// Create an annotation, or change the given fields of the stored one, and print it
    Set {
        /// End of the annotation
        #[arg(long, value_name = "TIME")]
        end: Option<String>,

        /// One line of text
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,

        /// Longer text
        #[arg(long, value_name = "TEXT")]
        notes: Option<String>,

        /// A field of your own; all of them replace those that are stored
        #[arg(long, value_name = "KEY=VALUE")]
        custom: Vec<String>,

        /// Only if the stored annotation has this etag
        #[arg(long, value_name = "ETAG", conflicts_with = "new")]
        etag: Option<String>,

        /// Only if there is none
        #[arg(long)]
        new: bool,

        /// Begin
        #[arg(value_name = "TIME")]
        time: String,

        #[command(flatten)]
        series: SeriesArgs,

        #[command(flatten)]
        time_zone: TimeZoneArgs,
    },
    /// Print the annotations that begin between two times, both inclusive
    List {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,

        /// End of the range [default: now]
        #[arg(long, value_name = "TIME")]
        until: Option<String>,

        /// Start of the range
        #[arg(value_name = "TIME")]
        time: String,

        #[command(flatten)]
        series: SeriesArgs,

        #[command(flatten)]
        time_zone: TimeZoneArgs,
    },
    /// Delete an annotation, or with --until those that begin between two times
    Delete {
        /// End of the range, inclusive
        #[arg(long, value_name = "TIME", conflicts_with = "etag")]
        until: Option<String>,

        /// Only if the stored annotation has this etag
        #[arg(long, value_name = "ETAG")]
        etag: Option<String>,

        /// Begin, or start of the range
        #[arg(value_name = "TIME")]
        time: String,

        #[command(flatten)]
        series: SeriesArgs,

        #[command(flatten)]
        time_zone: TimeZoneArgs,
    },
}

/// Output formats.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Lines START, END, DESCRIPTION, NOTES, KEY=VALUE ..., ETAG with tabs between
    Text,
    /// An array, as OpenTSDB's /api/annotations responds
    Json,
}

/// Runs the command.
///
/// # Errors
///
/// If the arguments are not valid, or a call fails.
pub(crate) async fn run(args: AnnotateArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    let uids = args.uid_target.uid()?;
    match args.action {
        Action::Set {
            end,
            description,
            notes,
            custom,
            etag,
            new,
            time,
            series,
            time_zone,
        } => {
            let zone = time_zone.zone()?;
            let start_ms = instant(&time, &zone)?;
            let end_ms = end.map(|end| instant(&end, &zone)).transpose()?;
            let annotation = AnnotationMessage {
                start_ms,
                end_ms: end_ms.unwrap_or_default(),
                description: description.clone().unwrap_or_default(),
                notes: notes.clone().unwrap_or_default(),
                custom: custom
                    .iter()
                    .map(|text| pair(text))
                    .collect::<anyhow::Result<_>>()?,
                ..AnnotationMessage::default()
            };
            let given = [
                ("end_ms", end_ms.is_some()),
                ("description", description.is_some()),
                ("notes", notes.is_some()),
                ("custom", !custom.is_empty()),
            ];
            let paths: Vec<String> = given
                .into_iter()
                .filter(|(_, is_given)| *is_given)
                .map(|(field, _)| field.to_owned())
                .collect();
            if paths.is_empty() {
                bail!("nothing to set: missing --description, --notes, --end or --custom");
            }
            let request = PutAnnotationRequest {
                annotation: Some(AnnotationMessage {
                    tsuid: series.tsuid(&uids).await?,
                    ..annotation
                }),
                update_mask: Some(prost_types::FieldMask { paths }),
                precondition: etag
                    .map(Precondition::Etag)
                    .or(new.then_some(Precondition::MustBeNew(true))),
            };
            let stored = server.client.put_annotation(request).await;
            let stored = stored.map_err(|error| server.error("annotate", &error))?;
            print(&lines(&[stored], &zone))?;
        }
        Action::List {
            format,
            until,
            time,
            series,
            time_zone,
        } => {
            let zone = time_zone.zone()?;
            let range = range(&time, until.as_deref(), &zone)?;
            let tsuid = series.tsuid(&uids).await?;
            return list(&server, (tsuid, range), format, &zone).await;
        }
        Action::Delete {
            until: None,
            etag,
            time,
            series,
            time_zone,
        } => {
            let request = DeleteAnnotationRequest {
                start_ms: instant(&time, &time_zone.zone()?)?,
                tsuid: series.tsuid(&uids).await?,
                etag: etag.unwrap_or_default(),
                allow_missing: false,
            };
            let deleted = server.client.delete_annotation(request).await;
            deleted.map_err(|error| server.error("annotate", &error))?;
        }
        Action::Delete {
            until,
            time,
            series,
            time_zone,
            ..
        } => {
            let range = range(&time, until.as_deref(), &time_zone.zone()?)?;
            let tsuid = series.tsuid(&uids).await?;
            let (tsuids, global) = if tsuid.is_empty() {
                (Vec::new(), true)
            } else {
                (vec![tsuid], false)
            };
            let deleted = server.client.delete_annotations(tsuids, global, range).await;
            let deleted = deleted.map_err(|error| server.error("annotate", &error))?;
            print(&format!("{deleted} deleted\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints annotations page by page.
async fn list(
    server: &Server<DataClient>,
    (tsuid, range): (bytes::Bytes, TimeRange),
    format: Format,
    zone: &TimeZone,
) -> anyhow::Result<ExitCode> {
    let mut request = ListAnnotationsRequest {
        tsuid,
        range: Some(range),
        page_size: PAGE_SIZE,
        page_token: String::new(),
    };
    let mut count = 0;
    loop {
        let page = server.client.annotations(request.clone()).await;
        let page = page.map_err(|error| server.error("annotate", &error))?;
        let text = match format {
            Format::Text => lines(&page.annotations, zone),
            Format::Json => json_part(&page.annotations, count),
        };
        print(&text)?;
        count += page.annotations.len();
        match page.next {
            Some(token) => request.page_token = token,
            None => break,
        }
    }
    if matches!(format, Format::Json) {
        print(if count == 0 { "[]\n" } else { "]\n" })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Elements of a JSON array that has `before` elements already.
fn json_part(annotations: &[Annotation], before: usize) -> String {
    let elements = annotations.iter().enumerate().map(|(index, annotation)| {
        let separator = if before + index == 0 { '[' } else { ',' };
        format!("{separator}{}", json_object(annotation))
    });
    elements.collect()
}

/// A time in milliseconds.
fn instant(text: &str, zone: &TimeZone) -> anyhow::Result<i64> {
    time_zone::parse(text, time_zone::now_ms()?, zone)
}

/// From a time to another one, both inclusive; without the second to now.
fn range(start: &str, until: Option<&str>, zone: &TimeZone) -> anyhow::Result<TimeRange> {
    let start_ms = instant(start, zone)?;
    let until_ms = until.map(|text| instant(text, zone)).transpose()?;
    if let Some(until_ms) = until_ms.filter(|until_ms| *until_ms < start_ms) {
        bail!("end {until_ms} ms is before start {start_ms} ms");
    }
    Ok(TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        // The contract's end is exclusive.
        end: until_ms.map(|until_ms| time_range::End::EndMs(until_ms.saturating_add(1))),
    })
}

/// `KEY=VALUE`.
fn pair(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("--custom `{text}` is not of the form KEY=VALUE"),
    }
}
