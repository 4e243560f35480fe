//! Rules and quotas of new names.
use crate::support;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::support::{Service, Wrapped, outcome};
use oxtsdb_client::{ErrorReason, NewName};
use oxtsdb_schema::UidKind::{self, Metric, Tagk, Tagv};
use oxtsdb_schema::{AssignedUid, Name, NameRules};
use uid_service::UidSettings;
use uid_service::error::UidServiceError;
use uid_service::policy::quota::QuotaUse;
use uid_service::policy::watch::LivePolicy;
use uid_service::table::KindName;
use uid_service::uids::{Purpose, Uids};
use uid_service::usage::Forecast;

fn settings(folder: &Path, rules: &str) -> UidSettings {
    let path = folder.join("rules.toml");
    std::fs::write(&path, rules).unwrap();
    let mut settings = UidSettings::default();
    settings.naming.assignment_rules = Some(path);
    settings
}

async fn assign(service: &Service, names: &[(UidKind, &str, Option<&str>)]) -> Vec<String> {
    let names: Vec<NewName<&str>> = names
        .iter()
        .map(|(kind, name, tag_key)| NewName {
            kind: *kind,
            name: *name,
            tag_key: *tag_key,
        })
        .collect();
    let results = service.client.get_or_create_uids_for_write(&names).await.unwrap();
    results.iter().map(outcome).collect()
}

#[tokio::test]
async fn rules_reject_new_names_of_writes_only() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "[[rule]]\nname='hosts'\naction='deny'\nkind='tagv'\ntag_key='host'\nexcept='^web'\n";
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let before = Service::start(store.clone(), &UidSettings::default()).await;
        assert_eq!(before.assign(Tagv, &["db1"]).await, ["000001"]);
        let service = Service::start(store, &settings(folder.path(), rules)).await;
        let names = [
            (Tagk, "host", None),
            (Tagv, "db1", Some("host")),
            (Tagv, "db2", Some("host")),
            (Tagv, "web1", Some("host")),
            (Tagv, "db3", Some("dc")),
        ];
        assert_eq!(
            assign(&service, &names).await,
            ["000001", "000001", "ASSIGNMENT_REJECTED", "000002", "000003"],
        );
        let rejected = [NewName {
            kind: Tagv,
            name: "db2",
            tag_key: Some("host"),
        }];
        let results = service
            .client
            .get_or_create_uids_for_write(&rejected)
            .await
            .unwrap();
        let rejection = results[0].as_ref().unwrap_err();
        assert_eq!(rejection.reason, Some(ErrorReason::AssignmentRejected));
        let metadata = |key: &str| rejection.metadata[key].as_str();
        assert_eq!(
            [
                metadata("kind"),
                metadata("name"),
                metadata("rule"),
                metadata("tag_key")
            ],
            ["UID_KIND_TAG_VALUE", "db2", "hosts", "host"]
        );
        assert!(!rejection.is_retry_safe());
        let explicit = service
            .client
            .get_or_create_uids(&[(Tagv, "db2")], true)
            .await
            .unwrap();
        assert_eq!(outcome(&explicit[0]), "000004", "an operator may");
    }
}

