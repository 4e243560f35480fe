//! Series are placed in trees: when they are new, and by passes over all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::TryStreamExt as _;
use oxtsdb_metadata::tree::edit::{EditMode, TreeEdit};
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_metadata::tree::place::PlaceCounts;
use oxtsdb_metadata::tree::sync::{SyncProgress, SyncRequest};
use oxtsdb_metadata::tree::{CONCURRENT_PUTS, CustomFields, Problem, Trees, evaluate};
use oxtsdb_metadata::uids::UidsError;
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::{RowStore, StoreError, WriteBatch};
use oxtsdb_schema::data_table::COUNTER_QUALIFIER;
use oxtsdb_schema::tree::{BranchId, RuleType, TreeCell, TreeDocument, TreeId};
use oxtsdb_schema::ts_meta::TS_META_QUALIFIER;
use oxtsdb_schema::{Tsuid, Uid, UidKind};
use oxtsdb_server::Shutdown;

use super::{Fixture, budget, documented, rule};

/// Vectors V90 to V98.
#[tokio::test]
async fn stores_the_recorded_cells() {
    let fixture = Fixture::start().await;
    let definition = TreeDocument {
        name: "By DC".into(),
        description: "d".into(),
        enabled: true,
        store_failures: true,
        ..TreeDocument::default()
    };
    fixture.trees.create(definition, documented()).await.unwrap();
    let first = fixture.series("sys.cpu.user host=web01 dc=lax").await;
    let counts = fixture.place(std::slice::from_ref(&first)).await;
    assert_eq!(
        counts,
        PlaceCounts {
            placed: 1,
            ..PlaceCounts::default()
        }
    );
    let second = fixture.series("sys.mem dc=lax host=web02").await;
    fixture.place(&[second, first]).await;
    let rule = |level: u8, fields: [&str; 4]| {
        let [kind, field, separator, format] = fields;
        format!(
            r#"0001 tree_rule:{level}:0 {{"type":"{kind}","field":"{field}","regex":"","separator":"{separator}","description":"","notes":"","level":{level},"order":0,"treeId":1,"customField":"","regexGroupIdx":0,"displayFormat":"{format}"}}"#
        )
    };
    let expected = [
        r#"0001 branch {"path":{"0":"ROOT"},"displayName":"ROOT"}"#.to_owned(),
        r#"0001 tree {"name":"By DC","description":"d","notes":"","strictMatch":false,"created":0,"enabled":true,"storeFailures":true}"#.to_owned(),
        rule(0, ["TAGK", "dc", "", ""]),
        rule(1, ["TAGK", "host", "", "host: {value}"]),
        rule(2, ["METRIC", "", r"\\.", ""]),
        r#"00010001a1a3 branch {"path":{"0":"ROOT","1":"lax"},"displayName":"lax"}"#.to_owned(),
        r#"00010001a1a34f07aa47 branch {"path":{"0":"ROOT","1":"lax","2":"host: web01"},"displayName":"host: web01"}"#.to_owned(),
        r#"00010001a1a34f07aa470001becd branch {"path":{"0":"ROOT","1":"lax","2":"host: web01","3":"sys"},"displayName":"sys"}"#.to_owned(),
        r#"00010001a1a34f07aa470001becd000181a8 branch {"path":{"0":"ROOT","1":"lax","2":"host: web01","3":"sys","4":"cpu"},"displayName":"cpu"}"#.to_owned(),
        r#"00010001a1a34f07aa470001becd000181a8 leaf:0036ebcb {"displayName":"user","tsuid":"000001000001000001000002000002"}"#.to_owned(),
        r#"00010001a1a34f07aa48 branch {"path":{"0":"ROOT","1":"lax","2":"host: web02"},"displayName":"host: web02"}"#.to_owned(),
        r#"00010001a1a34f07aa480001becd branch {"path":{"0":"ROOT","1":"lax","2":"host: web02","3":"sys"},"displayName":"sys"}"#.to_owned(),
        r#"00010001a1a34f07aa480001becd leaf:0001a5d5 {"displayName":"mem","tsuid":"000002000001000003000002000002"}"#.to_owned(),
    ];
    assert_eq!(fixture.cells().await, expected);
}

