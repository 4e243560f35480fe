//! `/api/tree/collisions` and `/api/tree/notmatched`.

use http::Method;
use oxtsdb_query::QueryError;
use oxtsdb_schema::java::sort_as_hash_map;

use super::failure::{of_tree, repeated};
use super::request::SeriesRequest;
use super::{existing, unsupported_method};
use crate::http::api_request::ApiRequest;
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::query::failure::of_query;
use crate::http::reply::Reply;
use crate::tree::{PROBLEM_BYTES, Problem};
use oxtsdb_query::QueryDescription;

/// All methods.
pub(super) async fn problems(request: ApiRequest<'_>, problem: Problem) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        method,
        parameters,
        context,
        mut body,
        ..
    } = request;
    let trees = &parts.trees;
    let compute = &parts.engine.resources().compute;
    let SeriesRequest { tree, tsuids } = SeriesRequest::read(parameters, &mut body, compute).await?;
    let id = existing(trees, tree).await?;
    if !matches!(*method, Method::GET | Method::POST | Method::PUT) {
        return Err(unsupported_method());
    }
    let tsuids = tsuids
        .iter()
        .map(|tsuid| bytes(tsuid))
        .collect::<Result<Vec<_>, _>>()?;
    let description = QueryDescription::without_range(format!("problems of tree {id}"));
    let failed = |error: QueryError| of_query(&error);
    let admitted = parts
        .engine
        .admit(context, description, None)
        .await
        .map_err(failed)?;
    let context = admitted.context().clone();
    let found = context
        .run(async { Ok(trees.problems(id, problem, &tsuids, admitted.budget()).await) })
        .await;
    let found = found.map_err(failed)?.map_err(|error| of_tree(&error))?;
    let held = admitted
        .budget()
        .hold(found.len() as u64 * PROBLEM_BYTES)
        .map_err(failed)?;
    let budget = admitted.budget().clone();
    let written = parts.engine.resources().compute.run(move || {
        let mut entries: Vec<Entry> = found
            .into_iter()
            .map(|(tsuid, text)| Entry {
                tsuid: hex::encode_upper(tsuid),
                text,
            })
            .collect();
        let capacity = entries.len();
        sort_as_hash_map(&mut entries, capacity);
        let mut writer = BodyWriter::new();
        writer.hold_of(&budget)?;
        writer.out().push(b'{');
        for (place, entry) in entries.iter().enumerate() {
            if place > 0 {
                writer.out().push(b',');
            }
            json::write_string(writer.out(), &entry.tsuid);
            writer.out().push(b':');
            json::write_string(writer.out(), &entry.text);
            writer.roll()?;
        }
        writer.out().push(b'}');
        let body = writer.finish();
        drop(held);
        body
    });
    let body = written.await.map_err(QueryError::from).flatten();
    Ok(Reply::json(body.map_err(failed)?))
}

/// A problem of a series.
struct Entry {
    tsuid: String,
    text: String,
}

impl AsRef<str> for Entry {
    fn as_ref(&self) -> &str {
        &self.tsuid
    }
}

/// The bytes of a TSUID; a leading zero may be missing.
pub(super) fn bytes(tsuid: &str) -> Result<Vec<u8>, HttpError> {
    let padded = if tsuid.len().is_multiple_of(2) {
        tsuid.to_owned()
    } else {
        format!("0{tsuid}")
    };
    hex::decode(&padded).map_err(|_| repeated(format!("contains illegal character for hexBinary: {padded}")))
}
