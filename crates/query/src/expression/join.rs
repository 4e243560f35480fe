//! Joins: which series of the operands belong together.
//!
//! ```text
//!   a: host=web01, host=web02      union:         web01 (a, b)   web02 (a, -)   web03 (-, b)
//!   b: host=web01, host=web03      intersection:  web01 (a, b)
//! ```
//!
//! Series belong together that have the same tags, as bytes of UIDs; joined series are in the order of
//! these bytes. Of several series of an operand with the same tags the last counts.
//!
//! Source: OpenTSDB 2.4, `UnionIterator`, `IntersectionIterator`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oxtsdb_schema::Uid;
use oxtsdb_schema::java::sort_as_hash_map;

use super::series::{Origin, Series, Tag};
use crate::{Points, Quirks};

/// How series of operands are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Selects the series that have a result.
    pub operator: SetOperator,
    /// Only the tags that filters name, not all.
    pub query_tags: bool,
    /// The keys of aggregated tags must be the same too.
    pub aggregate_tags: bool,
}

/// Selects the series that have a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperator {
    /// The series of any operand.
    Union,
    /// The series of all operands.
    Intersection,
}

/// The series of a name in an expression.
#[derive(Clone, Debug)]
pub struct Operand<'a> {
    /// The name.
    pub name: &'a str,
    /// Its series.
    pub series: &'a [Series],
    /// Keys of the filters that found them.
    pub query_tags: &'a BTreeSet<Uid>,
}

/// Series that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// For each operand the place of its series.
    pub members: Vec<Option<usize>>,
    /// The members, and the series that lend them their place: place of the operand, place of the series.
    pub all: Vec<(usize, usize)>,
    /// Names of all of them; without points.
    pub series: Series,
}

impl Join {
    /// All series, by all their tags.
    pub const UNION: Self = Self {
        operator: SetOperator::Union,
        query_tags: false,
        aggregate_tags: false,
    };

    /// Joins the series of operands.
    pub fn join(&self, operands: &[Operand<'_>], quirks: Quirks) -> Vec<Joined> {
        type Row = (Vec<Option<usize>>, Vec<(usize, usize)>);
        let mut rows: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
        for (place, operand) in operands.iter().enumerate() {
            for (index, series) in operand.series.iter().enumerate() {
                let (members, all) = rows
                    .entry(self.key(operand, series))
                    .or_insert_with(|| (vec![None; operands.len()], Vec::new()));
                members[place] = Some(index);
                all.push((place, index));
            }
        }
        if self.operator == SetOperator::Intersection {
            rows.retain(|_, (members, _)| members.iter().all(Option::is_some));
        }
        let order = order(operands, quirks);
        rows.into_values()
            .map(|(members, all)| Joined {
                series: together(operands, &members, &order, quirks),
                members,
                all,
            })
            .collect()
    }

    /// The bytes that series which belong together share.
    fn key(&self, operand: &Operand<'_>, series: &Series) -> Vec<u8> {
        let mut key = Vec::new();
        if series.tags.is_empty() {
            return key;
        }
        for (tagk, tag) in &series.tags {
            if !self.query_tags || operand.query_tags.contains(tagk) {
                key.extend_from_slice(tagk.as_bytes());
                key.extend_from_slice(tag.value_uid.as_bytes());
            }
        }
        if self.aggregate_tags {
            for tagk in series.aggregate_tags.keys() {
                key.extend_from_slice(tagk.as_bytes());
            }
        }
        key
    }
}

/// The order in which operands give their names to a joined series.
fn order(operands: &[Operand<'_>], quirks: Quirks) -> Vec<usize> {
    let mut names: Vec<&str> = operands.iter().map(|operand| operand.name).collect();
    if quirks.joined_tags_of_one_operand {
        // Three maps, one made of another: results, operands, values.
        let count = names.len();
        sort_as_hash_map(&mut names, 16);
        sort_as_hash_map(&mut names, count);
        sort_as_hash_map(&mut names, count);
    }
    let place = |name: &str| operands.iter().position(|operand| operand.name == name);
    names.into_iter().filter_map(place).collect()
}

fn together(operands: &[Operand<'_>], members: &[Option<usize>], order: &[usize], quirks: Quirks) -> Series {
    let member = |place: &usize| Some(&operands.get(*place)?.series[(*members.get(*place)?)?]);
    let present: Vec<&Series> = order.iter().filter_map(member).collect();
    let mut tags = if quirks.joined_tags_of_one_operand {
        let first = order.first().and_then(member);
        first.map(|series| series.tags.clone()).unwrap_or_default()
    } else {
        common_tags(&present)
    };
    let mut aggregate_tags: BTreeMap<Uid, Arc<str>> = BTreeMap::new();
    for series in &present {
        aggregate_tags.extend(
            series
                .aggregate_tags
                .iter()
                .map(|(uid, key)| (*uid, Arc::clone(key))),
        );
        if !quirks.joined_tags_of_one_operand {
            let others = series.tags.iter().filter(|(uid, _)| !tags.contains_key(*uid));
            aggregate_tags.extend(others.map(|(uid, tag)| (*uid, Arc::clone(&tag.key))));
        }
    }
    if !quirks.joined_tags_of_one_operand {
        tags.retain(|uid, _| !aggregate_tags.contains_key(uid));
    }
    let metrics = present.iter().flat_map(|series| series.metrics.clone());
    // An alias has no UID, and hides the UIDs of the other series.
    let nameless = quirks.joined_tags_of_one_operand && present.iter().any(|series| series.is_nameless());
    Series {
        metrics: if nameless {
            BTreeMap::new()
        } else {
            metrics.collect()
        },
        alias: None,
        tags,
        aggregate_tags,
        tsuids: present.iter().flat_map(|series| series.tsuids.clone()).collect(),
        query: 0,
        origin: Origin::Combined { uneven: None },
        annotations: None,
        points: Points::default(),
    }
}

/// Tags with the same value in all series.
fn common_tags(series: &[&Series]) -> BTreeMap<Uid, Tag> {
    let Some((first, rest)) = series.split_first() else {
        return BTreeMap::new();
    };
    let same = |(uid, tag): &(&Uid, &Tag)| rest.iter().all(|other| other.tags.get(*uid) == Some(*tag));
    let tags = first.tags.iter().filter(same);
    tags.map(|(uid, tag)| (*uid, tag.clone())).collect()
}
