//! Findings of row keys.

use super::{Findings, RowFindingType};
use crate::hex_text::excerpt;
use crate::row_key::{RowKeyError, RowKeyLayout, RowKeyRef};
use crate::uid::{Uid, UidKind};

/// The findings of a row key.
#[derive(Debug)]
pub(super) struct KeyCheck {
    /// Whether the cells belong to an hour.
    pub(super) is_readable: bool,
}

/// The UIDs of a row key, to be looked up before [`check_row`](super::check_row); none for a key that cannot be read, and for
/// global annotations.
pub fn row_uids(key: &[u8], layout: &RowKeyLayout) -> Vec<(UidKind, Uid)> {
    let Ok(key) = RowKeyRef::decode(key, layout) else {
        return Vec::new();
    };
    if key.is_global() {
        return Vec::new();
    }
    let mut uids = vec![(UidKind::Metric, key.metric().uid())];
    for (tagk, tagv) in key.tags() {
        uids.push((UidKind::Tagk, tagk.uid()));
        uids.push((UidKind::Tagv, tagv.uid()));
    }
    uids
}

pub(super) fn check(
    bytes: &[u8],
    layout: &RowKeyLayout,
    is_unknown: &dyn Fn(UidKind, &Uid) -> bool,
    findings: &mut Findings,
) -> KeyCheck {
    let mut add = |finding, message: String| findings.add(finding, &[], || message);
    let key = match RowKeyRef::decode(bytes, layout) {
        Ok(key) => key,
        Err(error) => {
            let finding = match error {
                RowKeyError::TooShort { .. } | RowKeyError::PartialTag { .. } => RowFindingType::BadKey,
                RowKeyError::NoTags { .. } => RowFindingType::NoTags,
                RowKeyError::BaseTime { .. } => RowFindingType::BaseTime,
            };
            add(finding, error.to_string());
            return KeyCheck { is_readable: false };
        }
    };
    if !key.is_global()
        && let Err(error) = key.tsuid()
    {
        add(RowFindingType::TagOrder, error.to_string());
    }
    if !key.has_valid_salt(layout) {
        let salt = excerpt(key.salt());
        let message = format!("row key has the salt `{salt}`, which is not that of its series");
        add(RowFindingType::WrongSalt, message);
    }
    let unknown = row_uids(bytes, layout)
        .into_iter()
        .find(|(kind, uid)| is_unknown(*kind, uid));
    if let Some((kind, uid)) = unknown {
        add(
            RowFindingType::UnknownUid,
            format!("{kind} UID {uid} has no name"),
        );
    }
    KeyCheck { is_readable: true }
}
