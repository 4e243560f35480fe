//! `/api/tree/collisions` and `/api/tree/notmatched`.

use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use http::Method;
use oxtsdb_metadata::tree::Problem;
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_metadata::tree::problems::Problems;
use oxtsdb_query::{Budget, Held, QueryContext, QueryDescription, QueryError};
use oxtsdb_schema::java::sort_as_hash_map;

use super::failure::{repeated, tree_error};
use super::request::SeriesRequest;
use super::{existing, unsupported_method};
use crate::http::api_request::ApiRequest;
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;

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
    let failed = |error: QueryError| query_error(&error);
    let admitted = parts
        .engine
        .admit(context, description, None)
        .await
        .map_err(failed)?;
    let (context, budget) = (admitted.context(), admitted.budget());
    let read = read(
        trees.problems(id, problem, tsuids, budget.clone()),
        context,
        budget,
    )
    .await;
    let (entries, mut held) = read.map_err(|error| tree_error(&error))?;
    let sort = move || {
        let mut entries = entries;
        let capacity = entries.len();
        sort_as_hash_map(&mut entries, capacity);
        entries
    };
    let entries = compute.run(sort).await;
    let entries = entries.map_err(QueryError::from).map_err(failed)?;
    let write = move |out: &mut Vec<u8>, entry: Entry| {
        json::write_string(out, &entry.tsuid);
        out.push(b':');
        json::write_string(out, &entry.text);
        held.shrink_to(held.bytes().saturating_sub(entry.bytes));
    };
    let written = async {
        let mut writer = BodyWriter::with_budget(budget)?;
        writer.out().push(b'{');
        let mut writer = writer.write_items(compute, entries, write).await?;
        writer.out().push(b'}');
        writer.finish()
    };
    Ok(Reply::json(context.run(written).await.map_err(failed)?))
}

/// Reads all problems of a stream, and their memory.
async fn read(
    mut problems: BoxStream<'static, Result<Problems, TreeError>>,
    context: &QueryContext,
    budget: &Budget,
) -> Result<(Vec<Entry>, Held), TreeError> {
    let (mut entries, mut of_entries) = (Vec::new(), budget.hold(0)?);
    while let Some(Problems {
        problems: batch,
        held,
    }) = context.run(problems.try_next()).await?
    {
        of_entries.merge(held);
        let before = entries.len();
        entries.extend(batch.into_iter().map(|(tsuid, text)| Entry {
            bytes: 2 * tsuid.len() as u64,
            tsuid: hex::encode_upper(tsuid),
            text,
        }));
        let more = entries.get(before..).unwrap_or_default();
        of_entries.grow(more.iter().map(|entry| entry.bytes).sum())?;
    }
    Ok((entries, of_entries))
}

/// A problem of a series.
struct Entry {
    tsuid: String,
    text: String,
    /// Memory of the TSUID as text.
    bytes: u64,
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
