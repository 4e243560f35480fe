//! The enabled trees with their rules, compiled, for series that appear.
//!
//! The list is loaded when it is needed and older than [`MAX_AGE`]. Changes of this process invalidate it at once;
//! changes of others take effect within that time (OpenTSDB: 5 minutes). Concurrent callers load it once. Rules are
//! compiled on the computation threads; the memory of all of them has a fixed limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oxtsdb_schema::tree::TreeId;
use tokio::sync::Mutex;
use tracing::warn;

use super::Trees;
use super::error::{MAX_READY_BYTES, TreeError};
use super::evaluate::RuleSet;
use super::table::Tree;

/// How long a change by another process may have no effect here.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Trees that are read at a time.
const PAGE: usize = 256;

/// A tree that series can be placed in.
#[derive(Debug)]
pub struct ReadyTree {
    /// The id of the tree.
    pub id: TreeId,
    pub(super) store_failures: bool,
    pub(super) rules: RuleSet,
}

/// Compiled trees, bounded in memory.
#[derive(Debug, Default)]
pub(super) struct ReadyTrees {
    trees: Vec<Arc<ReadyTree>>,
    bytes: usize,
}

impl ReadyTrees {
    /// Adds a tree.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreesTooLarge`] if all of them would take too much memory.
    pub(super) fn add(&mut self, tree: Arc<ReadyTree>) -> Result<(), TreeError> {
        let bytes = self.bytes + size_of::<ReadyTree>() + tree.rules.memory_bytes();
        if bytes > MAX_READY_BYTES {
            return Err(TreeError::TreesTooLarge);
        }
        self.bytes = bytes;
        self.trees.push(tree);
        Ok(())
    }

    pub(super) fn finish(self) -> Arc<[Arc<ReadyTree>]> {
        self.trees.into()
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
    /// Compiles the rules of a tree.
    pub(super) async fn ready(&self, tree: Tree) -> Result<Arc<ReadyTree>, TreeError> {
        let compile = move || {
            let definition = &tree.definition;
            Ok(Arc::new(ReadyTree {
                id: tree.id,
                store_failures: definition.store_failures,
                rules: RuleSet::compile(tree.id, definition.strict_match, tree.rules.values())?,
            }))
        };
        self.0.compute.run(compile).await?
    }

    /// The enabled trees with rules that can be applied, ascending by id. Others are logged.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub async fn enabled(&self) -> Result<Arc<[Arc<ReadyTree>]>, TreeError> {
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
        let mut ready = ReadyTrees::default();
        let mut after = None;
        loop {
            let page = self.list(after, PAGE).await?;
            for tree in page.trees.into_iter().filter(|tree| tree.definition.enabled) {
                let id = tree.id;
                let added = self.ready(tree).await.and_then(|tree| ready.add(tree));
                if let Err(error) = added {
                    warn!(tree = %id, %error, "the tree is enabled but gets no series");
                }
            }
            after = page.next_after;
            if after.is_none() {
                break;
            }
        }
        let trees = ready.finish();
        *list = Some(List {
            version,
            loaded,
            trees: Arc::clone(&trees),
        });
        Ok(trees)
    }
}
