//! Reads and deletions of branches, leaves and problems.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_metadata::tree::Problem;
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_schema::tree::{BranchId, RuleType};

use super::{Fixture, budget, documented, rule};

#[tokio::test]
async fn a_branch_has_its_leaves_and_children() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, documented()).await;
    let mut series = Vec::new();
    for (host, metric) in [
        ("a", "sys.cpu.user"),
        ("a", "sys.mem"),
        ("b", "sys.mem"),
        ("b", "net"),
    ] {
        series.push(fixture.series(&format!("{metric} dc=lax host={host}")).await);
    }
    fixture.place(&series).await;
    let root = BranchId::root(id);
    let lax = root.child("lax");
    let children = async |parent: &BranchId| {
        let batches: Vec<Vec<_>> = fixture
            .trees
            .children(parent.clone())
            .try_collect()
            .await
            .unwrap();
        batches
            .into_iter()
            .flatten()
            .map(|(_, document)| document.display_name)
            .collect::<Vec<_>>()
    };
    assert_eq!(children(&root).await, ["lax"]);
    assert_eq!(children(&lax).await, ["host: a", "host: b"]);
    assert_eq!(
        children(&lax.child("host: a").child("sys").child("cpu")).await,
        Vec::<String>::new()
    );
    let host = lax.child("host: b");
    let document = fixture.branch(host.clone()).await.unwrap();
    assert_eq!(
        document.path.values().collect::<Vec<_>>(),
        ["ROOT", "lax", "host: b"]
    );
    let leaves = fixture.leaves(host).await;
    assert_eq!(leaves.len(), 1);
    let names = leaves[0].names.clone().unwrap();
    assert_eq!((&*leaves[0].display_name, &*names.metric), ("net", "net"));
    let tags: Vec<_> = names
        .tags
        .iter()
        .map(|(tagk, tagv)| format!("{tagk}={tagv}"))
        .collect();
    assert_eq!(tags, ["dc=lax", "host=b"]);
    let absent = fixture.branch(root.child("ams")).await.unwrap_err();
    assert_eq!(
        absent.to_string(),
        format!("branch {} does not exist", root.child("ams"))
    );
}

/// A branch, its leaves and the problems of a tree are decoded on the computation threads, and none while these are busy:
/// a branch with 100,000 leaves does not block the threads of the runtime.
#[tokio::test]
async fn leaves_and_problems_are_decoded_on_the_computation_threads() {
    let fixture = Fixture::start().await;
    let rules = vec![rule(0, RuleType::Tagk, "dc"), rule(1, RuleType::Tagk, "host")];
    let id = fixture.tree(false, rules).await;
    let (one, other) = (
        fixture.series("m dc=lax host=a").await,
        fixture.series("n dc=lax host=a").await,
    );
    fixture.place(&[one, other]).await;
    let threads = fixture.compute.threads();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    for _ in 0..threads {
        let released = Arc::clone(&released);
        fixture.compute.spawn(move || {
            // Ends when the sender is dropped.
            let _ = released.lock().unwrap().recv();
        });
    }
    let root = BranchId::root(id);
    let mut reads = [
        fixture
            .trees
            .leaves(root.child("lax"), budget())
            .map_ok(|batch| batch.leaves.len())
            .boxed(),
        fixture.trees.children(root).map_ok(|batch| batch.len()).boxed(),
        fixture
            .trees
            .problems(id, Problem::Collision, Vec::new(), budget())
            .map_ok(|batch| batch.problems.len())
            .boxed(),
    ];
    for read in &mut reads {
        // Reads of a store in memory need a few polls.
        for _ in 0..1000 {
            let read = futures::poll!(read.next());
            assert!(read.is_pending(), "decoded on a thread of the runtime");
            tokio::task::yield_now().await;
        }
    }
    drop(release);
    for read in reads {
        let batches: Vec<usize> = read.try_collect().await.unwrap();
        assert_eq!(batches, [1]);
    }
}

#[tokio::test]
async fn a_deletion_keeps_the_definition_and_foreign_cells_unless_requested() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, documented()).await;
    let other = fixture.tree(false, documented()).await;
    let mut series = Vec::new();
    for number in 0..300 {
        series.push(fixture.series(&format!("m dc=lax host=h{number}")).await);
    }
    fixture.place(&series).await;
    let mut batch = WriteBatch::new("tsdb-tree".parse().unwrap());
    let family = batch.family("t");
    batch
        .row(BranchId::root(id).child("lax").as_bytes())
        .put(family, b"foreign", b"x");
    fixture.stack.store.write(batch).await.unwrap();
    let deleted = fixture.deleted(id, false).await.unwrap();
    assert_eq!(
        (deleted.branches, deleted.leaves, deleted.is_done),
        (302, 300, true)
    );
    assert_eq!(fixture.trees.tree(id).await.unwrap().rules.len(), 3);
    let of_tree = async || {
        fixture
            .cells()
            .await
            .into_iter()
            .filter(|cell| cell.starts_with("0001"))
            .collect::<Vec<_>>()
    };
    assert_eq!(of_tree().await.len(), 5, "definition, rules and the foreign cell");
    assert_eq!(
        fixture.place(&series).await.placed,
        300,
        "the other tree has them still"
    );
    fixture.deleted(id, true).await.unwrap();
    assert_eq!(of_tree().await, ["00010001a1a3 foreign x"]);
    let error = fixture.trees.tree(id).await.unwrap_err();
    assert!(matches!(error, TreeError::TreeNotFound(_)));
    assert_eq!(fixture.place(&series).await.existing, 300);
    assert_eq!(fixture.deleted(other, true).await.unwrap().leaves, 300);
    assert!(matches!(
        fixture.deleted(other, true).await,
        Err(TreeError::TreeNotFound(_))
    ));
}