/// The domain, with quotas whose names are counted.
async fn counted(store: &Wrapped, settings: &UidSettings) -> Uids {
    let policy = LivePolicy::load(settings.check().unwrap().policy).unwrap();
    let uids = support::uids(store.clone(), settings).await.with_policy(policy);
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
        let before = Service::start(store.clone(), &UidSettings::default()).await;
        before.assign(Tagv, &["a", "b"]).await;
        let uids = counted(&store, &settings(folder.path(), rules)).await;
        let assign = |names: &[&str], tag_key: &str, purpose| {
            let names: Vec<KindName> = names.iter().map(|name| key(Tagv, name)).collect();
            let tag_keys = vec![Some(tag_key.to_owned()); names.len()];
            let uids = &uids;
            async move {
                let outcomes = uids.get_or_create_for(&names, &tag_keys, purpose).await;
                let settings = outcomes
                    .iter()
                    .map(|outcome| exceeded(outcome).unwrap_or("-").to_owned());
                settings.collect::<Vec<_>>().join(" ")
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
    let settings = settings(folder.path(), "[[quota]]\nkind='metrics'\nlimit=50\n");
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let mut replicas = Vec::new();
        for _ in 0..4 {
            replicas.push(Arc::new(counted(&store, &settings).await));
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
        let (mappings, _) = support::check_invariants(&store.inner).await;
        assert!((35..=50).contains(&mappings.len()), "{} names", mappings.len());
        let uids = counted(&store, &settings).await;
        let used = uids.quotas().await.unwrap()[0].used;
        assert_eq!(used, mappings.len() as u64);
    }
}

#[tokio::test]
async fn a_crash_costs_part_of_a_quota_until_its_names_are_counted_again() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "[[quota]]\nkind='metrics'\nlimit=5\n[[quota]]\nkind='tagv'\ntag_key='user'\nlimit=5\n";
    let settings = settings(folder.path(), rules);
    for operations in 1.. {
        let store = Wrapped::stepwise();
        drop(counted(&store, &settings).await);
        let failing = store.failing_after(operations, support::Failure::Refused);
        let policy = LivePolicy::load(settings.check().unwrap().policy).unwrap();
        let uids = support::uids(failing.clone(), &settings)
            .await
            .with_policy(policy);
        let names = [key(Metric, "m"), key(Tagv, "v"), key(Tagv, "w")];
        let tag_keys = [None, Some("user".to_owned()), Some("user".to_owned())];
        let outcomes = uids.get_or_create_for(&names, &tag_keys, Purpose::Write).await;
        drop(uids);
        let uids = counted(&store, &settings).await;
        let (mappings, _) = support::check_invariants(&store.inner).await;
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
async fn a_wrong_rules_file_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), "[[rule]]\naction='deny'\npattern='('");
    let error = support::assemble(&Wrapped::atomic(), &settings)
        .await
        .unwrap_err();
    let message = format!("{error:#}");
    assert!(message.starts_with("assignment rules: "), "{message}");
    assert!(
        message.ends_with("rules.toml: rule 1: pattern: `(`: unclosed group, at character 1"),
        "{message}"
    );
    let mut settings = UidSettings::default();
    settings.naming.uid_whitelist_tagks = "ok,(".to_owned();
    let error = support::assemble(&Wrapped::atomic(), &settings)
        .await
        .unwrap_err();
    assert!(
        format!("{error:#}").contains("--uid-whitelist-tagks: pattern: `(`"),
        "{error:#}"
    );
}

#[tokio::test]
async fn usage_forecasts_the_exhaustion_and_has_the_quotas() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path(), "[[quota]]\nkind='metrics'\nlimit=100\n");
    settings.tables.uid_width_metric = 1;
    let store = Wrapped::stepwise();
    let uids = counted(&store, &settings).await;
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
    // Of the samples of months only those of the last are kept.
    for hours in 25..800 {
        uids.check_usage(hour(hours)).await;
    }
    let state = "tsdb-uid-state".parse().unwrap();
    let samples = support::cells_of(&store.inner, &state).await;
    let samples = samples.iter().filter(|(row, ..)| row[0] == b'u');
    assert_eq!(samples.count(), 3 * 720);
    assert_eq!(
        uids.usage(hour(799)).await.unwrap()[0].forecast.assigned_per_day,
        Some(0.0)
    );
    drop(uids);
    let service = Service::start(store, &settings).await;
    let usage = service.client.get_uid_usage().await.unwrap();
    assert_eq!((usage.kinds[0].names, usage.kinds[1].names), (Some(15), None));
    assert_eq!((usage.quotas[0].used, usage.quotas[0].limit), (15, 100));
    assert!(usage.quotas[0].counted_time.is_some());
}
