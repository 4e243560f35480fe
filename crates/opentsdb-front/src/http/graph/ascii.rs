//! The points of a query, a line for each.
//!
//! ```text
//!   m 1356998400 18 host=web01 dc=lga
//! ```
//!
//! Points around the range are printed too, as far as the scan reads them: OpenTSDB clips them only when it draws.
//!
//! Source: OpenTSDB 2.4, `GraphHandler.respondAsciiQuery`.

use std::io::Write as _;

use oxtsdb_query::{Group, Number, QueryError, WholeResult};
use oxtsdb_schema::java;

use crate::http::body::{BodyWriter, ReplyBody};

/// The lines of all groups.
///
/// # Errors
///
/// The query has no memory for them.
pub(super) fn render(result: &WholeResult) -> Result<ReplyBody, QueryError> {
    let mut body = BodyWriter::new();
    body.hold_of(result.held.budget())?;
    for group in &result.groups {
        write(&mut body, group)?;
    }
    body.finish()
}

fn write(body: &mut BodyWriter, group: &Group) -> Result<(), QueryError> {
    let tags: String = group
        .tags
        .iter()
        .map(|(key, value)| format!(" {key}={value}"))
        .collect();
    for (time_ms, value) in group.points.iter() {
        let out = body.out();
        let _ = write!(out, "{} {} ", group.metric, time_ms / 1000);
        match value {
            Number::Int(int) => {
                let _ = write!(out, "{int}");
            }
            Number::Double(double) => java::write_double(out, double),
        }
        out.extend_from_slice(tags.as_bytes());
        out.push(b'\n');
        body.roll()?;
    }
    Ok(())
}
