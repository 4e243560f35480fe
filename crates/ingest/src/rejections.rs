//! Rejected points, with an example for each reason and caller: for the log and for operators.
//!
//! A client that does not read responses does not learn which points it loses, and counters do not name them. The first
//! rejected point of a caller for a reason is logged as a record with that point; further ones are counted, and while
//! they come, one record a minute reports their number and a new example. [`MAX_RECORDS`] reasons and callers are kept,
//! and as many records are logged a minute at most: while all of them are in use, other callers share one for each
//! reason.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Extensions;
use oxtsdb_access::Identity;
use oxtsdb_access::shown::shown;
use oxtsdb_metadata::uids::UidRejection;
use oxtsdb_resources::ClientId;
use oxtsdb_server::Shutdown;
use oxtsdb_server::metrics::Protocol;
use parking_lot::Mutex;
use serde::Serialize;
use tracing::warn;

use super::PointErrorReason;

/// Reasons and callers that are kept.
const MAX_RECORDS: usize = 100;

/// The time between two records of a reason and a caller in the log.
const PAUSE: Duration = Duration::from_secs(60);

/// The interval at which due records are logged.
const TICK: Duration = Duration::from_secs(5);

/// The most characters of a reason or a point.
const MAX_SHOWN: usize = 400;

/// The caller of a record that other callers share.
const OTHERS: &str = "other callers";

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionKind {
    /// A body or a line that is no point.
    Malformed,
    /// No series, or a TSUID that is none.
    Series,
    /// A name that cannot be stored.
    Name,
    /// No tags, too many, or a key that occurs twice.
    Tags,
    /// A timestamp that is none, or is out of range.
    Timestamp,
    /// A timestamp before the retention.
    Retention,
    /// A value that is no finite number.
    Value,
    /// A histogram that cannot be stored.
    Histogram,
    /// A rollup that cannot be stored.
    Rollup,
    /// A name that is not known, and is not assigned on write.
    UnknownName,
    /// A name that gets no UID: by a rule or a quota, or because there are none left.
    NoUid,
    /// A metric that the caller may not write.
    Access,
    /// A series that cannot be resolved at present.
    Unavailable,
}

impl RejectionKind {
    /// Its name in the log and on the page.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Series => "series",
            Self::Name => "name",
            Self::Tags => "tags",
            Self::Timestamp => "timestamp",
            Self::Retention => "retention",
            Self::Value => "value",
            Self::Histogram => "histogram",
            Self::Rollup => "rollup",
            Self::UnknownName => "unknown_name",
            Self::NoUid => "no_uid",
            Self::Access => "access",
            Self::Unavailable => "unavailable",
        }
    }
}

impl From<&PointErrorReason> for RejectionKind {
    fn from(reason: &PointErrorReason) -> Self {
        use PointErrorReason as R;
        match reason {
            R::Shape(_) => Self::Malformed,
            R::NoSeries | R::InvalidTsuid(_) | R::UnknownUid { .. } => Self::Series,
            R::InvalidName { .. } => Self::Name,
            R::NoTags | R::TooManyTags { .. } | R::DuplicateTagk { .. } => Self::Tags,
            R::TimestampOutOfRange { .. }
            | R::ImplausibleTimestamp { .. }
            | R::NotWholeSecond { .. }
            | R::DeltaTimestamps(_) => Self::Timestamp,
            R::BeforeRetention { .. } => Self::Retention,
            R::InvalidValue(_) => Self::Value,
            R::InvalidHistogram(_) => Self::Histogram,
            R::InvalidRollup(_) => Self::Rollup,
            R::Refused(_) => Self::Access,
            R::Unresolved(_) => Self::Unavailable,
            R::NoUid { rejection, .. } => match rejection {
                UidRejection::InvalidName { .. } => Self::Name,
                UidRejection::AutoCreateDisabled => Self::UnknownName,
                UidRejection::Unavailable { .. } => Self::Unavailable,
                UidRejection::Denied { .. }
                | UidRejection::QuotaExceeded(_)
                | UidRejection::SpaceExhausted
                | UidRejection::CounterBehind { .. }
                | UidRejection::StoreFull { .. }
                | UidRejection::Other { .. } => Self::NoUid,
            },
        }
    }
}

/// A sender of points: a protocol, an address, and a name where callers have rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub(crate) protocol: Protocol,
    /// The principal, or the address of a caller that has not authenticated: memory of writes is charged to it, and its
    /// writes share threads.
    pub client: ClientId,
    name: Box<str>,
}

impl Caller {
    /// The caller of a gRPC call, by the call's extensions and the address of its connection.
    pub fn from_call(extensions: &Extensions, peer: Option<SocketAddr>) -> Self {
        let address = peer.map_or(ClientId::Local, ClientId::from_peer);
        Self::new(Protocol::Grpc, extensions.get::<Identity>(), address)
    }