#[tokio::test]
async fn collisions_and_series_that_do_not_match_are_stored() {
    let fixture = Fixture::start().await;
    let id = fixture
        .tree(
            true,
            vec![rule(0, RuleType::Tagk, "dc"), rule(1, RuleType::Metric, "")],
        )
        .await;
    let first = fixture.series("m dc=lax host=a").await;
    let second = fixture.series("m dc=lax host=b").await;
    let failing = fixture.series("m host=a").await;
    let all = [first.clone(), second.clone(), failing.clone()];
    let counts = fixture.place(&all).await;
    let expected = PlaceCounts {
        placed: 1,
        collisions: 1,
        not_matched: 1,
        ..PlaceCounts::default()
    };
    assert_eq!(counts, expected);
    let again = fixture.place(&all).await;
    assert_eq!((again.placed, again.existing, again.collisions), (0, 1, 1));
    let of_series = async |problem, series: &[&Tsuid]| -> Result<Vec<_>, TreeError> {
        let series = series.iter().map(|series| series.as_bytes().to_vec()).collect();
        let batches = fixture.trees.problems(id, problem, series, budget());
        let batches: Vec<_> = batches.try_collect().await?;
        Ok(batches.into_iter().flat_map(|batch| batch.problems).collect())
    };
    let problems = async |problem| of_series(problem, &[]).await;
    assert_eq!(
        problems(Problem::Collision).await.unwrap(),
        [(second.as_bytes().to_vec(), first.to_string())]
    );
    assert_eq!(
        problems(Problem::NotMatched).await.unwrap(),
        [(failing.as_bytes().to_vec(), "[1:0:0:TAGK]".to_owned())]
    );
    let of_first = of_series(Problem::Collision, &[&first]).await.unwrap();
    assert!(of_first.is_empty());
    // Without storeFailures they are counted only.
    let quiet = TreeEdit {
        store_failures: Some(false),
        ..TreeEdit::default()
    };
    assert_eq!(fixture.deleted(id, false).await.unwrap().problems, 2);
    fixture
        .trees
        .update(id, &quiet, EditMode::Merge, None)
        .await
        .unwrap();
    assert_eq!(fixture.place(&all).await.collisions, 1);
    assert!(problems(Problem::Collision).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_damaged_leaf_costs_its_own_place_only() {
    let fixture = Fixture::start().await;
    let rules = vec![rule(0, RuleType::Tagk, "dc"), rule(1, RuleType::Metric, "")];
    let id = fixture.tree(false, rules).await;
    let damaged = fixture.series("a dc=lax").await;
    let sound = fixture.series("b dc=lax").await;
    fixture.place(std::slice::from_ref(&damaged)).await;
    let mut batch = WriteBatch::new("tsdb-tree".parse().unwrap());
    let family = batch.family("t");
    let lax = BranchId::root(id).child("lax");
    batch
        .row(lax.as_bytes())
        .put(family, &TreeCell::leaf("a").encode(), b"{");
    fixture.stack.store.write(batch).await.unwrap();
    let counts = fixture.place(&[damaged, sound]).await;
    assert_eq!((counts.placed, counts.without_place), (1, 1));
}

#[tokio::test]
async fn a_pass_places_all_series_and_is_resumed() {
    let fixture = Fixture::start().await;
    let rules = vec![rule(0, RuleType::Tagk, "dc"), rule(1, RuleType::Tagk, "host")];
    let id = fixture.tree(false, rules).await;
    for number in 0..600 {
        let series = fixture.series(&format!("m dc=lax host=h{number}")).await;
        fixture.put_meta(series.as_bytes(), TS_META_QUALIFIER).await;
    }
    let counted = fixture.series("m dc=ams host=h0").await;
    fixture.put_meta(counted.as_bytes(), COUNTER_QUALIFIER).await;
    fixture.put_meta(b"no tsuid", TS_META_QUALIFIER).await;
    let mut nameless = counted.as_bytes().to_vec();
    nameless[8] = 0xff;
    fixture.put_meta(&nameless, TS_META_QUALIFIER).await;
    let sync = async |request: SyncRequest| -> Vec<SyncProgress> {
        fixture.trees.sync(request).try_collect().await.unwrap()
    };
    let reports = sync(SyncRequest::default()).await;
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0].series, 512);
    let last = reports.last().unwrap();
    assert_eq!(
        (last.series, last.counts.placed, last.without_names, last.invalid),
        (602, 600, 1, 1)
    );
    assert!(last.is_done && !reports[0].is_done);
    let rest = SyncRequest {
        start_after: reports[0].last.clone(),
        with_counters_only: true,
        trees: vec![id],
    };
    let rest = sync(rest).await;
    let rest = rest.last().unwrap();
    assert_eq!(
        (rest.series, rest.counts.placed, rest.counts.existing),
        (91, 1, 88)
    );
    let unknown = SyncRequest {
        trees: vec![TreeId::new(7).unwrap()],
        ..SyncRequest::default()
    };
    let error = fixture
        .trees
        .sync(unknown)
        .try_collect::<Vec<_>>()
        .await
        .unwrap_err();
    assert!(matches!(error, TreeError::TreeNotFound(_)));
}

