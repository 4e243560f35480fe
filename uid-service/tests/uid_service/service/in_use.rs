//! UIDs that series use: none of them is assigned, whatever the table says.

use super::*;
use crate::support;

use oxtsdb_proto::uid::v1::uids_in_use::KindInUse;

fn highest(kind: UidKind, highest: u64) -> KindInUse {
    KindInUse {
        kind: pb_kind(kind).into(),
        highest,
        uids: Vec::new().into(),
    }
}

fn in_use(table_id: u64, kinds: Vec<KindInUse>) -> Option<pb::UidsInUse> {
    Some(pb::UidsInUse { table_id, kinds })
}

fn assign(names: Vec<pb::UidName>, in_use: Option<pb::UidsInUse>) -> pb::GetOrCreateUidsRequest {
    pb::GetOrCreateUidsRequest {
        names,
        explicit: true,
        in_use,
    }
}

#[tokio::test]
async fn a_kind_below_a_uid_in_use_assigns_nothing_until_its_counter_is_raised() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = support::assemble(&store, &UidSettings::default()).await.unwrap();
        let mut client = UidServiceClient::new(service.uids);
        let names = || vec![uid_name(Metric, "new"), uid_name(Tagk, "host")];
        let outcomes = async |client: &mut UidServiceClient<_>, in_use| {
            let response = client.get_or_create_uids(assign(names(), in_use)).await.unwrap();
            let results = response.into_inner().results.into_iter().map(decoded);
            results.collect::<Vec<_>>()
        };
        let results = outcomes(&mut client, in_use(0, vec![highest(Metric, 42)])).await;
        let error = results[0].as_ref().unwrap_err();
        assert_eq!(error.reason, Some(ErrorReason::UidCounterBehind));
        assert_eq!(
            (error.code, error.is_retry_safe()),
            (Code::FailedPrecondition, false)
        );
        assert_eq!(
            (&*error.metadata["counter"], &*error.metadata["in_use"]),
            ("0", "42")
        );
        assert_eq!(outcome(&results[1]), "000001", "another kind");
        // The report lasts for callers that know nothing.
        let results = outcomes(&mut client, None).await;
        assert_eq!(outcome(&results[0]), "UID_COUNTER_BEHIND");
        let usage = client
            .get_uid_usage(pb::GetUidUsageRequest {})
            .await
            .unwrap()
            .into_inner();
        assert_eq!((usage.kinds[0].used, usage.kinds[0].highest_in_use), (0, 42));

        let mut admin = pb::uid_admin_service_client::UidAdminServiceClient::new(service.admin);
        let raise = pb::RaiseUidCounterRequest {
            kind: pb_kind(Metric).into(),
            minimum: 42,
        };
        admin.raise_uid_counter(raise).await.unwrap();
        let results = outcomes(&mut client, in_use(0, vec![highest(Metric, 42)])).await;
        assert_eq!(outcome(&results[0]), "00002b");
    }
}

#[tokio::test]
async fn a_report_returns_the_state_of_each_kind() {
    let mut client = raw(Wrapped::atomic()).await;
    client
        .get_or_create_uids(assign(vec![uid_name(Tagv, "a"), uid_name(Tagv, "b")], None))
        .await
        .unwrap();
    let request = pb::ReportUidsInUseRequest {
        in_use: in_use(0, vec![highest(Metric, 3), highest(Tagv, 2)]),
    };
    let states = client
        .report_uids_in_use(request)
        .await
        .unwrap()
        .into_inner()
        .kinds;
    let states: Vec<_> = states
        .iter()
        .map(|state| (state.counter, state.highest_in_use))
        .collect();
    assert_eq!(states, [(0, 3), (0, 0), (2, 2)]);
}

#[tokio::test]
async fn rejects_numbers_that_are_no_uids() {
    let mut client = raw(Wrapped::atomic()).await;
    let too_large = in_use(0, vec![highest(Tagk, 1), highest(Tagv, 1 << 24)]);
    let request = assign(vec![uid_name(Metric, "m")], too_large);
    let status = client.get_or_create_uids(request).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
    assert!(
        status
            .message()
            .starts_with("in_use.kinds[1].highest: is 16777216"),
        "{status}"
    );
}

#[tokio::test]
async fn rejects_random_uids_of_another_width_and_draws_none_in_use() {
    let mut settings = UidSettings::default();
    settings.naming.random_metric_uids = true;
    settings.tables.uid_width_metric = 1;
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = support::assemble(&store, &settings).await.unwrap();
        let mut client = UidServiceClient::new(service.uids);
        let uids = |uids: Vec<u8>| KindInUse {
            uids: uids.into(),
            ..highest(Metric, 0)
        };
        // All but one.
        let used = in_use(0, vec![uids((1..=255).filter(|number| *number != 77).collect())]);
        let mut assigned = None;
        // A draw may miss the free one.
        while assigned.is_none() {
            let request = assign(vec![uid_name(Metric, "m")], used.clone());
            let results = client.get_or_create_uids(request).await;
            let results = results.map(|response| response.into_inner().results);
            assigned = results.ok().and_then(|results| decoded(results[0].clone()).ok());
        }
        assert_eq!(assigned.unwrap().uid.number(), 77);
    }
}

#[tokio::test]
async fn rejects_callers_whose_points_were_written_with_another_table() {
    let mut client = raw(Wrapped::atomic()).await;
    let layout = client.get_uid_layout(pb::GetUidLayoutRequest {}).await.unwrap();
    let table_id = layout.into_inner().table_id;
    assert_ne!(table_id, 0);
    for (expected, is_accepted) in [(0, true), (table_id, true), (table_id ^ 1, false)] {
        let lookup = pb::LookupUidsRequest {
            names: vec![uid_name(Metric, "m")],
            table_id: expected,
            ..Default::default()
        };
        let names = pb::LookupNamesRequest {
            uids: vec![uid_value(Metric, "000001")],
            table_id: expected,
            ..Default::default()
        };
        let watch = pb::WatchUidsRequest {
            table_id: expected,
            ..Default::default()
        };
        let assign = assign(vec![uid_name(Metric, "m")], in_use(expected, Vec::new()));
        let results = [
            client.lookup_uids(lookup).await.err(),
            client.lookup_names(names).await.err(),
            client.watch_uids(watch).await.err(),
            client.get_or_create_uids(assign).await.err(),
        ];
        for error in results {
            let reason = error.map(|status| (status.code(), reason_of(&status)));
            let mismatch = (Code::FailedPrecondition, Some(ErrorReason::TableMismatch));
            assert_eq!(reason, (!is_accepted).then_some(mismatch));
        }
    }
}
