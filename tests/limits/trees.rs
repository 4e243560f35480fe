//! Rules of trees with expressions, names or messages that are as large as they can be.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use oxtsdb_proto::common::v1::SeriesKey;
use oxtsdb_proto::common::v1::series_key::Key;
use oxtsdb_proto::data::v1::tree_service_client::TreeServiceClient;
use oxtsdb_proto::data::v1::{
    CreateTreeRequest, SyncTreesRequest, TestTreeRequest, Tree, TreeRule, TreeRuleType,
};
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::refusal;
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::support::{BESIDE_QUERIES, MOST_BYTES, RESPONSE_TIMEOUT, Target};

/// Rules of a tree at most.
const RULES: u32 = 1000;
/// Series of a test at most.
const SERIES: usize = 100;
/// Tests at a time.
const AT_A_TIME: usize = 8;

fn rule(place: u32) -> TreeRule {
    TreeRule {
        level: place,
        r#type: TreeRuleType::Metric.into(),
        ..TreeRule::default()
    }
}

/// Creates a tree, unless it is rejected, and tests series in it.
async fn attack(
    target: &Target,
    client: &TreeServiceClient<Channel>,
    what: &str,
    rule: impl Fn(u32) -> TreeRule,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let tree = Tree {
        name: what.to_owned(),
        rules: (0..RULES).map(rule).collect(),
        ..Tree::default()
    };
    let request = CreateTreeRequest { tree: Some(tree) };
    let created = timeout(RESPONSE_TIMEOUT, client.clone().create_tree(request))
        .await
        .context("no response to CreateTree")?;
    println!(
        "  {:.1} s: {what}: {:?}",
        begun.elapsed().as_secs_f64(),
        created.as_ref().map(|_| ())
    );
    let tree_id = match created {
        Ok(created) => created.into_inner().tree.context("a tree")?.tree_id,
        Err(status) => return refusal::check_status(&status),
    };
    let tests = (0..AT_A_TIME).map(|_| {
        let request = TestTreeRequest {
            tree_id,
            series: (0..SERIES)
                .map(|_| SeriesKey {
                    key: Some(Key::Tsuid(vec![0, 0, 1, 0, 0, 1, 0, 0, 1].into())),
                })
                .collect(),
        };
        let mut client = client.clone();
        async move { timeout(RESPONSE_TIMEOUT, client.test_tree(request)).await }
    });
    for response in join_all(tests).await {
        match response.context("no response to TestTree")? {
            Ok(response) => ensure!(response.into_inner().results.len() == SERIES),
            Err(status) => refusal::check_status(&status)?,
        }
    }
    println!(
        "  {:.1} s: {what} tested, {} MiB",
        begun.elapsed().as_secs_f64(),
        target.memory.peak() >> 20
    );
    target.memory.check_below(MOST_BYTES).context(what.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn rules_of_trees_stay_within_the_memory_limit() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    Load::new("m", 1, 1).write(&target.tsdb).await?;
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let client = TreeServiceClient::new(target.tsdb.data_channel()).max_decoding_message_size(512 << 20);
    attack(&target, &client, "messages", |place| TreeRule {
        display_format: "x".repeat(16),
        separator: "[.]?".to_owned(),
        ..rule(place)
    })
    .await?;
    attack(&target, &client, "formats", |place| TreeRule {
        display_format: "{value}".repeat(500),
        ..rule(place)
    })
    .await?;
    attack(&target, &client, "programs", |place| TreeRule {
        regex: r"(\p{L}{9})".to_owned(),
        ..rule(place)
    })
    .await?;
    attack(&target, &client, "repetitions", |place| TreeRule {
        regex: "((((a{1,30}){1,30}){1,30}){1,30}){1,30}".to_owned(),
        ..rule(place)
    })
    .await?;
    target.check_with(bystander).await
}

/// Leaves of a branch; `OXTSDB_LIMITS_FULL=1` does it with 100,000.
const LEAVES: usize = 5000;

#[tokio::test(flavor = "multi_thread")]
async fn branches_of_many_leaves_delay_no_other_client() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let is_full = std::env::var_os("OXTSDB_LIMITS_FULL").is_some();
    let count = if is_full { 100_000 } else { LEAVES };
    Load::new("many.leaves", count, 1).write(&target.tsdb).await?;
    let mut client = TreeServiceClient::new(target.tsdb.data_channel());
    let tree = Tree {
        name: "wide".to_owned(),
        rules: vec![
            rule(0),
            TreeRule {
                r#type: TreeRuleType::TagKey.into(),
                field: "host".to_owned(),
                ..rule(1)
            },
        ],
        ..Tree::default()
    };
    let created = client.create_tree(CreateTreeRequest { tree: Some(tree) }).await?;
    let tree_id = created.into_inner().tree.context("a tree")?.tree_id;
    let request = SyncTreesRequest {
        tree_ids: vec![tree_id],
        all_series: true,
        ..SyncTreesRequest::default()
    };
    let mut progress = client.sync_trees(request).await?.into_inner();
    while progress.message().await?.is_some() {}
    let root = target
        .get(&format!("/api/tree/branch?treeid={tree_id}"))
        .await?
        .json()?;
    let branch = root["branches"][0]["branchId"].as_str().context("a branch")?;
    let path = format!("/api/tree/branch?branch={branch}");
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    for at_a_time in [1, 4, 16] {
        let begun = Instant::now();
        let responses = join_all((0..at_a_time).map(|_| target.get(&path))).await;
        for response in responses {
            let response = response?;
            if response.status == 200 {
                let leaves = response.json()?["leaves"].as_array().map_or(0, Vec::len);
                ensure!(leaves == count, "{leaves} leaves");
            } else {
                refusal::check_response(&response)?;
            }
        }
        println!(
            "  {at_a_time} branches at a time in {:.1} s, {} MiB",
            begun.elapsed().as_secs_f64(),
            target.memory.peak() >> 20
        );
    }
    target.check_with(bystander).await
}
