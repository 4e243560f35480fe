//! Resolves series for a caller with rights to some metrics only.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_access::MetricScope;
use oxtsdb_metadata::uids::UidsError;
use oxtsdb_metadata::uids::series::{Requested, SeriesRef, SeriesText};
use oxtsdb_schema::{Tsuid, Uid, UidKind};

use super::PointErrorReason;
use super::resolve::{Resolution, Resolved, Resolver};

impl Resolver {
    /// As [`Resolver::resolve`]; series of metrics outside `scope` are [`PointErrorReason::Refused`], and none of their
    /// names is assigned a UID. Known series have been checked.
    pub(super) async fn resolve_limited<'a>(
        &self,
        requested: impl ExactSizeIterator<Item = Requested<'a>> + Send,
        scope: &MetricScope,
        deadline: Option<Instant>,
    ) -> Result<Resolution, UidsError> {
        let requested: Vec<Requested<'a>> = requested.collect();
        if requested
            .iter()
            .all(|series| matches!(series, Requested::Known(_)))
        {
            return self.resolve(requested.into_iter(), deadline).await;
        }
        let refused = self.refused(&requested, scope, deadline).await?;
        let is_served = refused.iter().map(Option::is_none);
        let served = requested.into_iter().zip(is_served);
        let served: Vec<_> = served
            .filter_map(|(series, is_served)| is_served.then_some(series))
            .collect();
        let Resolution { series, outage } = self.resolve(served.into_iter(), deadline).await?;
        let mut resolved = series.into_iter();
        let in_order = refused.into_iter().map(|refused| match refused {
            Some(reason) => Err(reason),
            None => resolved
                .next()
                .unwrap_or_else(|| Err(Arc::new(PointErrorReason::NoSeries))),
        });
        let series: Vec<Resolved> = in_order.collect();
        Ok(Resolution { series, outage })
    }

    /// Of each series, why it is refused.
    async fn refused(
        &self,
        requested: &[Requested<'_>],
        scope: &MetricScope,
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<PointErrorReason>>>, UidsError> {
        let refused_by = |refusal| Arc::new(PointErrorReason::Refused(refusal));
        let check = |metric: &str| scope.check(metric).err().map(refused_by);
        let mut refused = Vec::with_capacity(requested.len());
        // The metrics of TSUIDs are looked up.
        let (mut places, mut metrics): (Vec<usize>, Vec<Uid>) = Default::default();
        // Neighbours with one metric share the reason.
        let mut last: Option<(&str, Option<Arc<PointErrorReason>>)> = None;
        for (place, series) in requested.iter().enumerate() {
            refused.push(match series {
                Requested::Known(_) => None,
                Requested::Series(
                    SeriesRef::Names { metric, .. }
                    | SeriesRef::Text {
                        text: SeriesText { metric, .. },
                        ..
                    },
                ) => match &last {
                    Some((same, reason)) if same == metric => reason.clone(),
                    _ => {
                        let reason = check(metric);
                        last = Some((metric, reason.clone()));
                        reason
                    }
                },
                Requested::Series(SeriesRef::Tsuid(bytes)) => {
                    let widths = self.uids.widths();
                    // Bytes that are no TSUID are rejected as such.
                    if let Ok(tsuid) = Tsuid::from_bytes(bytes, widths) {
                        places.push(place);
                        metrics.push(tsuid.metric(widths).uid());
                    }
                    None
                }
            });
        }
        if metrics.is_empty() {
            return Ok(refused);
        }
        match self
            .uids
            .names_for_write(UidKind::Metric, &metrics, deadline)
            .await
        {
            Ok(names) => {
                for ((place, uid), name) in places.into_iter().zip(&metrics).zip(names) {
                    refused[place] = scope.check_uid(uid, name.as_deref()).err().map(refused_by);
                }
            }
            Err(error @ (UidsError::Unavailable { .. } | UidsError::Busy { .. })) => {
                let reason = Arc::new(PointErrorReason::Unresolved(error));
                for place in places {
                    refused[place] = Some(Arc::clone(&reason));
                }
            }
            Err(error) => return Err(error),
        }
        Ok(refused)
    }
}
