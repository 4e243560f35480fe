//! Resolves the names of points to series.

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use oxtsdb_metadata::uids::series::{Requested, Series, SeriesRef, SeriesText};
use oxtsdb_metadata::uids::series_cache::SeriesCache;
use oxtsdb_metadata::uids::{UidRejection, Uids, UidsError};
use oxtsdb_schema::name::excerpt;
use oxtsdb_schema::{MetricUid, Name, TagkUid, TagvUid, Tsuid, Uid, UidKind};
use smallvec::SmallVec;

use super::{NamePlace, PointErrorReason};

/// A series, or why it was not resolved; shared by all points of it.
pub type Resolved = Result<Series, Arc<PointErrorReason>>;

/// The series of a batch.
#[derive(Debug)]
pub struct Resolution {
    /// In the order in which they were requested.
    pub series: Vec<Resolved>,
    /// Set if the UID service was unavailable. Some series are [`PointErrorReason::Unresolved`] then;
    /// cached series are not affected.
    pub outage: Option<UidsError>,
}

/// Resolves series: from the cache, the others with one call to the UID service.
#[derive(Debug)]
pub(super) struct Resolver {
    pub(super) uids: Uids,
    pub(super) cache: Arc<SeriesCache>,
    pub(super) max_tags: usize,
}

impl Resolver {
    /// The cached series of these texts, in their order.
    pub(super) fn known(&self, texts: &[SeriesText<'_>]) -> Vec<Option<Series>> {
        self.cache.advance_clock();
        self.cache.get_all(texts)
    }

    /// The requested series, in their order.
    ///
    /// Names without a UID are assigned one, if the deployment does so on write, in the order of the points: the
    /// metric, then key and value of each tag. A point with an invalid name has none assigned. While the UID service is
    /// unavailable, series that are not in the cache are [`PointErrorReason::Unresolved`].
    ///
    /// # Errors
    ///
    /// [`UidsError::DeadlineExceeded`], and permanent errors of the service.
    pub(super) async fn resolve<'a>(
        &self,
        requested: impl ExactSizeIterator<Item = Requested<'a>> + Send,
        deadline: Option<Instant>,
    ) -> Result<Resolution, UidsError> {
        self.cache.advance_clock();
        let mut buffer = Vec::with_capacity(256);
        let mut results: Vec<Option<Resolved>> = Vec::with_capacity(requested.len());
        let mut missing: Vec<SeriesRef<'a>> = Vec::new();
        // The index of each missing point, and the position of its series in `missing`.
        let mut waiting: Vec<(usize, usize)> = Vec::new();
        let mut places: HashMap<SeriesRef<'a>, usize> = HashMap::new();
        for (index, requested) in requested.enumerate() {
            let series = match requested {
                Requested::Known(series) => {
                    results.push(Some(Ok(series)));
                    continue;
                }
                Requested::Series(series) => series,
            };
            let cached = self.cache.get(series.key(&mut buffer));
            if cached.is_none() {
                let place = *places.entry(series).or_insert_with(|| {
                    missing.push(series);
                    missing.len() - 1
                });
                waiting.push((index, place));
            }
            results.push(cached.map(Ok));
        }
        self.cache.count(results.len() - waiting.len(), waiting.len());
        let mut outage = None;
        if !missing.is_empty() {
            let mark = self.uids.changes().mark();
            let (mut resolved, away) = self.resolve_missing(&missing, deadline).await?;
            outage = away;
            for (series, resolved) in missing.iter().zip(&mut resolved) {
                if let Ok(resolved) = resolved {
                    let insert = || self.cache.insert(series.key(&mut buffer), resolved);
                    if let Some(cached) = self.uids.changes().unless_changed(mark, insert) {
                        *resolved = cached;
                    }
                }
            }
            for (index, place) in waiting {
                results[index] = Some(resolved[place].clone());
            }
        }
        Ok(Resolution {
            series: results.into_iter().flatten().collect(),
            outage,
        })
    }