#[tokio::test]
async fn new_series_are_placed_in_the_background() {
    let fixture = Fixture::start().await;
    let rules = vec![rule(0, RuleType::Tagk, "dc"), rule(1, RuleType::Metric, "")];
    let id = fixture.tree(false, rules).await;
    let (sender, receiver) = tokio::sync::mpsc::channel(8);
    let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
    let worker = tokio::spawn(fixture.trees.clone().process(receiver, |tsuid| tsuid, shutdown));
    sender.send(fixture.series("m dc=lax").await).await.unwrap();
    let lax = BranchId::root(id).child("lax");
    let until = Instant::now() + Duration::from_secs(20);
    while fixture.leaves(lax.clone()).await.is_empty() {
        assert!(Instant::now() < until, "the series is not placed");
        tokio::task::yield_now().await;
    }
    trigger.shut_down().await;
    worker.await.unwrap();
}

/// Custom fields `owner` of all tag values: the UID as hex.
#[derive(Debug)]
struct Owners;

#[async_trait]
impl CustomFields for Owners {
    async fn custom_fields(
        &self,
        kind: UidKind,
        uids: &[Uid],
        _: Option<Instant>,
    ) -> Result<Vec<Option<BTreeMap<String, String>>>, UidsError> {
        assert_eq!(kind, UidKind::Tagv, "no rule uses others");
        let owner = |uid: &Uid| Some(BTreeMap::from([("owner".to_owned(), uid.to_string())]));
        Ok(uids.iter().map(owner).collect())
    }
}

#[tokio::test]
async fn rules_see_custom_fields() {
    let fixture = Fixture::with_custom(Some(Arc::new(Owners))).await;
    let mut owner = rule(0, RuleType::TagvCustom, "lax");
    owner.custom_field = "owner".into();
    let id = fixture
        .tree(false, vec![owner, rule(1, RuleType::Metric, "")])
        .await;
    let series = fixture.series("m host=a dc=lax").await;
    fixture.place(std::slice::from_ref(&series)).await;
    assert!(fixture.branch(BranchId::root(id).child("000002")).await.is_ok());
    let tester = fixture.trees.tester(id).await.unwrap();
    let tested = tester.test(&[series]).await.unwrap();
    let (outcome, messages) = tested[0].as_ref().unwrap();
    assert!(
        matches!(outcome, evaluate::Outcome::Place(place) if place.branches == ["000002"] && place.leaf == "m")
    );
    assert_eq!(messages[1], "Matched tagv [lax] for rule: [1:0:0:TAGV_CUSTOM]");
}

/// Holds check-and-puts back until as many of them wait.
#[derive(Debug)]
struct TogetherOnly {
    waiting: tokio::sync::Barrier,
}

#[async_trait]
impl Intercept for TogetherOnly {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let is_leaf = matches!(
            &operation,
            Operation::CheckAndPut { condition, .. } if condition.cell.qualifier.starts_with(b"leaf:")
        );
        if is_leaf {
            self.waiting.wait().await;
        }
        operation.perform(store).await
    }
}

#[tokio::test]
async fn leaves_of_one_branch_are_stored_together() {
    let mut fixture = Fixture::start().await;
    let together = Arc::new(TogetherOnly {
        waiting: tokio::sync::Barrier::new(CONCURRENT_PUTS),
    });
    let store = InterceptedStore::new(Arc::new(fixture.stack.store.clone()), together);
    fixture.trees = Trees::new(
        Arc::new(store),
        ("tsdb-tree".parse().unwrap(), "tsdb-meta".parse().unwrap()),
        fixture.stack.service.uids.clone(),
        None,
        ComputePool::new(2).unwrap(),
    );
    fixture
        .tree(
            false,
            vec![rule(0, RuleType::Metric, ""), rule(1, RuleType::Tagk, "host")],
        )
        .await;
    let mut series = Vec::new();
    for number in 0..2 * CONCURRENT_PUTS {
        series.push(fixture.series(&format!("m host=h{number}")).await);
    }
    // One after the other, they would wait for ever.
    let placed = tokio::time::timeout(Duration::from_secs(60), fixture.place(&series)).await;
    assert_eq!(placed.unwrap().placed, 2 * CONCURRENT_PUTS as u64);
}
