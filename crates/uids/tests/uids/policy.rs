//! Rules and quotas of new names.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use oxtsdb_schema::UidKind::{self, Metric, Tagv};
use oxtsdb_schema::{AssignedUid, Name, NameRules, UidWidth};
use oxtsdb_uids::config::UidConfig;
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::policy::quota::QuotaUse;
use oxtsdb_uids::policy::watch::LivePolicy;
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::testing::{self, Wrapped};
use oxtsdb_uids::uids::{Purpose, Uids};
use oxtsdb_uids::usage::Forecast;

fn config(folder: &Path, rules: &str) -> UidConfig {
    let path = folder.join("rules.toml");
    std::fs::write(&path, rules).unwrap();
    let mut config = testing::config();
    config.policy.file = Some(path);
    config
}

/// The domain, after a count of the names of its quotas.
async fn counted(store: &Wrapped, config: &UidConfig) -> Uids {
    let policy = LivePolicy::load(config.policy.clone()).unwrap();
    let uids = testing::uids(store.clone(), config).await.with_policy(policy);
    uids.count_quotas(SystemTime::now()).await.unwrap();
    uids
}

fn key(kind: UidKind, name: impl AsRef<str>) -> KindName {
    (kind, Name::parse(name.as_ref(), &NameRules::default()).unwrap())
}

fn exceeded(outcome: &Result<AssignedUid, UidServiceError>) -> Option<&str> {
    match outcome {
        Err(UidServiceError::QuotaExceeded { setting, .. }) => Some(setting),
        Ok(_) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_last_name_of_a_quota_is_assigned_and_the_next_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "[[quota]]\nkind='tagv'\nlimit=6\n[[quota]]\nkind='tagv'\ntag_key='user'\nlimit=2\n";
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let before = testing::uids(store.clone(), &testing::config()).await;
        let names = [key(Tagv, "a"), key(Tagv, "b")];
        before.get_or_create(&names, Purpose::Write).await;
        let uids = counted(&store, &config(folder.path(), rules)).await;
        let assign = |names: &[&str], tag_key: &str, purpose| {
            let names: Vec<KindName> = names.iter().map(|name| key(Tagv, name)).collect();
            let tag_keys = vec![Some(tag_key.to_owned()); names.len()];
            let uids = &uids;
            async move {
                let outcomes = uids.get_or_create_for(&names, &tag_keys, purpose).await;
                let exceeded = outcomes
                    .iter()
                    .map(|outcome| exceeded(outcome).unwrap_or("-").to_owned());
                exceeded.collect::<Vec<_>>().join(" ")
            }
        };
        let write = Purpose::Write;
        assert_eq!(
            assign(&["a", "u1", "u1", "u2", "u3"], "user", write).await,
            "- - - - quota 2"
        );
        assert_eq!(assign(&["u3", "u1"], "user", write).await, "quota 2 -");
        assert_eq!(assign(&["h1", "h2", "h3"], "host", write).await, "- - quota 1");
        assert_eq!(
            assign(&["h3"], "host", Purpose::Explicit).await,
            "-",
            "an operator may exceed it"
        );
        let used = |uses: Vec<QuotaUse>| uses.iter().map(|quota| quota.used).collect::<Vec<_>>();
        assert_eq!(used(uids.quotas().await.unwrap()), [7, 2]);
        assert_eq!(used(uids.count_quotas(SystemTime::now()).await.unwrap()), [7, 2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_replicas_do_not_exceed_a_quota() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "[[quota]]\nkind='metrics'\nlimit=50\n");
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let mut replicas = Vec::new();
        for _ in 0..4 {
            replicas.push(Arc::new(counted(&store, &config).await));
        }
        let mut clients = tokio::task::JoinSet::new();
        for (replica, uids) in replicas.into_iter().enumerate() {
            for client in 0..8 {
                let uids = Arc::clone(&uids);
                clients.spawn(async move {
                    for number in 0..8 {
                        // Half of the names are requested by two replicas.
                        let name = format!("{}-{client}-{number}", replica / 2);
                        let outcomes = uids.get_or_create(&[key(Metric, name)], Purpose::Write).await;
                        exceeded(&outcomes[0]);
                    }
                });
            }
        }
        clients.join_all().await;
        let (mappings, _) = testing::check_invariants(&store.inner).await;
        assert!((35..=50).contains(&mappings.len()), "{} names", mappings.len());
        let uids = counted(&store, &config).await;
        let used = uids.quotas().await.unwrap()[0].used;
        assert_eq!(used, mappings.len() as u64);
    }
}

#[tokio::test]
async fn a_crash_costs_part_of_a_quota_until_its_names_are_counted_again() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "[[quota]]\nkind='metrics'\nlimit=5\n[[quota]]\nkind='tagv'\ntag_key='user'\nlimit=5\n";
    let config = config(folder.path(), rules);
    for operations in 1.. {
        let store = Wrapped::stepwise();
        drop(counted(&store, &config).await);
        let failing = store.failing_after(operations, testing::Failure::Refused);
        let policy = LivePolicy::load(config.policy.clone()).unwrap();
        let uids = testing::uids(failing.clone(), &config).await.with_policy(policy);
        let names = [key(Metric, "m"), key(Tagv, "v"), key(Tagv, "w")];
        let tag_keys = [None, Some("user".to_owned()), Some("user".to_owned())];
        let outcomes = uids.get_or_create_for(&names, &tag_keys, Purpose::Write).await;
        drop(uids);
        let uids = counted(&store, &config).await;
        let (mappings, _) = testing::check_invariants(&store.inner).await;
        let metrics = mappings
            .keys()
            .filter(|(kind, _)| kind == Metric.qualifier())
            .count() as u64;
        let values = mappings.len() as u64 - metrics;
        let uses = uids.quotas().await.unwrap();
        assert_eq!(uses[0].used, metrics, "after {operations} operations");
        assert!(uses[1].used <= values, "after {operations} operations");
        if outcomes.iter().all(Result::is_ok) && failing.operations_left() > 0 {
            assert_eq!((uses[0].used, uses[1].used), (1, 2));
            return;
        }
    }
}