    async fn resolve_missing(
        &self,
        series: &[SeriesRef<'_>],
        deadline: Option<Instant>,
    ) -> Result<(Vec<Resolved>, Option<UidsError>), UidsError> {
        let mut resolved: Vec<Option<Resolved>> = Vec::with_capacity(series.len());
        let mut named = Vec::new();
        let mut numbered = Vec::new();
        for (index, series) in series.iter().enumerate() {
            let checked = match *series {
                SeriesRef::Names { metric, tags }
                | SeriesRef::Text {
                    text: SeriesText { metric, .. },
                    tags,
                } => self.check_names(metric, tags).map(|()| {
                    named.push(NamedSeries { index, metric, tags });
                }),
                SeriesRef::Tsuid(bytes) => self.check_tsuid(bytes).map(|tsuid| numbered.push((index, tsuid))),
            };
            resolved.push(checked.err().map(|reason| Err(Arc::new(reason))));
        }
        // One reason for all: neighbouring points with it are one error.
        let unresolved = |error: &UidsError| Arc::new(PointErrorReason::Unresolved(error.clone()));
        let (tsuids, mut outage) = self.assign(&named, deadline).await?;
        let away = outage.as_ref().map(unresolved);
        for (named, tsuid) in named.iter().zip(tsuids) {
            resolved[named.index] = Some(match (tsuid, &away) {
                (Err(PointErrorReason::Unresolved(_)), Some(away)) => Err(Arc::clone(away)),
                (tsuid, _) => self.series(tsuid),
            });
        }
        match self.check_uids(&numbered, deadline).await {
            Ok(checked) => {
                for ((index, tsuid), checked) in numbered.into_iter().zip(checked) {
                    resolved[index] = Some(self.series(checked.map(|()| tsuid)));
                }
            }
            Err(error @ (UidsError::Unavailable { .. } | UidsError::Busy { .. })) => {
                let reason = unresolved(&error);
                for (index, _) in numbered {
                    resolved[index] = Some(Err(Arc::clone(&reason)));
                }
                outage = Some(error);
            }
            Err(error) => return Err(error),
        }
        Ok((resolved.into_iter().flatten().collect(), outage))
    }

    fn series(&self, tsuid: Result<Tsuid, PointErrorReason>) -> Resolved {
        let tsuid = tsuid.map_err(Arc::new)?;
        Ok(Series::new(&tsuid))
    }

    fn check_names(&self, metric: &str, tags: &[(&str, &str)]) -> Result<(), PointErrorReason> {
        if tags.is_empty() {
            return Err(PointErrorReason::NoTags);
        }
        self.check_tag_count(tags.len())?;
        let rules = self.uids.name_rules();
        let check = |name: &str, place: &dyn Fn() -> NamePlace| match Name::parse(name, rules) {
            Ok(_) => Ok(()),
            Err(error) => Err(PointErrorReason::InvalidName {
                place: place(),
                name: excerpt(name),
                error,
            }),
        };
        check(metric, &|| NamePlace::Metric)?;
        for (index, &(tagk, tagv)) in tags.iter().enumerate() {
            check(tagk, &|| NamePlace::Tagk { tagv: excerpt(tagv) })?;
            check(tagv, &|| NamePlace::Tagv { tagk: excerpt(tagk) })?;
            if let Some((_, first)) = tags[..index].iter().find(|(earlier, _)| *earlier == tagk) {
                return Err(PointErrorReason::DuplicateTagk {
                    tagk: excerpt(tagk),
                    first: excerpt(first),
                    second: excerpt(tagv),
                });
            }
        }
        Ok(())
    }

    fn check_tag_count(&self, count: usize) -> Result<(), PointErrorReason> {
        if count > self.max_tags {
            return Err(PointErrorReason::TooManyTags {
                count,
                max: self.max_tags,
            });
        }
        Ok(())
    }

    fn check_tsuid(&self, bytes: &[u8]) -> Result<Tsuid, PointErrorReason> {
        let widths = self.uids.widths();
        let tsuid = Tsuid::from_bytes(bytes, widths).map_err(PointErrorReason::InvalidTsuid)?;
        self.check_tag_count(tsuid.tags(widths).len())?;
        Ok(tsuid)
    }

    /// Checks that all UIDs of each TSUID have names, with one call for each kind. Queries could not find rows of
    /// unassigned UIDs.
    async fn check_uids(
        &self,
        tsuids: &[(usize, Tsuid)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<(), PointErrorReason>>, UidsError> {
        let widths = self.uids.widths();
        let mut checked = vec![Ok(()); tsuids.len()];
        for kind in UidKind::ALL {
            let mut uids: Vec<Uid> = Vec::new();
            let mut owners: Vec<usize> = Vec::new();
            for (owner, (_, tsuid)) in tsuids.iter().enumerate() {
                match kind {
                    UidKind::Metric => uids.push(tsuid.metric(widths).uid()),
                    UidKind::Tagk => uids.extend(tsuid.tags(widths).map(|(tagk, _)| tagk.uid())),
                    UidKind::Tagv => uids.extend(tsuid.tags(widths).map(|(_, tagv)| tagv.uid())),
                }
                owners.resize(uids.len(), owner);
            }
            let names = self.uids.names_for_write(kind, &uids, deadline).await?;
            for ((uid, owner), name) in uids.into_iter().zip(owners).zip(names) {
                if name.is_none() && checked[owner].is_ok() {
                    checked[owner] = Err(PointErrorReason::UnknownUid { kind, uid });
                }
            }
        }
        Ok(checked)
    }

    /// The TSUIDs of checked names.
    ///
    /// Kinds that the deployment does not assign on write are looked up first: if one of their names is unknown, the
    /// other names of the point must not be assigned. Usually there is no such kind, and one call is enough. While
    /// the service is unavailable, series with a name that is not cached are unresolved.
    async fn assign(
        &self,
        series: &[NamedSeries<'_>],
        deadline: Option<Instant>,
    ) -> Result<(Vec<Result<Tsuid, PointErrorReason>>, Option<UidsError>), UidsError> {
        let mut rejected: Vec<Option<PointErrorReason>> = vec![None; series.len()];
        let mut known: HashMap<(UidKind, &str), Uid> = HashMap::new();
        let mut outage = None;
        for on_write in [false, true] {
            let mut requested: Vec<(UidKind, &str)> = Vec::new();
            let mut owners: Vec<(usize, NamePosition)> = Vec::new();
            for (owner, named) in series
                .iter()
                .enumerate()
                .filter(|(owner, _)| rejected[*owner].is_none())
            {
                for (position, kind, name) in named.names() {
                    if self.uids.auto_creates(kind) == on_write {
                        requested.push((kind, name));
                        owners.push((owner, position));
                    }
                }
            }
            if requested.is_empty() {
                continue;
            }
            let tag_key = |index: usize| {
                let (owner, position) = owners.get(index)?;
                series.get(*owner)?.tag_key(*position)
            };
            let uids = match self.uids.assign_for(&requested, tag_key, deadline).await {
                Ok(uids) => uids,
                Err(error @ (UidsError::Unavailable { .. } | UidsError::Busy { .. })) => {
                    for (name, (owner, _)) in requested.into_iter().zip(owners) {
                        match self.uids.cached(name.0, name.1) {
                            Some(uid) => {
                                known.insert(name, uid);
                            }
                            None => rejected[owner] = Some(PointErrorReason::Unresolved(error.clone())),
                        }
                    }
                    outage = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for ((name, (owner, position)), uid) in requested.into_iter().zip(owners).zip(uids) {
                match uid {
                    Ok(uid) => {
                        known.insert(name, uid);
                    }
                    Err(rejection) => {
                        rejected[owner].get_or_insert_with(|| series[owner].rejection(position, rejection));
                    }
                }
            }
        }
        let tsuids = series
            .iter()
            .zip(rejected)
            .map(|(named, rejected)| match rejected {
                Some(reason) => Err(reason),
                None => named.tsuid(&known),
            });
        Ok((tsuids.collect(), outage))
    }
}

/// A series with valid names that is in no cache.
struct NamedSeries<'a> {
    /// Its position among the missing series.
    index: usize,
    metric: &'a str,
    tags: &'a [(&'a str, &'a str)],
}

/// The position of a name in a series.
#[derive(Clone, Copy)]
enum NamePosition {
    Metric,
    Tagk(usize),
    Tagv(usize),
}

impl<'a> NamedSeries<'a> {
    /// The names in the order of assignment.
    fn names(&self) -> impl Iterator<Item = (NamePosition, UidKind, &'a str)> + use<'a> {
        let metric = (NamePosition::Metric, UidKind::Metric, self.metric);
        let tags = self.tags.iter().enumerate().flat_map(|(index, &(tagk, tagv))| {
            [
                (NamePosition::Tagk(index), UidKind::Tagk, tagk),
                (NamePosition::Tagv(index), UidKind::Tagv, tagv),
            ]
        });
        std::iter::once(metric).chain(tags)
    }

    /// The tag key of a tag value.
    fn tag_key(&self, position: NamePosition) -> Option<&'a str> {
        match position {
            NamePosition::Metric | NamePosition::Tagk(_) => None,
            NamePosition::Tagv(index) => self.tags.get(index).map(|(tagk, _)| *tagk),
        }
    }

    fn rejection(&self, position: NamePosition, rejection: UidRejection) -> PointErrorReason {
        let (place, name) = match position {
            NamePosition::Metric => (NamePlace::Metric, self.metric),
            NamePosition::Tagk(index) => {
                let (tagk, tagv) = self.tags[index];
                (NamePlace::Tagk { tagv: excerpt(tagv) }, tagk)
            }
            NamePosition::Tagv(index) => {
                let (tagk, tagv) = self.tags[index];
                (NamePlace::Tagv { tagk: excerpt(tagk) }, tagv)
            }
        };
        PointErrorReason::NoUid {
            place,
            name: excerpt(name),
            rejection,
        }
    }

    fn tsuid(&self, known: &HashMap<(UidKind, &str), Uid>) -> Result<Tsuid, PointErrorReason> {
        let unknown = |place, name: &str| PointErrorReason::NoUid {
            place,
            name: excerpt(name),
            rejection: UidRejection::Other {
                detail: "the UID service returned no result for it".to_owned(),
            },
        };
        let metric = known
            .get(&(UidKind::Metric, self.metric))
            .ok_or_else(|| unknown(NamePlace::Metric, self.metric))?;
        let mut tags: SmallVec<[(TagkUid, TagvUid); 8]> = SmallVec::new();
        for &(tagk, tagv) in self.tags {
            let key = known
                .get(&(UidKind::Tagk, tagk))
                .ok_or_else(|| unknown(NamePlace::Tagk { tagv: excerpt(tagv) }, tagk))?;
            let value = known
                .get(&(UidKind::Tagv, tagv))
                .ok_or_else(|| unknown(NamePlace::Tagv { tagk: excerpt(tagk) }, tagv))?;
            tags.push((TagkUid::new(*key), TagvUid::new(*value)));
        }
        Tsuid::new(MetricUid::new(*metric), &mut tags).map_err(PointErrorReason::InvalidTsuid)
    }
}
