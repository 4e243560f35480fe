//! Many rows in few calls: gets and mutations, grouped by region server, each again until it succeeds.

use std::time::Instant;

use bytes::Bytes;
use futures::stream::{StreamExt as _, iter};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use std::sync::Arc;

use super::cell_block::CellReader;
use super::cluster::{Attempts, Cluster};
use super::connection::Request;
use super::error::{CallError, Remedy, ServerException};
use super::messages::{Action, MultiRequest, MultiResponse, RegionAction};
use super::regions::{Place, Region};
use super::rows::RowReader;
use crate::{Row, TableName};

/// Most bytes of a call, unless one row has more.
const BYTES_OF_A_CALL: usize = 1 << 20;

/// Calls of one request that run concurrently.
const CALLS_AT_A_TIME: usize = 8;

/// An operation on one row.
pub(super) trait RowRequest: Sync {
    /// The key.
    fn row(&self) -> &[u8];

    /// Its approximate size in a call, in bytes.
    fn bytes(&self) -> usize;

    /// Its actions: several are atomic. Cells are appended to `cells`.
    fn actions(&self, cells: &mut Vec<u8>) -> Vec<Action>;
}

/// The requests of one call.
struct Call {
    /// The places of the requests, with their regions.
    requests: Vec<(usize, Arc<Region>)>,
}

/// The outcome of a request.
enum Outcome {
    Done(Option<Row>),
    Failed(CallError),
}

/// Performs requests, at most `rows_of_a_call` in a call, and returns the row of each, if it has one.
///
/// # Errors
///
/// The first error without a remedy; some of the requests may have taken effect.
pub(super) async fn perform<R: RowRequest>(
    cluster: &Cluster,
    table: &TableName,
    requests: &[R],
    rows_of_a_call: usize,
) -> Result<Vec<Option<Row>>, CallError> {
    let deadline = cluster.deadline();
    let mut attempts = Attempts::until(deadline);
    let mut rows: Vec<Option<Row>> = vec![None; requests.len()];
    let mut pending: Vec<usize> = (0..requests.len()).collect();
    let mut most = rows_of_a_call.max(1);
    while !pending.is_empty() {
        let calls = calls(cluster, table, requests, &pending, most, deadline).await?;
        pending.clear();
        let performing: Vec<_> = calls
            .into_iter()
            .map(|call| perform_call(cluster, requests, call, deadline))
            .collect();
        let mut performing = iter(performing).buffer_unordered(CALLS_AT_A_TIME);
        let mut worst: Option<(Remedy, CallError)> = None;
        while let Some((call, outcomes)) = performing.next().await {
            let is_alone = call.requests.len() == 1;
            for ((place, region), outcome) in call.requests.iter().zip(outcomes) {
                let error = match outcome {
                    Outcome::Done(Some(row)) if row.key() != requests[*place].row() => {
                        CallError::malformed(format!("{}: a get has another row", region.server))
                    }
                    Outcome::Done(row) => {
                        rows[*place] = row;
                        continue;
                    }
                    Outcome::Failed(error) => error,
                };
                let remedy = match &error {
                    CallError::TooLarge { .. } if !is_alone => {
                        most = most.min(call.requests.len().div_ceil(2));
                        Remedy::AtOnce
                    }
                    _ => cluster.apply(error.remedy(), region, &error),
                };
                if remedy == Remedy::None {
                    return Err(error);
                }
                pending.push(*place);
                if worst.is_none() || remedy == Remedy::WaitLonger {
                    worst = Some((remedy, error));
                }
            }
        }
        if let Some((remedy, error)) = worst {
            attempts.wait(remedy, error).await?;
            pending.sort_unstable();
        }
    }
    Ok(rows)
}

/// Divides requests into calls, each for one server.
async fn calls<R: RowRequest>(
    cluster: &Cluster,
    table: &TableName,
    requests: &[R],
    places: &[usize],
    most: usize,
    deadline: Instant,
) -> Result<Vec<Call>, CallError> {
    let mut calls: Vec<Call> = Vec::new();
    // The last call for each server, with its bytes.
    let mut open: HashMap<String, (usize, usize), FxBuildHasher> = HashMap::default();
    for place in places {
        let request = &requests[*place];
        let region = cluster.locate(table, Place::Of(request.row()), deadline).await?;
        let bytes = request.bytes();
        match open.get_mut(&region.server) {
            Some((index, used))
                if calls[*index].requests.len() < most && *used + bytes <= BYTES_OF_A_CALL =>
            {
                *used += bytes;
                calls[*index].requests.push((*place, region));
            }
            _ => {
                open.insert(region.server.clone(), (calls.len(), bytes));
                calls.push(Call {
                    requests: vec![(*place, region)],
                });
            }
        }
    }
    Ok(calls)
}

/// Sends a call. The outcomes are in the order of its requests.
async fn perform_call<R: RowRequest>(
    cluster: &Cluster,
    requests: &[R],
    call: Call,
    deadline: Instant,
) -> (Call, Vec<Outcome>) {
    let outcomes = try_call(cluster, requests, &call, deadline).await;
    let outcomes = outcomes.unwrap_or_else(|error| {
        let failed = || Outcome::Failed(error.clone());
        call.requests.iter().map(|_| failed()).collect()
    });
    (call, outcomes)
}

