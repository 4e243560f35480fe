//! The enabled trees with their rules, compiled, for series that appear.
//!
//! The list is loaded when it is needed and older than [`MAX_AGE`]. Changes of this process invalidate it at once;
//! those of others take effect within that time (OpenTSDB: 5 minutes). Concurrent callers load it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tracing::warn;

use super::Trees;
use super::error::TreeError;
use super::evaluate::RuleSet;
use super::table::Tree;

/// How long a change by another process may have no effect here.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Trees that are read at a time.
const PAGE: usize = 256;

/// A tree that series can be placed in.
#[derive(Debug)]
pub(super) struct ReadyTree {
    pub(super) tree: Tree,
    pub(super) rules: RuleSet,
}

impl ReadyTree {
    pub(super) fn new(tree: Tree) -> Result<Self, TreeError> {
        let rules: Vec<_> = tree.rules.values().cloned().collect();
        let rules = RuleSet::compile(tree.id, tree.definition.strict_match, &rules)?;
        Ok(Self { tree, rules })
    }
}

/// The cached list.
#[derive(Debug, Default)]
pub(super) struct EnabledTrees {
    /// Counts invalidations.
    version: AtomicU64,
    list: Mutex<Option<List>>,
}

#[derive(Clone, Debug)]
struct List {
    version: u64,
    loaded: Instant,
    trees: Arc<[Arc<ReadyTree>]>,
}

impl EnabledTrees {
    /// Makes the next caller load the list.
    pub(super) fn invalidate(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Trees {
    /// The enabled trees whose rules can be applied. Others are logged.
    pub(super) async fn enabled(&self) -> Result<Arc<[Arc<ReadyTree>]>, TreeError> {
        let cache = &self.0.enabled;
        let mut list = cache.list.lock().await;
        let version = cache.version.load(Ordering::Acquire);
        if let Some(list) = list.as_ref()
            && list.version == version
            && list.loaded.elapsed() < MAX_AGE
        {
            return Ok(Arc::clone(&list.trees));
        }
        let loaded = Instant::now();
        let mut trees = Vec::new();
        let mut after = None;
        loop {
            let page = self.list(after, PAGE).await?;
            after = page.last().map(|tree| tree.id);
            let is_last = page.len() < PAGE;
            for tree in page.into_iter().filter(|tree| tree.definition.enabled) {
                let id = tree.id;
                match ReadyTree::new(tree) {
                    Ok(ready) => trees.push(Arc::new(ready)),
                    Err(error) => warn!(tree = %id, %error, "the tree is enabled but gets no series"),
                }
            }
            if is_last {
                break;
            }
        }
        let trees: Arc<[Arc<ReadyTree>]> = trees.into();
        *list = Some(List {
            version,
            loaded,
            trees: Arc::clone(&trees),
        });
        Ok(trees)
    }
}
