//! Messages of usage and quotas.

use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid::v1::get_uid_usage_response::KindUsage as KindMessage;
use oxtsdb_uids::policy::quota::QuotaUse;
use oxtsdb_uids::uids::Uids;
use oxtsdb_uids::usage::KindUsage;

use super::convert;

pub(super) fn kind(uids: &Uids, usage: &KindUsage, quotas: &[QuotaUse]) -> KindMessage {
    let layout = uids.layout();
    let states = uids.kind_states();
    let state = states.iter().find(|state| state.kind == usage.kind);
    let of_kind = |quota: &&QuotaUse| quota.scope.kind == usage.kind && quota.scope.tag_key.is_none();
    let counted = quotas
        .iter()
        .find(of_kind)
        .filter(|quota| quota.counted_at.is_some());
    let names = if layout.kinds.get(usage.kind).random {
        Some(usage.used)
    } else {
        counted.map(|quota| quota.used)
    };
    KindMessage {
        kind: convert::kind_number(usage.kind),
        used: usage.used,
        available: usage.available,
        read_time: Some(usage.read_time.into()),
        names,
        assigned_per_day: usage.forecast.assigned_per_day,
        exhaustion_time: usage.forecast.exhaustion.map(Into::into),
        highest_in_use: state.map_or(0, |state| state.highest_in_use),
    }
}

pub(super) fn quota(quota: &QuotaUse) -> pb::QuotaUsage {
    pb::QuotaUsage {
        kind: convert::kind_number(quota.scope.kind),
        tag_key: quota.scope.tag_key.clone().unwrap_or_default(),
        limit: quota.limit,
        used: quota.used,
        counted_time: quota.counted_at.map(Into::into),
        setting: quota.setting.clone(),
    }
}
