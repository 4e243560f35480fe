//! Which TSUIDs match a selector.

use std::sync::Arc;

use oxtsdb_point_store::TagTest;
use oxtsdb_row_store::Scan;
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, UidWidths};

/// A tag that a series must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TagCondition {
    /// `None`: any key.
    pub(super) tagk: Option<TagkUid>,
    /// Empty: any value.
    pub(super) tagvs: Vec<TagvUid>,
}

/// A resolved selector. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SeriesMatcher {
    widths: UidWidths,
    metric: Option<MetricUid>,
    /// Their values ascend.
    conditions: Arc<[TagCondition]>,
}

impl SeriesMatcher {
    pub(super) fn new(
        widths: UidWidths,
        metric: Option<MetricUid>,
        mut conditions: Vec<TagCondition>,
    ) -> Self {
        // Every series has a tag.
        conditions.retain(|condition| condition.tagk.is_some() || !condition.tagvs.is_empty());
        for condition in &mut conditions {
            condition.tagvs.sort_unstable();
            condition.tagvs.dedup();
        }
        Self {
            widths,
            metric,
            conditions: conditions.into(),
        }
    }

    /// The metric of all matching series; `None`: any.
    pub(super) const fn metric(&self) -> Option<MetricUid> {
        self.metric
    }

    /// Whether tags narrow the series down.
    pub(super) fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Tests that the tags of all matching series pass. Conditions without a tag key are none of them.
    pub(super) fn tag_tests(&self) -> Vec<TagTest> {
        let tests = self.conditions.iter().filter_map(|condition| {
            let tagk = condition.tagk?;
            Some(match &condition.tagvs[..] {
                [] => TagTest::Has(tagk),
                tagvs => TagTest::In(tagk, tagvs.to_vec()),
            })
        });
        tests.collect()
    }

    /// A scan of the rows of table `tsdb-meta` that may match and have keys after `after`.
    pub(super) fn meta_scan(&self, after: &[u8]) -> Scan {
        let scan = match self.metric {
            Some(metric) => Scan::prefix(metric.as_bytes()),
            None => Scan::range([], []),
        };
        if after.is_empty() || after < scan.start.as_slice() {
            return scan;
        }
        scan.resume_after(after)
    }

    /// Whether a series matches.
    pub(super) fn matches(&self, tsuid: &[u8]) -> bool {
        let Some((metric, tags)) = tsuid.split_at_checked(self.widths.metric.bytes()) else {
            return false;
        };
        self.metric.is_none_or(|expected| expected.as_bytes() == metric) && self.matches_tags(tags)
    }

    /// Whether the tags of a series match; `false` if they are not complete pairs.
    pub(super) fn matches_tags(&self, tags: &[u8]) -> bool {
        let pair = self.widths.tag_bytes();
        if tags.is_empty() || !tags.len().is_multiple_of(pair) {
            return false;
        }
        let tagk = self.widths.tagk.bytes();
        self.conditions.iter().all(|condition| {
            tags.chunks_exact(pair).any(|pair| {
                let (key, value) = pair.split_at(tagk);
                condition.tagk.is_none_or(|expected| expected.as_bytes() == key)
                    && (condition.tagvs.is_empty()
                        || condition
                            .tagvs
                            .binary_search_by(|expected| expected.as_bytes().cmp(value))
                            .is_ok())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    fn matcher(metric: Option<u64>, conditions: &[(Option<u64>, &[u64])]) -> SeriesMatcher {
        let width = UidWidth::DEFAULT;
        let conditions = conditions.iter().map(|(tagk, tagvs)| TagCondition {
            tagk: tagk.map(|number| TagkUid::from_number(number, width).unwrap()),
            tagvs: tagvs
                .iter()
                .map(|number| TagvUid::from_number(*number, width).unwrap())
                .collect(),
        });
        let metric = metric.map(|number| MetricUid::from_number(number, width).unwrap());
        SeriesMatcher::new(UidWidths::default(), metric, conditions.collect())
    }

    fn tsuid(numbers: &[u8]) -> Vec<u8> {
        numbers.iter().flat_map(|number| [0, 0, *number]).collect()
    }

    #[test]
    fn all_conditions_hold_for_one_tag_each() {
        // Metric 1 with tags 1=5 and 2=6.
        let series = tsuid(&[1, 1, 5, 2, 6]);
        for (metric, conditions, expected) in [
            (None, &[][..], true),
            (Some(1), &[], true),
            (Some(2), &[], false),
            (None, &[(Some(1), &[][..])], true),
            (None, &[(Some(3), &[])], false),
            (None, &[(None, &[6])], true),
            (None, &[(None, &[7])], false),
            (Some(1), &[(Some(1), &[5])], true),
            (Some(1), &[(Some(1), &[6])], false),
            (Some(1), &[(Some(1), &[7, 6, 5])], true),
            (Some(1), &[(Some(1), &[5]), (None, &[6])], true),
            (Some(1), &[(Some(1), &[5]), (None, &[7])], false),
            (Some(1), &[(Some(2), &[6]), (Some(1), &[5])], true),
            (None, &[(None, &[])], true),
        ] {
            let matcher = matcher(metric, conditions);
            assert_eq!(matcher.matches(&series), expected, "{metric:?} {conditions:?}");
        }
    }

    #[test]
    fn keys_that_are_no_tsuids_never_match() {
        let all = matcher(None, &[]);
        for key in [&b""[..], &[0, 0], &tsuid(&[1]), &tsuid(&[1, 1]), &[0; 10]] {
            assert!(!all.matches(key), "{key:?}");
        }
    }

    #[test]
    fn a_scan_begins_behind_the_last_tsuid() {
        let of_metric = matcher(Some(1), &[]);
        let after = tsuid(&[1, 1, 5]);
        assert_eq!(of_metric.meta_scan(&[]).start, tsuid(&[1]));
        assert_eq!(of_metric.meta_scan(&[0]).start, tsuid(&[1]));
        assert_eq!(of_metric.meta_scan(&after).start, [&after[..], &[0]].concat());
        assert_eq!(of_metric.meta_scan(&after).stop, tsuid(&[2]));
        assert!(matcher(None, &[]).meta_scan(&[]).stop.is_empty());
    }
}
