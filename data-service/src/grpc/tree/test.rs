//! `TreeService.TestTree`.

use std::time::{Duration, Instant};

use oxtsdb_metadata::tree::evaluate::Outcome;
use oxtsdb_metadata::uids::Uids;
use oxtsdb_proto::common::v1::series_key::Key;
use oxtsdb_proto::common::v1::{ErrorReason, ItemError, SeriesKey};
use oxtsdb_proto::data::v1::TestTreeResponse;
use oxtsdb_proto::data::v1::test_tree_response::result::Outcome as OutcomeMessage;
use oxtsdb_proto::data::v1::test_tree_response::{Place as PlaceMessage, Result as ResultMessage};
use oxtsdb_proto::error::{invalid_field, item_error};
use oxtsdb_schema::tree::{BranchId, TreeId};
use oxtsdb_schema::{Tsuid, UidKind};
use tonic::{Code, Status};

use super::TreeServiceHandler;
use super::status::tree_status;
use crate::grpc::status::{kind_name, uids_status};

/// Series of a request.
const MAX_SERIES: usize = 100;

/// How long the UID service may take for the UIDs of names.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Tests series, in their order.
pub(super) async fn test_tree(
    handler: &TreeServiceHandler,
    tree: TreeId,
    series: Vec<SeriesKey>,
) -> Result<TestTreeResponse, Status> {
    if series.is_empty() || series.len() > MAX_SERIES {
        let rule = format!("has {} items, expected 1 to {MAX_SERIES}", series.len());
        return Err(invalid_field("series", rule));
    }
    let mut keys = Vec::with_capacity(series.len());
    for (index, key) in series.into_iter().enumerate() {
        keys.push(tsuid(handler.trees.uids(), index, key).await?);
    }
    let tsuids: Vec<Tsuid> = keys.iter().flatten().cloned().collect();
    let tester = handler
        .trees
        .tester(tree)
        .await
        .map_err(|error| tree_status(&error))?;
    let tested = tester.test(&tsuids).await;
    let mut tested = tested.map_err(|error| tree_status(&error))?.into_iter();
    let results = keys.into_iter().map(|key| match key {
        Err(error) => ResultMessage {
            outcome: Some(OutcomeMessage::Error(error)),
            ..ResultMessage::default()
        },
        Ok(tsuid) => {
            let mut result = ResultMessage {
                tsuid: tsuid.as_bytes().to_vec().into(),
                ..ResultMessage::default()
            };
            match tested.next() {
                Some(Ok((outcome, messages))) => {
                    result.outcome = Some(outcome_message(tree, outcome));
                    result.messages = messages;
                }
                Some(Err(no_name)) => {
                    let metadata = [
                        ("kind", kind_name(no_name.kind)),
                        ("uid", &*no_name.uid.to_string()),
                    ];
                    result.outcome = Some(OutcomeMessage::Error(item_error(
                        Code::NotFound,
                        ErrorReason::UidNotFound,
                        no_name.to_string(),
                        &metadata,
                    )));
                }
                None => {}
            }
            result
        }
    });
    Ok(TestTreeResponse {
        results: results.collect(),
    })
}

fn outcome_message(tree: TreeId, outcome: Outcome) -> OutcomeMessage {
    match outcome {
        Outcome::Place(place) => {
            let root = BranchId::root(tree);
            let branch = place
                .branches
                .iter()
                .fold(root, |branch, name| branch.child(name));
            OutcomeMessage::Place(PlaceMessage {
                branches: place.branches,
                leaf: place.leaf,
                branch_id: branch.as_bytes().to_vec().into(),
            })
        }
        Outcome::NotMatched { failed, .. } => {
            let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
            OutcomeMessage::NoPlace(format!(
                "the tree matches strictly, and rules failed: {}",
                failed.join(" ")
            ))
        }
        Outcome::TooFewNames(None) => OutcomeMessage::NoPlace("no rule yields a name".to_owned()),
        Outcome::TooFewNames(Some(name)) => OutcomeMessage::NoPlace(format!(
            "the rules yield the name `{name}` alone, a place needs a branch and a leaf"
        )),
        Outcome::TooLarge(reason) => OutcomeMessage::NoPlace(reason.to_string()),
    }
}

/// The TSUID of a series.
async fn tsuid(uids: &Uids, index: usize, key: SeriesKey) -> Result<Result<Tsuid, ItemError>, Status> {
    let invalid =
        |message: String| item_error(Code::InvalidArgument, ErrorReason::InvalidUidWidth, message, &[]);
    let name = match key.key {
        None => {
            return Err(invalid_field(
                &format!("series[{index}]"),
                "is missing, expected name or tsuid",
            ));
        }
        Some(Key::Tsuid(bytes)) => {
            return Ok(Tsuid::from_bytes(&bytes, uids.widths()).map_err(|error| invalid(error.to_string())));
        }
        Some(Key::Name(name)) => name,
    };
    let mut names = vec![(UidKind::Metric, name.metric.as_str())];
    for tag in &name.tags {
        names.extend([
            (UidKind::Tagk, tag.key.as_str()),
            (UidKind::Tagv, tag.value.as_str()),
        ]);
    }
    let resolved = uids.uids(&names, Some(Instant::now() + TIMEOUT)).await;
    let resolved = resolved.map_err(|error| uids_status(&error))?;
    let mut known = Vec::with_capacity(resolved.len());
    for (uid, (kind, name)) in resolved.into_iter().zip(&names) {
        let Some(uid) = uid else {
            let metadata = [("kind", kind_name(*kind)), ("name", *name)];
            let message = format!("{kind} `{name}` does not exist");
            return Ok(Err(item_error(
                Code::NotFound,
                ErrorReason::NameNotFound,
                message,
                &metadata,
            )));
        };
        known.push(uid);
    }
    let Some((metric, tags)) = known.split_first() else {
        return Ok(Err(invalid("series has no metric".to_owned())));
    };
    let (tags, _) = tags.as_chunks();
    let mut tags: Vec<_> = tags
        .iter()
        .map(|[tagk, tagv]| ((*tagk).into(), (*tagv).into()))
        .collect();
    Ok(Tsuid::new((*metric).into(), &mut tags).map_err(|error| {
        item_error(
            Code::InvalidArgument,
            ErrorReason::InvalidTags,
            error.to_string(),
            &[],
        )
    }))
}
