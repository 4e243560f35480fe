//! Trees over a store in memory.

mod edit;
mod place;
mod read;

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_metadata::tree::delete::Deleted;
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_metadata::tree::place::PlaceCounts;
use oxtsdb_metadata::tree::{CustomFields, Trees, branch};
use oxtsdb_query::{Budget, Limits};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_schema::data_table::{META_FAMILY, TREE_TABLE};
use oxtsdb_schema::tree::{BranchDocument, BranchId, RuleDocument, RuleType, TreeDocument, TreeId};
use oxtsdb_schema::{Tsuid, Uid, UidKind};
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
    Budget::from_limits(Limits::NONE)
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
