//! Rules of trees whose expressions, names or messages are as large as they can be.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use oxtsdb_proto::common::v1::SeriesKey;
use oxtsdb_proto::common::v1::series_key::Key;
use oxtsdb_proto::data::v1::tree_service_client::TreeServiceClient;
use oxtsdb_proto::data::v1::{CreateTreeRequest, TestTreeRequest, Tree, TreeRule, TreeRuleType};
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
