//! Conversions between messages, and of the values of `oxtsdb-schema` to messages and back.

use std::time::UNIX_EPOCH;

use oxtsdb_schema::UidKind;
use oxtsdb_schema::document::CustomFields;
use oxtsdb_schema::uid_meta::{UidMeta, UidMetaAction};
use prost_types::Timestamp;

use crate::common::v1::{self as common, CustomField};
use crate::data::v1::aggregator::Kind;
use crate::data::v1::percentile::Estimator;
use crate::data::v1::{AggregateFunction, Aggregator, Percentile};
use crate::uid::v1 as uid;

impl From<AggregateFunction> for Aggregator {
    fn from(function: AggregateFunction) -> Self {
        Self {
            kind: Some(Kind::Function(function.into())),
        }
    }
}

impl Aggregator {
    /// A percentile; `rank` is in percent.
    pub fn percentile(rank: f64, estimator: Estimator) -> Self {
        Self {
            kind: Some(Kind::Percentile(Percentile {
                rank,
                estimator: estimator.into(),
            })),
        }
    }
}

/// The kind with this number in the contract; `None` if the number is of no kind.
pub fn uid_kind(number: i32) -> Option<UidKind> {
    match common::UidKind::try_from(number) {
        Ok(common::UidKind::Metric) => Some(UidKind::Metric),
        Ok(common::UidKind::TagKey) => Some(UidKind::Tagk),
        Ok(common::UidKind::TagValue) => Some(UidKind::Tagv),
        Ok(common::UidKind::Unspecified) | Err(_) => None,
    }
}

/// The contract's name of a kind, for metadata of errors.
pub fn uid_kind_name(kind: UidKind) -> &'static str {
    common::UidKind::from(kind).as_str_name()
}

impl From<UidKind> for common::UidKind {
    fn from(kind: UidKind) -> Self {
        match kind {
            UidKind::Metric => Self::Metric,
            UidKind::Tagk => Self::TagKey,
            UidKind::Tagv => Self::TagValue,
        }
    }
}

impl FromIterator<(String, Option<String>)> for common::CustomFields {
    fn from_iter<I: IntoIterator<Item = (String, Option<String>)>>(fields: I) -> Self {
        let fields = fields.into_iter();
        Self {
            fields: fields.map(|(key, value)| CustomField { key, value }).collect(),
        }
    }
}

impl From<&CustomFields> for common::CustomFields {
    fn from(custom: &CustomFields) -> Self {
        let fields = custom.iter();
        fields
            .map(|(key, value)| (key.to_owned(), value.map(str::to_owned)))
            .collect()
    }
}

impl common::CustomFields {
    /// The fields in their order.
    pub fn into_fields(self) -> impl Iterator<Item = (String, Option<String>)> {
        self.fields.into_iter().map(|field| (field.key, field.value))
    }
}

impl From<UidMeta> for uid::UidMeta {
    fn from(meta: UidMeta) -> Self {
        // An instant before 1970 is sent as 1970.
        let seconds = |created: std::time::SystemTime| {
            let since = created.duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        };
        Self {
            kind: common::UidKind::from(meta.kind).into(),
            uid: meta.uid.as_bytes().to_vec().into(),
            name: meta.name,
            display_name: meta.display_name,
            description: meta.description,
            notes: meta.notes,
            created: meta.created.map(|created| Timestamp {
                seconds: seconds(created),
                nanos: 0,
            }),
            custom: meta.custom.map(|custom| custom.into_iter().collect()),
            etag: meta.etag,
        }
    }
}

impl From<UidMetaAction> for uid::sync_uid_meta_response::Action {
    fn from(action: UidMetaAction) -> Self {
        match action {
            UidMetaAction::None => Self::None,
            UidMetaAction::Created => Self::Created,
            UidMetaAction::Corrected => Self::Corrected,
        }
    }
}