    /// Creates a caller at an address. It is displayed as its address, after its identity if that is authenticated.
    pub fn new(protocol: Protocol, identity: Option<&Identity>, address: ClientId) -> Self {
        let client = identity.map_or(address, |identity| identity.client(address));
        let address = match address {
            ClientId::Address(address) => address.to_canonical().to_string(),
            ClientId::Local | ClientId::Principal(_) => "this process".to_owned(),
        };
        let name = match identity.filter(|identity| identity.is_authenticated()) {
            Some(identity) => format!("{identity} at {address}"),
            None => address,
        };
        Self {
            protocol,
            client,
            name: name.into(),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A rejected point and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The error of the point, as the client receives it.
    pub reason: String,
    /// In the form of a line of telnet, or as it was sent.
    pub point: String,
}

/// Rejected points of one reason and caller.
#[derive(Debug)]
struct Record {
    kind: RejectionKind,
    protocol: Protocol,
    caller: Box<str>,
    example: Example,
    points: u64,
    /// Points of the records in the log.
    logged_points: u64,
    logged_at: Instant,
    first_at: SystemTime,
    last_at: SystemTime,
}

/// A record as the page has it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    kind: &'static str,
    protocol: &'static str,
    caller: &'a str,
    points: u64,
    first_ms: u64,
    last_ms: u64,
    reason: &'a str,
    point: &'a str,
}

/// The last rejected points by reason and caller.
#[derive(Debug, Default)]
pub struct Rejections(Mutex<Vec<Record>>);

impl Rejections {
    /// Adds points that were rejected for one reason; `example` is called if the log gets a record.
    pub(super) fn add(
        &self,
        caller: &Caller,
        kind: RejectionKind,
        points: u64,
        example: impl FnOnce() -> Example,
    ) {
        self.add_at(Instant::now(), caller, kind, points, example);
    }

    fn add_at(
        &self,
        now: Instant,
        caller: &Caller,
        kind: RejectionKind,
        points: u64,
        example: impl FnOnce() -> Example,
    ) {
        let mut records = self.0.lock();
        let place_of = |records: &[Record], name: &str| {
            let is_it = |record: &Record| {
                record.kind == kind && record.protocol == caller.protocol && *record.caller == *name
            };
            records.iter().position(is_it)
        };
        let mut name = &*caller.name;
        let mut place = place_of(&records, name);
        if place.is_none() && !make_space(&mut records, now) {
            name = OTHERS;
            place = place_of(&records, name);
        }
        let record = match place.and_then(|place| records.get_mut(place)) {
            Some(record) => {
                record.points += points;
                record.last_at = SystemTime::now();
                if now.saturating_duration_since(record.logged_at) < PAUSE {
                    return;
                }
                record.example = example().bounded();
                record
            }
            None => {
                let at = SystemTime::now();
                records.push(Record {
                    kind,
                    protocol: caller.protocol,
                    caller: name.into(),
                    example: example().bounded(),
                    points,
                    logged_points: 0,
                    logged_at: now,
                    first_at: at,
                    last_at: at,
                });
                let Some(record) = records.last_mut() else {
                    return;
                };
                record
            }
        };
        record.log(now);
    }

    /// Logs the points that were counted since the last records, until the program stops.
    pub async fn log_due(&self, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.log_due_at(Instant::now()),
                () = shutdown.stopping() => break,
            }
        }
        // Logs the records of the last minute, too.
        self.log_due_at(Instant::now() + PAUSE);
    }

    fn log_due_at(&self, now: Instant) {
        for record in self.0.lock().iter_mut().filter(|record| record.is_due(now)) {
            record.log(now);
        }
    }

    /// The records, the latest first.
    pub fn to_json(&self) -> Vec<u8> {
        let mut records = self.0.lock();
        records.sort_by_key(|record| std::cmp::Reverse(record.last_at));
        let shown: Vec<Shown<'_>> = records.iter().take(MAX_RECORDS).map(Record::shown).collect();
        serde_json::to_vec_pretty(&serde_json::json!({ "rejections": shown })).unwrap_or_default()
    }
}

/// Makes space for a record of a further caller, in place of the least recently rejected one. Returns whether there is
/// space.
fn make_space(records: &mut Vec<Record>, now: Instant) -> bool {
    let kept = records.iter().filter(|record| *record.caller != *OTHERS).count();
    if kept < MAX_RECORDS {
        return true;
    }
    let may_go = |record: &Record| {
        *record.caller != *OTHERS && now.saturating_duration_since(record.logged_at) >= PAUSE
    };
    let oldest = records
        .iter()
        .enumerate()
        .filter(|(_, record)| may_go(record))
        .min_by_key(|(_, record)| record.last_at);
    let Some(place) = oldest.map(|(place, _)| place) else {
        return false;
    };
    let mut removed = records.swap_remove(place);
    if removed.is_due(now) {
        removed.log(now);
    }
    true
}

