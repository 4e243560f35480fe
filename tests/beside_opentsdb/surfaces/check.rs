//! Checks of the UID table: a table that one repairs is clean for the other.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::fsck_uids_response::Event;
use oxtsdb_proto::uid::v1::repair_uids_response::result::Outcome;
use oxtsdb_proto::uid::v1::uid_admin_service_client::UidAdminServiceClient;
use oxtsdb_proto::uid::v1::{
    FsckUidsRequest, RepairUidsRequest, UidFinding, UidFindingSeverity, UidFindingType,
};
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::stored::Column;

use super::both::Both;

/// Repairs may show what they hid.
const ROUNDS: usize = 5;

#[tokio::test]
async fn opentsdb_finds_nothing_after_our_repairs() -> anyhow::Result<()> {
    let both = Both::start("fsck-ours").await?;
    damage(&both).await?;
    let before = both.rig.uid_fsck(&both.opentsdb).await?;
    ensure!(
        !before.orphans.is_empty() && before.others.len() > 3,
        "{before:?}"
    );
    for _ in 0..ROUNDS {
        let findings = find(&both.oxtsdb).await?;
        if findings.is_empty() {
            break;
        }
        repair(&both.oxtsdb, &findings).await?;
    }
    let left = find(&both.oxtsdb).await?;
    ensure!(left.is_empty(), "{left:?}");
    both.check_uids().await
}

#[tokio::test]
async fn our_check_finds_nothing_after_opentsdbs_repairs() -> anyhow::Result<()> {
    let both = Both::start("fsck-theirs").await?;
    damage(&both).await?;
    let before = find(&both.oxtsdb).await?;
    let types: Vec<_> = before.iter().map(UidFinding::r#type).collect();
    for expected in [
        UidFindingType::MissingReverse,
        UidFindingType::MissingForward,
        UidFindingType::MismatchedReverse,
        UidFindingType::DuplicateUid,
        UidFindingType::CounterBehind,
        UidFindingType::UnknownCell,
    ] {
        ensure!(types.contains(&expected), "{expected:?} is not in {types:?}");
    }
    // Its status is the number of errors that it found.
    for _ in 0..ROUNDS {
        let repair = ["fsck", "fix", "delete_unknown"];
        if both.rig.uid_manager(&both.opentsdb, &repair).await.is_ok() {
            break;
        }
    }
    both.check_uids().await?;
    let mut after = find(&both.oxtsdb).await?;
    // OpenTSDB's check does not read metadata: it leaves the metadata of a mapping that it deletes.
    after.retain(|finding| finding.r#type() != UidFindingType::OrphanedMetadata);
    ensure!(after.is_empty(), "{after:?}");
    Ok(())
}

/// Names of both, and each damage that OpenTSDB can repair.
async fn damage(both: &Both) -> anyhow::Result<()> {
    let names: Vec<String> = (1..=9).map(|number| format!("m{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    both.opentsdb.assign(UidKind::Metric, &names).await?;
    let uid = |number: u8| vec![0, 0, number];
    let forward = |name: &str, uid: Option<u8>| -> (Column, Option<Vec<u8>>) {
        let column = (name.as_bytes().to_vec(), "id".to_owned(), b"metrics".to_vec());
        (column, uid.map(|number| vec![0, 0, number]))
    };
    let reverse = |number: u8, name: Option<&str>| -> (Column, Option<Vec<u8>>) {
        let column = (uid(number), "name".to_owned(), b"metrics".to_vec());
        (column, name.map(|name| name.as_bytes().to_vec()))
    };
    let counter = (
        (vec![0], "id".to_owned(), b"metrics".to_vec()),
        Some(5_u64.to_be_bytes().to_vec()),
    );
    let unknown = (
        (b"m1".to_vec(), "id".to_owned(), b"metric".to_vec()),
        Some(b"bogus".to_vec()),
    );
    let cells = [
        reverse(1, None),
        forward("m2", None),
        reverse(3, Some("unassigned")),
        forward("other", Some(4)),
        // A race that was lost: two UIDs have the name.
        reverse(20, Some("m5")),
        counter,
        unknown,
    ];
    both.stored.change(&both.tables.uid, &cells).await
}

/// Everything that our check finds but for notes.
async fn find(oxtsdb: &Tsdb) -> anyhow::Result<Vec<UidFinding>> {
    let mut client = UidAdminServiceClient::new(oxtsdb.uid_channel());
    let request = FsckUidsRequest {
        kinds: Vec::new(),
        // Nothing writes.
        grace_period: Some(prost_types::Duration::default()),
    };
    let mut events = client.fsck_uids(request).await?.into_inner();
    let mut all = Vec::new();
    while let Some(response) = events.message().await? {
        if let Some(Event::Findings(findings)) = response.event {
            all.extend(findings.findings);
        }
    }
    all.retain(|finding| finding.severity() != UidFindingSeverity::Note);
    Ok(all)
}

/// Applies the proposed repair of each finding, else its first alternative.
async fn repair(oxtsdb: &Tsdb, findings: &[UidFinding]) -> anyhow::Result<()> {
    let mut client = UidAdminServiceClient::new(oxtsdb.uid_channel());
    for finding in findings {
        let repair = finding.repair.as_ref().or(finding.alternatives.first());
        let repairs = vec![
            repair
                .with_context(|| format!("no repair of {finding:?}"))?
                .clone(),
        ];
        let response = client
            .repair_uids(RepairUidsRequest { repairs })
            .await?
            .into_inner();
        let outcome = response
            .results
            .into_iter()
            .next()
            .and_then(|result| result.outcome);
        // A repair before it may have changed the cells of this one; the next round finds what is left.
        ensure!(
            matches!(outcome, Some(Outcome::Effect(_) | Outcome::Error(_))),
            "{finding:?}: {outcome:?}"
        );
    }
    Ok(())
}
