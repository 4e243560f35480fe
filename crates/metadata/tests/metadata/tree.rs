use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_metadata::tree::delete::Deleted;
use oxtsdb_metadata::tree::edit::{EditMode, RuleEdit, TreeEdit};
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_metadata::tree::place::PlaceCounts;
use oxtsdb_metadata::tree::sync::{SyncProgress, SyncRequest};
use oxtsdb_metadata::tree::*;
use oxtsdb_metadata::uids::UidsError;
use oxtsdb_query::{Budget, Limits};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY, TREE_TABLE};
use oxtsdb_schema::tree::{BranchDocument, BranchId, RuleDocument, RuleType, TreeCell, TreeDocument, TreeId};
use oxtsdb_schema::ts_meta::TS_META_QUALIFIER;
use oxtsdb_schema::{Tsuid, Uid, UidKind};
use oxtsdb_server::Shutdown;
use oxtsdb_test_stack::TestStack;

/// The trees of a stack.
struct Fixture {
    stack: TestStack,
    trees: Trees,
    /// The threads of `trees`.
    compute: ComputePool,
}

impl Fixture {
    async fn start() -> Self {
        Self::with_custom(None).await
    }

    async fn with_custom(custom: Option<Arc<dyn CustomFields>>) -> Self {
        let stack = TestStack::start().await;
        let tables = ("tsdb-tree".parse().unwrap(), "tsdb-meta".parse().unwrap());
        let compute = ComputePool::new(2).unwrap();
        let trees = Trees::new(
            Arc::new(stack.store.clone()),
            tables,
            stack.service.uids.clone(),
            custom,
            compute.clone(),
        );
        Self {
            stack,
            trees,
            compute,
        }
    }

    /// The series of `metric tagk=tagv …`; names get UIDs in this order.
    async fn series(&self, text: &str) -> Tsuid {
        let uids = &self.stack.service.uids;
        let mut words = text.split(' ');
        let assign = async |kind, name: &str| -> Uid {
            let assigned = uids.assign_for(&[(kind, name)], |_| None, None).await.unwrap();
            *assigned[0].as_ref().unwrap()
        };
        let metric = assign(UidKind::Metric, words.next().unwrap()).await;
        let mut tags = Vec::new();
        for word in words {
            let (tagk, tagv) = word.split_once('=').unwrap();
            tags.push((
                assign(UidKind::Tagk, tagk).await.into(),
                assign(UidKind::Tagv, tagv).await.into(),
            ));
        }
        Tsuid::new(metric.into(), &mut tags).unwrap()
    }

    /// A tree of these rules.
    async fn tree(&self, strict_match: bool, rules: Vec<RuleDocument>) -> TreeId {
        let definition = TreeDocument {
            name: "t".into(),
            strict_match,
            enabled: true,
            store_failures: true,
            ..TreeDocument::default()
        };
        self.trees.create(definition, rules).await.unwrap().id
    }

    async fn place(&self, series: &[Tsuid]) -> PlaceCounts {
        self.trees.place_in_enabled(series).await.unwrap()
    }

    /// The cells of the table as `row qualifier value`: hex, text with `|` before hex, text.
    async fn cells(&self) -> Vec<String> {
        let text = |hex: &str| {
            let bytes = hex::decode(hex).unwrap();
            let split = bytes
                .iter()
                .position(|byte| *byte == b':')
                .filter(|_| !bytes.starts_with(b"tree_rule:") && !bytes.starts_with(b"{"));
            match split {
                None => String::from_utf8(bytes).unwrap(),
                Some(at) => format!(
                    "{}{}",
                    String::from_utf8_lossy(&bytes[..=at]),
                    hex::encode(&bytes[at + 1..])
                ),
            }
        };
        let cells = self.stack.cells(TREE_TABLE).await;
        let cells = cells.iter().map(|cell| {
            let parts: Vec<&str> = cell.splitn(3, ' ').collect();
            format!(
                "{} {} {}",
                parts[0],
                text(parts[1].strip_prefix("t:").unwrap()),
                text(parts[2])
            )
        });
        cells.collect()
    }

    async fn branch(&self, id: BranchId) -> Result<BranchDocument, TreeError> {
        self.trees.branch(&id).await
    }

    async fn leaves(&self, id: BranchId) -> Vec<branch::Leaf> {
        let batches: Vec<_> = self.trees.leaves(id, budget()).try_collect().await.unwrap();
        batches.into_iter().flat_map(|batch| batch.leaves).collect()
    }

    async fn put_meta(&self, tsuid: &[u8], qualifier: &[u8]) {
        let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
        let family = batch.family(META_FAMILY);
        batch.row(tsuid).put(family, qualifier, b"{}");
        self.stack.store.write(batch).await.unwrap();
    }

