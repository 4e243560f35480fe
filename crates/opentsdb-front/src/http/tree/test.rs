//! `/api/tree/test`: where series would be placed, without storing anything.

use std::fmt::Write as _;

use http::Method;
use oxtsdb_metadata::tree::evaluate::Outcome;
use oxtsdb_metadata::tree::test::TreeTester;
use oxtsdb_query::{QueryDescription, QueryError};
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::java::sort_as_hash_map;
use oxtsdb_schema::tree::{BranchDocument, BranchId, TreeId};

use super::failure::tree_error;
use super::problems::bytes;
use super::request::SeriesRequest;
use super::{existing, render, unsupported_method};
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;
use crate::http::uid::series_meta;

/// The most series of a request.
const MAX_SERIES: usize = 1000;

/// All methods.
pub(super) async fn test(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        method,
        parameters,
        context,
        mut body,
        ..
    } = request;
    let compute = &parts.engine.resources().compute;
    let SeriesRequest { tree, mut tsuids } = SeriesRequest::read(parameters, &mut body, compute).await?;
    let id = existing(&parts.trees, tree).await?;
    if tsuids.is_empty() {
        return Err(HttpError::bad_request("Missing or empty TSUID list"));
    }
    if !matches!(*method, Method::GET | Method::POST | Method::PUT) {
        return Err(unsupported_method());
    }
    if tsuids.len() > MAX_SERIES {
        let message = format!("{} series, at most {MAX_SERIES} are allowed", tsuids.len());
        return Err(HttpError::bad_request(message));
    }
    let capacity = tsuids.len();
    sort_as_hash_map(&mut tsuids, capacity);
    tsuids.dedup();
    let description = QueryDescription::without_range(format!("test of tree {id}"));
    let failed = |error: QueryError| query_error(&error);
    let admitted = parts
        .engine
        .admit(context, description, None)
        .await
        .map_err(failed)?;
    let context = admitted.context();
    let tester = context.run(parts.trees.tester(id)).await;
    let tester = tester.map_err(|error| tree_error(&error))?;
    let _rules = admitted.budget().hold(tester.memory_bytes()).map_err(failed)?;
    let mut writer = BodyWriter::with_budget(admitted.budget()).map_err(failed)?;
    for (place, text) in tsuids.iter().enumerate() {
        writer.out().push(if place == 0 { b'{' } else { b',' });
        json::write_string(writer.out(), text);
        writer.out().push(b':');
        let tested = context
            .run(async { Ok(test_one(parts, (id, &tester), text).await) })
            .await;
        writer.out().extend_from_slice(&tested.map_err(failed)??);
        writer.roll().map_err(failed)?;
    }
    writer.out().push(b'}');
    Ok(Reply::json(writer.finish().map_err(failed)?))
}

/// The result for one series.
async fn test_one(
    parts: &ApiParts,
    (tree, tester): (TreeId, &TreeTester),
    text: &str,
) -> Result<Vec<u8>, HttpError> {
    let without = |message: String| {
        let mut out = b"{\"meta\":null,\"messages\":".to_vec();
        json::write_strings(&mut out, [message]);
        out.extend_from_slice(b",\"branch\":null}");
        out
    };
    let missing = || Ok(without("Unable to locate TSUID meta data".to_owned()));
    let Ok(tsuid) = Tsuid::from_bytes(&bytes(text)?, parts.uids.widths()) else {
        return missing();
    };
    let meta = match series_meta(parts, &tsuid).await {
        Ok(None) => return missing(),
        Ok(Some(meta)) => meta,
        Err(error) if error.status == http::StatusCode::NOT_FOUND => {
            return Ok(without(format!(
                "TSUID was missing a UID name: {}",
                error.message
            )));
        }
        Err(error) => return Err(error),
    };
    let tested = tester.test(std::slice::from_ref(&tsuid)).await;
    let tested = tested.map_err(|error| tree_error(&error))?.into_iter().next();
    let (outcome, messages) = match tested {
        Some(Ok(tested)) => tested,
        Some(Err(no_name)) => return Ok(without(format!("TSUID was missing a UID name: {no_name}"))),
        None => return missing(),
    };
    let mut out = b"{\"meta\":".to_vec();
    out.extend_from_slice(&meta);
    out.extend_from_slice(b",\"messages\":");
    json::write_strings(&mut out, messages);
    out.extend_from_slice(b",\"branch\":");
    let (branches, leaf) = match &outcome {
        Outcome::Place(place) => (place.branches.as_slice(), Some(place.leaf.as_str())),
        Outcome::NotMatched { root_leaf, .. } | Outcome::TooFewNames(root_leaf) => {
            (&[][..], root_leaf.as_deref())
        }
        Outcome::TooLarge(_) => (&[][..], None),
    };
    let (mut id, mut document) = (BranchId::root(tree), BranchDocument::root());
    let mut ends = Vec::with_capacity(branches.len());
    for name in branches {
        out.extend_from_slice(b"{\"leaves\":null,\"branches\":[");
        let (child, named) = (id.child(name), document.child(name));
        ends.push((id, document));
        (id, document) = (child, named);
    }
    out.extend_from_slice(b"{\"leaves\":");
    match leaf {
        None => out.extend_from_slice(b"null"),
        Some(name) => {
            let mut leaf = String::new();
            let _ = write!(
                leaf,
                "[{{\"metric\":\"\",\"tags\":null,\"tsuid\":\"{tsuid}\",\"displayName\":"
            );
            out.extend_from_slice(leaf.as_bytes());
            json::write_string(&mut out, name);
            out.extend_from_slice(b"}]");
        }
    }
    out.extend_from_slice(b",\"branches\":null");
    render::branch_end(&mut out, &id, &document);
    for (id, document) in ends.iter().rev() {
        out.push(b']');
        render::branch_end(&mut out, id, document);
    }
    out.push(b'}');
    Ok(out)
}
