//! Names of callers whose rights are limited to some metrics.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_access::MetricScope;
use oxtsdb_query::{Engine, NameDirectory, NameError, NameGeneration};
use oxtsdb_schema::{Uid, UidKind};

/// A directory that refuses other metrics than those of a scope, in both directions.
#[derive(Debug)]
struct LimitedNames {
    directory: Arc<dyn NameDirectory>,
    scope: MetricScope,
}

/// The same engine, whose queries are refused if they name another metric than those of `scope`.
pub(crate) fn limited_engine(engine: &Engine, scope: &MetricScope) -> Engine {
    engine.clone().with_directory(Arc::new(LimitedNames {
        directory: Arc::clone(&engine.storage().directory),
        scope: scope.clone(),
    }))
}

impl LimitedNames {
    fn check(&self, metric: &str) -> Result<(), NameError> {
        self.scope.check(metric).map_err(|refusal| NameError::Refused {
            metric: metric.to_owned(),
            detail: refusal.to_string(),
        })
    }
}

#[async_trait]
impl NameDirectory for LimitedNames {
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError> {
        for (kind, name) in names {
            if *kind == UidKind::Metric {
                self.check(name)?;
            }
        }
        self.directory.uids(names, deadline).await
    }

    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError> {
        let names = self.directory.names(kind, uids, deadline).await?;
        if kind == UidKind::Metric {
            for name in names.iter().flatten() {
                self.check(name)?;
            }
        }
        Ok(names)
    }

    fn generation(&self) -> Option<NameGeneration> {
        self.directory.generation()
    }

    fn refuses_metrics(&self) -> bool {
        true
    }
}