    async fn deleted(&self, id: TreeId, with_definition: bool) -> Result<Deleted, TreeError> {
        let reports: Vec<Deleted> = self.trees.delete(id, with_definition).try_collect().await?;
        Ok(*reports.last().unwrap())
    }
}

fn budget() -> Budget {
    Budget::of_limits(Limits::NONE)
}

fn rule(level: i32, rule_type: RuleType, field: &str) -> RuleDocument {
    let mut rule = RuleDocument::new(TreeId::FIRST, rule_type);
    (rule.level, rule.field) = (level, field.to_owned());
    rule
}

/// Rules of vectors V91 to V93.
fn documented() -> Vec<RuleDocument> {
    let mut rules = vec![
        rule(0, RuleType::Tagk, "dc"),
        rule(1, RuleType::Tagk, "host"),
        rule(2, RuleType::Metric, ""),
    ];
    rules[1].display_format = "host: {value}".into();
    rules[2].separator = r"\.".into();
    rules
}

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
async fn concurrent_creations_get_ids_of_their_own() {
    let fixture = Fixture::start().await;
    let create = (0..12).map(|number| {
        let trees = fixture.trees.clone();
        let definition = TreeDocument {
            name: format!("tree {number}"),
            ..TreeDocument::default()
        };
        tokio::spawn(async move { trees.create(definition, Vec::new()).await.unwrap() })
    });
    let mut ids = Vec::new();
    for created in futures::future::join_all(create).await {
        ids.push(created.unwrap().id.get());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=12).collect::<Vec<u16>>());
    let page = fixture.trees.list(TreeId::new(5).ok(), 3).await.unwrap();
    assert_eq!(
        page.trees.iter().map(|tree| tree.id.get()).collect::<Vec<_>>(),
        [6, 7, 8]
    );
    let nameless = fixture.trees.create(TreeDocument::default(), Vec::new()).await;
    assert!(matches!(nameless, Err(TreeError::NoName)));
}

#[tokio::test]
async fn the_last_id_is_assigned_and_the_next_rejected() {
    let fixture = Fixture::start().await;
    let definition = TreeDocument {
        name: "n".into(),
        ..TreeDocument::default()
    };
    let last = TreeId::new(65534).unwrap();
    assert!(
        fixture
            .trees
            .put_definition(last, None, &definition)
            .await
            .unwrap()
    );
    let create = || fixture.trees.create(definition.clone(), Vec::new());
    assert_eq!(create().await.unwrap().id.get(), 65535);
    assert!(matches!(create().await, Err(TreeError::NoFreeId)));
}

#[tokio::test]
async fn updates_compare_with_what_was_read() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, Vec::new()).await;
    let edit = |description: &str| TreeEdit {
        description: Some(description.to_owned()),
        ..TreeEdit::default()
    };
    let update = |edit: TreeEdit, etag: Option<String>| {
        let trees = fixture.trees.clone();
        async move { trees.update(id, &edit, EditMode::Merge, etag.as_deref()).await }
    };
    let read = fixture.trees.tree(id).await.unwrap();
    let updated = update(edit("first"), Some(read.etag.clone())).await.unwrap();
    assert_eq!(updated.definition.description, "first");
    assert_ne!(updated.etag, read.etag);
    let error = update(edit("second"), Some(read.etag)).await.unwrap_err();
    assert!(
        matches!(error, TreeError::EtagMismatch { ref stored, .. } if *stored == updated.etag),
        "{error}"
    );
    let unknown = TreeId::new(9).unwrap();
    let error = fixture
        .trees
        .update(unknown, &edit("x"), EditMode::Merge, None)
        .await
        .unwrap_err();
    assert!(matches!(error, TreeError::TreeNotFound(tree) if tree == unknown));
    // Concurrent changes of different fields are all applied.
    let notes = TreeEdit {
        notes: Some("notes".into()),
        ..TreeEdit::default()
    };
    let (one, other) = tokio::join!(update(edit("third"), None), update(notes, None));
    one.and(other).unwrap();
    let definition = fixture.trees.tree(id).await.unwrap().definition;
    assert_eq!((&*definition.description, &*definition.notes), ("third", "notes"));
}

