//! Names for callers with rights on some metrics only.
//!
//! A UID of a metric without a name is rejected as well: points of a deleted metric stay readable by TSUID.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_access::MetricScope;
use oxtsdb_query::{Engine, NameDirectory, NameError, NameGeneration};
use oxtsdb_schema::{Uid, UidKind, UidWidths};

/// A directory that rejects metrics outside of a scope, in both directions.
///
/// All metrics share the names of tags, so that an error for an unknown one would reveal which names others use.
/// Unknown names of tags resolve to the UID 0, which no name has: nothing matches, as for a name of other metrics.
#[derive(Debug)]
struct LimitedNames {
    directory: Arc<dyn NameDirectory>,
    scope: MetricScope,
    widths: UidWidths,
}

/// The same engine; it rejects queries that name a metric outside of `scope`.
pub fn limited_engine(engine: &Engine, scope: &MetricScope) -> Engine {
    engine.clone().with_directory(Arc::new(LimitedNames {
        directory: Arc::clone(&engine.storage().directory),
        scope: scope.clone(),
        widths: engine.storage().layout.widths,
    }))
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
                self.scope.check(name).map_err(|refusal| NameError::Refused {
                    metric: ("metric", (*name).to_owned()),
                    detail: refusal.to_string(),
                })?;
            }
        }
        let mut uids = self.directory.uids(names, deadline).await?;
        for ((kind, _), uid) in names.iter().zip(&mut uids) {
            if *kind != UidKind::Metric && uid.is_none() {
                *uid = Uid::from_number(0, self.widths.get(*kind)).ok();
            }
        }
        Ok(uids)
    }

    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError> {
        let names = self.directory.names(kind, uids, deadline).await?;
        if kind == UidKind::Metric {
            for (uid, name) in uids.iter().zip(&names) {
                let checked = self.scope.check_uid(uid, name.as_deref());
                checked.map_err(|refusal| NameError::Refused {
                    metric: ("uid", uid.to_string()),
                    detail: refusal.to_string(),
                })?;
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