impl Record {
    fn is_due(&self, now: Instant) -> bool {
        self.points > self.logged_points && now.saturating_duration_since(self.logged_at) >= PAUSE
    }

    fn log(&mut self, now: Instant) {
        warn!(
            protocol = self.protocol.name(),
            caller = &*self.caller,
            kind = self.kind.name(),
            reason = &*self.example.reason,
            point = &*self.example.point,
            points = self.points - self.logged_points,
            "rejected"
        );
        self.logged_points = self.points;
        self.logged_at = now;
    }

    fn shown(&self) -> Shown<'_> {
        let millis = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        };
        Shown {
            kind: self.kind.name(),
            protocol: self.protocol.name(),
            caller: &self.caller,
            points: self.points,
            first_ms: millis(self.first_at),
            last_ms: millis(self.last_at),
            reason: &self.example.reason,
            point: &self.example.point,
        }
    }
}

impl Example {
    fn bounded(self) -> Self {
        Self {
            reason: shown(self.reason.trim_end(), MAX_SHOWN),
            point: shown(self.point.trim_end(), MAX_SHOWN),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn caller(number: u32) -> Caller {
        let address = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number));
        Caller::new(Protocol::Http, None, ClientId::Address(address))
    }

    fn add(rejections: &Rejections, now: Instant, number: u32, kind: RejectionKind, point: &str) -> bool {
        let mut is_logged = false;
        rejections.add_at(now, &caller(number), kind, 1, || {
            is_logged = true;
            Example {
                reason: "reason".to_owned(),
                point: point.to_owned(),
            }
        });
        is_logged
    }

    fn shown(rejections: &Rejections) -> Vec<serde_json::Value> {
        let page: serde_json::Value = serde_json::from_slice(&rejections.to_json()).unwrap();
        page["rejections"].as_array().unwrap().clone()
    }

    #[test]
    fn logs_a_record_a_minute_for_each_reason_and_caller() {
        let rejections = Rejections::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(add(&rejections, at(0), 1, RejectionKind::Value, "a"));
        assert!(!add(&rejections, at(59), 1, RejectionKind::Value, "b"));
        assert!(add(&rejections, at(59), 1, RejectionKind::Name, "c"));
        assert!(add(&rejections, at(59), 2, RejectionKind::Value, "d"));
        assert!(add(&rejections, at(60), 1, RejectionKind::Value, "e"));
        let all = shown(&rejections);
        assert_eq!(all.len(), 3);
        assert_eq!((&all[0]["point"], &all[0]["points"]), (&"e".into(), &3.into()));
        assert_eq!(all[0]["caller"], "10.0.0.1");
    }

    #[test]
    fn points_after_the_record_are_logged_when_they_are_due() {
        let rejections = Rejections::default();
        let start = Instant::now();
        add(&rejections, start, 1, RejectionKind::Value, "a");
        add(&rejections, start, 1, RejectionKind::Value, "b");
        let logged = |rejections: &Rejections| rejections.0.lock()[0].logged_points;
        rejections.log_due_at(start + Duration::from_secs(59));
        assert_eq!(logged(&rejections), 1);
        rejections.log_due_at(start + PAUSE);
        assert_eq!(logged(&rejections), 2);
    }

    #[test]
    fn keeps_a_bounded_number_of_callers() {
        let rejections = Rejections::default();
        let start = Instant::now();
        let records = (0..10_000).filter(|n| add(&rejections, start, *n, RejectionKind::Value, "a"));
        assert_eq!(records.count(), MAX_RECORDS + 1);
        assert_eq!(rejections.0.lock().len(), MAX_RECORDS + 1);
        let all = shown(&rejections);
        assert_eq!(all.len(), MAX_RECORDS);
        let others = all.iter().find(|record| record["caller"] == OTHERS).unwrap();
        assert_eq!(others["points"], 10_000 - MAX_RECORDS);
        // Later there is space again.
        let later = start + PAUSE;
        assert!(add(&rejections, later, 20_000, RejectionKind::Value, "a"));
        assert_eq!(rejections.0.lock().len(), MAX_RECORDS + 1);
        assert!(
            shown(&rejections)
                .iter()
                .any(|record| record["caller"] == "10.0.78.32")
        );
    }

    #[test]
    fn examples_are_short_and_printable() {
        let rejections = Rejections::default();
        let point = "m\u{202e}\n".to_owned() + &"x".repeat(10_000);
        add(&rejections, Instant::now(), 1, RejectionKind::Name, &point);
        let all = shown(&rejections);
        let point = all[0]["point"].as_str().unwrap();
        assert!(
            point.starts_with("m\\u{202e}\\nxxx") && point.ends_with('…'),
            "{point}"
        );
        assert!(point.len() < 500);
    }
}