#[tokio::test]
async fn usage_forecasts_the_exhaustion() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "[[quota]]\nkind='metrics'\nlimit=100\n");
    config.layout.kinds.metric.width = UidWidth::new(1).unwrap();
    let store = Wrapped::stepwise();
    let uids = counted(&store, &config).await;
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let hour = |hours: u64| start + Duration::from_secs(hours * 3600);
    let assign = |from: u64, to: u64| {
        let names: Vec<KindName> = (from..to).map(|number| key(Metric, number.to_string())).collect();
        let uids = &uids;
        async move { drop(uids.get_or_create(&names, Purpose::Write).await) }
    };
    assign(0, 5).await;
    uids.check_usage(hour(0)).await;
    let usage = uids.usage(hour(0)).await.unwrap();
    assert_eq!(usage[0].forecast, Forecast::default());
    assign(5, 15).await;
    uids.check_usage(hour(24)).await;
    let usage = uids.usage(hour(24)).await.unwrap();
    assert_eq!((usage[0].used, usage[0].available), (15, 240));
    let forecast = usage[0].forecast;
    assert_eq!(forecast.assigned_per_day, Some(10.0));
    assert_eq!(
        forecast.exhaustion,
        Some(hour(24) + Duration::from_secs(24 * 86_400))
    );
    // Of the samples of a month and more, only the last 30 days are kept.
    for hours in 25..800 {
        uids.check_usage(hour(hours)).await;
    }
    let state = "tsdb-uid-state".parse().unwrap();
    let samples = testing::cells_of(&store.inner, &state).await;
    let samples = samples.iter().filter(|(row, ..)| row[0] == b'u');
    assert_eq!(samples.count(), 3 * 720);
    assert_eq!(
        uids.usage(hour(799)).await.unwrap()[0].forecast.assigned_per_day,
        Some(0.0)
    );
}
