//! Rules and quotas of new names.
use std::path::Path;
use std::time::SystemTime;

use oxtsdb_client::{ErrorReason, NewName};
use oxtsdb_schema::UidKind::{self, Metric, Tagk, Tagv};
use oxtsdb_uids::policy::watch::LivePolicy;
use oxtsdb_uids::testing;
use oxtsdb_uids::uids::Purpose;
use uid_service::UidSettings;

use crate::support::{self, Service, Wrapped, outcome};

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
async fn usage_has_the_quotas() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), "[[quota]]\nkind='metrics'\nlimit=100\n");
    let store = Wrapped::stepwise();
    let mut config = settings.check().unwrap();
    let policy = LivePolicy::load(std::mem::take(&mut config.policy)).unwrap();
    let uids = testing::uids(store.clone(), &config).await.with_policy(policy);
    uids.get_or_create(&testing::names(Metric, 15), Purpose::Write)
        .await;
    uids.count_quotas(SystemTime::now()).await.unwrap();
    drop(uids);
    let service = Service::start(store, &settings).await;
    let usage = service.client.get_uid_usage().await.unwrap();
    assert_eq!((usage.kinds[0].names, usage.kinds[1].names), (Some(15), None));
    assert_eq!((usage.quotas[0].used, usage.quotas[0].limit), (15, 100));
    assert!(usage.quotas[0].counted_time.is_some());
}
