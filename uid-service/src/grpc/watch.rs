//! `WatchUids`.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::{invalid_field, status as status_of};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid::v1::watch_uids_response::{self as response, event::Event as Message};
use oxtsdb_schema::{Name, UidKind};
use oxtsdb_server::Shutdown;
use oxtsdb_uids::uids::Uids;
use oxtsdb_uids::watch::{Event, WatchRequest, WatchUpdate};
use tonic::{Code, Status};

use super::{convert, in_use, status};

/// The limits of the interval of heartbeats; the longest one is the default.
const HEARTBEAT: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

pub(super) async fn watch(
    uids: &Uids,
    request: pb::WatchUidsRequest,
    shutdown: Shutdown,
) -> Result<MessageStream<pb::WatchUidsResponse>, Status> {
    let table_id = request.table_id;
    let request = WatchRequest {
        kinds: convert::kinds("kinds", &request.kinds)?,
        skip_assigned: request.skip_assigned,
        heartbeat: heartbeat(request.heartbeat_interval)?,
        resume: Some(request.resume_token).filter(|token| !token.is_empty()),
    };
    in_use::check_table(uids, table_id).await?;
    if shutdown.is_draining() {
        return Err(draining());
    }
    let lag = uids.replica_lag();
    let updates = uids
        .watch(request)
        .await
        .map_err(|error| status::status(&error))?;
    let messages = updates.map(move |update| match update {
        Ok(update) => Ok(message(update, lag)),
        Err(error) => Err(status::status(&error)),
    });
    let drain = async move { shutdown.draining().await };
    let end = stream::iter([Err(draining())]);
    Ok(messages.take_until(drain).chain(end).boxed())
}

fn heartbeat(interval: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(interval) = interval else {
        return Ok(*HEARTBEAT.end());
    };
    match Duration::try_from(interval) {
        Ok(interval) if HEARTBEAT.contains(&interval) => Ok(interval),
        _ => Err(invalid_field("heartbeat_interval", "is not between 1 s and 30 s")),
    }
}

fn draining() -> Status {
    let message = "the server is shutting down, or the connection has reached its age; watch again";
    status_of(Code::Unavailable, ErrorReason::Draining, message, &[])
}

fn message(update: WatchUpdate, lag: Duration) -> pb::WatchUidsResponse {
    let resync = update.resync.then_some(Message::Resync(response::Resync {}));
    let events = update.events.iter().map(|event| event_message(event));
    pb::WatchUidsResponse {
        resume_token: update.resume_token,
        events: resync
            .into_iter()
            .chain(events)
            .map(|event| response::Event { event: Some(event) })
            .collect(),
        replica_lag: lag.try_into().ok(),
        counters: UidKind::ALL
            .map(|kind| response::KindCounter {
                kind: convert::kind_number(kind),
                number: *update.counters.get(kind),
            })
            .into(),
    }
}

fn event_message(event: &Event) -> Message {
    match event {
        Event::Assigned(mapping) => Message::Assigned(response::Assigned {
            mapping: Some(convert::mapping(mapping)),
        }),
        Event::Renamed { mapping, old } => Message::Renamed(response::Renamed {
            mapping: Some(convert::mapping(mapping)),
            old_name: old.to_text(),
        }),
        Event::Foreign { uid, name } => {
            let mapping = Some(pb::UidMapping {
                kind: convert::kind_number(uid.0),
                name: name.as_ref().map(Name::to_text).unwrap_or_default(),
                uid: convert::uid_bytes(uid.1),
            });
            match name {
                Some(_) => Message::Renamed(response::Renamed {
                    mapping,
                    old_name: String::new(),
                }),
                None => Message::Deleted(response::Deleted { mapping }),
            }
        }
        Event::Deleted(mapping) => Message::Deleted(response::Deleted {
            mapping: Some(convert::mapping(mapping)),
        }),
    }
}