async fn try_call<R: RowRequest>(
    cluster: &Cluster,
    requests: &[R],
    call: &Call,
    deadline: Instant,
) -> Result<Vec<Outcome>, CallError> {
    let Some((_, first)) = call.requests.first() else {
        return Ok(Vec::new());
    };
    let (region_action, places, cells) = message_of(requests, call);
    let message = MultiRequest { region_action };
    let request = Request {
        cells: &cells,
        ..Request::new("Multi", &message)
    };
    let (response, cells) = cluster.call_region(first, request, deadline).await?;
    outcomes(&first.server, call.requests.len(), &places, &response, cells)
}

/// The parts of the message of a call; the places in the call that the actions of each part belong to; the cells, which
/// are in the order of the parts.
fn message_of<R: RowRequest>(requests: &[R], call: &Call) -> (Vec<RegionAction>, Vec<Vec<usize>>, Vec<u8>) {
    let mut parts: Vec<(RegionAction, Vec<usize>, Vec<u8>)> = Vec::new();
    // The part of each region that has single actions, by the name of the region.
    let mut shared: HashMap<&[u8], usize, FxBuildHasher> = HashMap::default();
    for (at, (place, region)) in call.requests.iter().enumerate() {
        let mut cells = Vec::new();
        let actions = requests[*place].actions(&mut cells);
        let is_atomic = actions.len() > 1;
        let part = match shared.get(&*region.name) {
            Some(part) if !is_atomic => *part,
            _ => {
                let action = RegionAction {
                    region: region.specifier(),
                    atomic: is_atomic.then_some(true),
                    action: Vec::new(),
                };
                parts.push((action, Vec::new(), Vec::new()));
                if !is_atomic {
                    shared.insert(&region.name, parts.len() - 1);
                }
                parts.len() - 1
            }
        };
        let (region_action, places, cells_of_part) = &mut parts[part];
        for action in actions {
            region_action.action.push(Action {
                index: u32::try_from(region_action.action.len()).ok(),
                ..action
            });
            places.push(at);
        }
        cells_of_part.append(&mut cells);
    }
    let mut all = (
        Vec::with_capacity(parts.len()),
        Vec::with_capacity(parts.len()),
        Vec::new(),
    );
    for (action, places, mut cells) in parts {
        all.0.push(action);
        all.1.push(places);
        all.2.append(&mut cells);
    }
    all
}

/// Reads the outcomes of a call: `places` has the place in the call of each action of each part.
fn outcomes(
    server: &str,
    count: usize,
    places: &[Vec<usize>],
    response: &MultiResponse,
    cells: Bytes,
) -> Result<Vec<Outcome>, CallError> {
    if response.region_action_result.len() != places.len() {
        return Err(CallError::malformed(format!(
            "{server}: Multi has {} results for {} regions",
            response.region_action_result.len(),
            places.len()
        )));
    }
    let mut outcomes: Vec<Option<Outcome>> = (0..count).map(|_| None).collect();
    let (mut cells, mut reader) = (CellReader::new(cells), RowReader::default());
    for (results, places) in response.region_action_result.iter().zip(places) {
        if let Some(exception) = &results.exception {
            let error = CallError::Exception(ServerException::from_action(server, exception));
            for place in places {
                outcomes[*place] = Some(Outcome::Failed(error.clone()));
            }
            continue;
        }
        // The actions of an atomic part succeed together, and have one result or one each.
        for result in &results.result_or_exception {
            let index = result.index.unwrap_or_default() as usize;
            let place = places.get(index);
            let place =
                place.ok_or_else(|| CallError::malformed(format!("{server}: Multi has a result {index}")))?;
            let outcome = match (&result.exception, &result.result) {
                (Some(exception), _) => Outcome::Failed(CallError::Exception(ServerException::from_action(
                    server, exception,
                ))),
                (None, result) => {
                    let count = result.as_ref().and_then(|result| result.associated_cell_count);
                    let count = usize::try_from(count.unwrap_or_default()).unwrap_or_default();
                    Outcome::Done(reader.read(&mut cells, count)?)
                }
            };
            if !matches!(outcomes[*place], Some(Outcome::Failed(_))) {
                outcomes[*place] = Some(outcome);
            }
        }
    }
    let missing = || {
        Outcome::Failed(CallError::Lost {
            server: server.to_owned(),
            detail: "Multi: no result for a row".to_owned(),
        })
    };
    let is_atomic = |place: usize| {
        let parts = places.iter().filter(|places| places.contains(&place));
        parts.flatten().filter(|other| **other == place).count() > 1
    };
    let outcomes = outcomes.into_iter().enumerate();
    Ok(outcomes
        .map(|(place, outcome)| match outcome {
            Some(outcome) => outcome,
            None if is_atomic(place) => Outcome::Done(None),
            None => missing(),
        })
        .collect())
}
