//! Names, UIDs, layout and usage as the client returns them.

use std::time::SystemTime;

use oxtsdb_proto::common::v1 as common;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_schema::{Uid, UidKind};

use crate::Error;

/// A name and its UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UidMapping {
    /// Name space.
    pub kind: UidKind,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: Uid,
}

/// A name of a point to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewName<N> {
    /// Name space.
    pub kind: UidKind,
    /// The name.
    pub name: N,
    /// Of a tag value: the tag key that it is for.
    pub tag_key: Option<N>,
}

/// A page of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestPage {
    /// In byte order.
    pub mappings: Vec<UidMapping>,
    /// Where the next page starts; `None`: this is the last.
    pub next_page: Option<String>,
}

/// How the UIDs of a deployment look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UidLayout {
    /// One for each kind.
    pub kinds: Vec<KindLayout>,
    /// Characters allowed in names beside letters, digits and `-_./`.
    pub extra_name_characters: String,
    /// Longest name, in characters; 0: the service does not say.
    pub max_name_length: usize,
    /// Identifies the table of names; 0: the service does not say.
    pub table_id: u64,
}

/// The UIDs of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLayout {
    /// Name space.
    pub kind: UidKind,
    /// Bytes of a UID.
    pub width: usize,
    /// UIDs are random numbers in place of consecutive ones.
    pub random: bool,
    /// A write assigns missing UIDs of this kind.
    pub auto_create: bool,
}

impl UidLayout {
    /// The layout of a kind, if the service returned it.
    pub fn kind(&self, kind: UidKind) -> Option<&KindLayout> {
        self.kinds.iter().find(|layout| layout.kind == kind)
    }
}

/// How many UIDs are in use.
#[derive(Clone, Debug, PartialEq)]
pub struct UidUsage {
    /// One for each kind.
    pub kinds: Vec<KindUsage>,
    /// The quotas of the deployment.
    pub quotas: Vec<QuotaUsage>,
}

/// The use of a quota of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The kind of the names.
    pub kind: UidKind,
    /// The tag key that the values are assigned for; `None`: all names of the kind.
    pub tag_key: Option<String>,
    /// The most names.
    pub limit: u64,
    /// Names that count.
    pub used: u64,
    /// When they were counted last; `None`: not yet, and the quota has no effect.
    pub counted_time: Option<SystemTime>,
    /// The place of the quota in the rules file.
    pub setting: String,
}

/// How many UIDs of a kind are in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KindUsage {
    /// Name space.
    pub kind: UidKind,
    /// The highest assigned number; with random UIDs the number of names.
    pub used: u64,
    /// How many more can be assigned.
    pub available: u64,
    /// When the service read this from the store.
    pub read_time: Option<SystemTime>,
    /// Names that have a UID, if the service counts them.
    pub names: Option<u64>,
    /// Numbers assigned per day, over the last week.
    pub assigned_per_day: Option<f64>,
    /// When no UID will be left at this rate.
    pub exhaustion_time: Option<SystemTime>,
    /// The highest UID that data services have reported to use; 0: none. Above `used` no UID is assigned.
    pub highest_in_use: u64,
}

/// The contract's value of a kind.
pub(super) fn to_wire(kind: UidKind) -> i32 {
    common::UidKind::from(kind).into()
}

pub(crate) fn kind_from_wire(kind: i32) -> Result<UidKind, Error> {
    oxtsdb_proto::uid_kind(kind).ok_or_else(|| Error::protocol(format!("UID kind {kind}")))
}

/// A UID of a response.
pub(super) fn uid(bytes: &[u8]) -> Result<Uid, Error> {
    Uid::from_bytes(bytes).map_err(|error| Error::protocol(error.to_string()))
}

/// The bytes of a UID in a request; empty without one.
pub(super) fn uid_bytes(uid: Option<Uid>) -> bytes::Bytes {
    uid.map(|uid| uid.as_bytes().to_vec().into()).unwrap_or_default()
}

/// A mapping of a response, if it has one.
pub(super) fn mapping(mapping: Option<pb::UidMapping>) -> Result<Option<UidMapping>, Error> {
    let Some(mapping) = mapping else { return Ok(None) };
    Ok(Some(UidMapping {
        kind: kind_from_wire(mapping.kind)?,
        uid: uid(&mapping.uid)?,
        name: mapping.name,
    }))
}

/// The mappings of a response.
pub(super) fn mappings(mappings: Vec<pb::UidMapping>) -> Result<Vec<UidMapping>, Error> {
    mappings
        .into_iter()
        .filter_map(|one| mapping(Some(one)).transpose())
        .collect()
}

pub(super) fn layout(response: pb::GetUidLayoutResponse) -> Result<UidLayout, Error> {
    let kinds = response.kinds.iter().map(|layout| {
        Ok(KindLayout {
            kind: kind_from_wire(layout.kind)?,
            // A negative width is none.
            width: usize::try_from(layout.width).unwrap_or(0),
            random: layout.random,
            auto_create: layout.auto_create,
        })
    });
    Ok(UidLayout {
        kinds: kinds.collect::<Result<_, Error>>()?,
        extra_name_characters: response.extra_name_characters,
        max_name_length: usize::try_from(response.max_name_length).unwrap_or(0),
        table_id: response.table_id,
    })
}

pub(super) fn usage(response: pb::GetUidUsageResponse) -> Result<UidUsage, Error> {
    let kinds = response.kinds.into_iter().map(|usage| {
        Ok(KindUsage {
            kind: kind_from_wire(usage.kind)?,
            used: usage.used,
            available: usage.available,
            read_time: usage.read_time.and_then(|time| time.try_into().ok()),
            names: usage.names,
            assigned_per_day: usage.assigned_per_day,
            exhaustion_time: usage.exhaustion_time.and_then(|time| time.try_into().ok()),
            highest_in_use: usage.highest_in_use,
        })
    });
    Ok(UidUsage {
        kinds: kinds.collect::<Result<_, Error>>()?,
        quotas: quotas(response.quotas)?,
    })
}

pub(super) fn quotas(quotas: Vec<pb::QuotaUsage>) -> Result<Vec<QuotaUsage>, Error> {
    let quotas = quotas.into_iter().map(|quota| {
        Ok(QuotaUsage {
            kind: kind_from_wire(quota.kind)?,
            tag_key: Some(quota.tag_key).filter(|tag_key| !tag_key.is_empty()),
            limit: quota.limit,
            used: quota.used,
            counted_time: quota.counted_time.and_then(|time| time.try_into().ok()),
            setting: quota.setting,
        })
    });
    quotas.collect()
}
