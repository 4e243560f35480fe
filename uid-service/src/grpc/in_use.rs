//! UIDs in use: `ReportUidsInUse`, and the field of requests that may assign.

use oxtsdb_proto::error::invalid_field;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid::v1::report_uids_in_use_response::KindState as StateMessage;
use oxtsdb_schema::Uid;
use oxtsdb_uids::in_use::KindInUse;
use oxtsdb_uids::layout::UidLayout;
use oxtsdb_uids::uids::Uids;
use tonic::{Response, Status};

use super::{convert, status};

pub(super) async fn report(
    uids: &Uids,
    request: pb::ReportUidsInUseRequest,
) -> Result<Response<pb::ReportUidsInUseResponse>, Status> {
    note(uids, request.in_use.as_ref()).await?;
    let states = uids.compare_with_use().await;
    let states = states.map_err(|error| status::status(&error))?;
    let kinds = states.into_iter().map(|state| StateMessage {
        kind: convert::kind_number(state.kind),
        counter: state.counter,
        highest_in_use: state.highest_in_use,
    });
    Ok(Response::new(pb::ReportUidsInUseResponse {
        kinds: kinds.collect(),
    }))
}

/// Notes the UIDs of a request, after a check of its table.
pub(super) async fn note(uids: &Uids, in_use: Option<&pb::UidsInUse>) -> Result<(), Status> {
    let Some(in_use) = in_use else { return Ok(()) };
    check_table(uids, in_use.table_id).await?;
    let kinds = in_use.kinds.iter().enumerate();
    let kinds: Vec<KindInUse> = kinds
        .map(|(index, kind)| kind_in_use(index, kind, uids.layout()))
        .collect::<Result<_, _>>()?;
    uids.note_in_use(&kinds).map_err(|error| status::status(&error))
}

/// Rejects a call if the caller has written its points with UIDs of another table.
pub(super) async fn check_table(uids: &Uids, expected: u64) -> Result<(), Status> {
    let checked = uids.check_table(expected).await;
    checked.map_err(|error| status::status(&error))
}

fn kind_in_use(
    index: usize,
    message: &pb::uids_in_use::KindInUse,
    layout: &UidLayout,
) -> Result<KindInUse, Status> {
    let field = |name: &str| format!("in_use.kinds[{index}].{name}");
    let kind = convert::kind_of(&field("kind"), message.kind)?;
    let layout = layout.kinds.get(kind);
    if !layout.random {
        let max = layout.width.max_number();
        if message.highest > max {
            let rule = format!("is {}, the largest number of `{kind}` is {max}", message.highest);
            return Err(invalid_field(&field("highest"), rule));
        }
        return Ok(KindInUse {
            kind,
            highest: message.highest,
            random: Vec::new(),
        });
    }
    let width = layout.width.bytes();
    let uids = message.uids.chunks(width).map(Uid::from_bytes);
    let random: Result<Vec<Uid>, _> = uids.collect();
    match random {
        Ok(random) if message.uids.len().is_multiple_of(width) => Ok(KindInUse {
            kind,
            highest: 0,
            random,
        }),
        _ => {
            let rule = format!("has {} bytes, a UID of `{kind}` has {width}", message.uids.len());
            Err(invalid_field(&field("uids"), rule))
        }
    }
}