#[tokio::test]
async fn rules_are_replaced_and_deleted_together() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, documented()).await;
    let places = |tree: &Tree| tree.rules.keys().copied().collect::<Vec<_>>();
    let changed = vec![rule(1, RuleType::Tagk, "rack"), rule(5, RuleType::Metric, "")];
    let tree = fixture.trees.set_rules(id, changed.clone(), false).await.unwrap();
    assert_eq!(places(&tree), [(0, 0), (1, 0), (2, 0), (5, 0)]);
    assert_eq!(tree.rules[&(1, 0)].field, "rack");
    let tree = fixture.trees.set_rules(id, changed, true).await.unwrap();
    assert_eq!(places(&tree), [(1, 0), (5, 0)]);
    let absent = fixture
        .trees
        .delete_rules(id, Some(&[(1, 0), (2, 0)]))
        .await
        .unwrap_err();
    assert!(matches!(
        absent,
        TreeError::RuleNotFound {
            level: 2,
            order: 0,
            ..
        }
    ));
    let tree = fixture.trees.delete_rules(id, Some(&[(1, 0)])).await.unwrap();
    assert_eq!(places(&tree), [(5, 0)]);
    fixture.trees.delete_rules(id, None).await.unwrap();
    assert!(fixture.trees.tree(id).await.unwrap().rules.is_empty());
    let mut bad = rule(3, RuleType::Metric, "");
    bad.regex = "(".into();
    let error = fixture
        .trees
        .set_rules(id, vec![rule(0, RuleType::Metric, ""), bad], true)
        .await;
    assert!(matches!(error, Err(TreeError::InvalidRule(error)) if (error.tree, error.level) == (1, 3)));
    assert!(
        fixture.trees.tree(id).await.unwrap().rules.is_empty(),
        "all or none"
    );
    let many = (0..1001).map(|level| rule(level, RuleType::Metric, "")).collect();
    let error = fixture.trees.set_rules(id, many, false).await;
    assert!(matches!(error, Err(TreeError::TooManyRules { count: 1001, .. })));
}

#[tokio::test]
async fn the_rules_of_a_tree_have_a_size() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(true, Vec::new()).await;
    let too_large = |result| matches!(result, Err(TreeError::RulesTooLarge(tree)) if tree == id);
    // Small as text, large as programs.
    let mut programs: Vec<_> = (0..300).map(|level| rule(level, RuleType::Metric, "")).collect();
    for rule in &mut programs {
        rule.regex = r"(\p{L}+)".into();
    }
    assert!(too_large(
        fixture.trees.set_rules(id, programs.clone(), true).await
    ));
    // Stored by another program, the tree gets no series, but the others do.
    fixture.trees.write_rules(id, &programs, &[]).await.unwrap();
    let other = fixture.tree(false, vec![rule(0, RuleType::Metric, "")]).await;
    let enabled = fixture.trees.enabled().await.unwrap();
    assert_eq!(enabled.iter().map(|tree| tree.id).collect::<Vec<_>>(), [other]);
    // Large as text, in several changes.
    let mut texts: Vec<_> = (0..63).map(|level| rule(level, RuleType::Metric, "")).collect();
    for rule in &mut texts {
        rule.notes = "n".repeat(rule::MAX_TEXT_BYTES);
    }
    fixture.trees.set_rules(id, texts, true).await.unwrap();
    let edit = RuleEdit {
        level: 100,
        rule_type: Some(RuleType::Metric),
        notes: Some("n".repeat(rule::MAX_TEXT_BYTES)),
        ..RuleEdit::default()
    };
    let edited = fixture.trees.edit_rule(id, &edit, EditMode::Merge).await;
    assert!(matches!(edited, Err(TreeError::RulesTooLarge(_))));
    // A page ends after a megabyte.
    let page = fixture.trees.list(None, 2).await.unwrap();
    assert_eq!((page.trees.len(), page.next_after), (1, Some(id)));
    let page = fixture.trees.list(page.next_after, 2).await.unwrap();
    assert_eq!((page.trees.len(), page.next_after), (1, None));
}

#[tokio::test]
async fn a_rule_is_edited_by_compare_and_put() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, documented()).await;
    let edit = RuleEdit {
        level: 1,
        notes: Some("n".into()),
        ..RuleEdit::default()
    };
    let merge = || fixture.trees.edit_rule(id, &edit, EditMode::Merge);
    let define::RuleChange::Stored(stored) = merge().await.unwrap() else {
        panic!("the notes are new");
    };
    assert_eq!((&*stored.notes, &*stored.field), ("n", "host"));
    assert_eq!(merge().await.unwrap(), define::RuleChange::Unchanged);
    let replaced = fixture
        .trees
        .edit_rule(id, &edit, EditMode::Replace)
        .await
        .unwrap();
    assert_eq!(replaced, define::RuleChange::NoType);
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
impl oxtsdb_row_store::intercept::Intercept for TogetherOnly {
    async fn intercept(
        &self,
        operation: oxtsdb_row_store::intercept::Operation,
        store: &dyn oxtsdb_row_store::RowStore,
    ) -> Result<oxtsdb_row_store::intercept::Response, oxtsdb_row_store::StoreError> {
        use oxtsdb_row_store::intercept::Operation;
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
    let store =
        oxtsdb_row_store::intercept::InterceptedStore::new(Arc::new(fixture.stack.store.clone()), together);
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
