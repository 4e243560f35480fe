use oxtsdb_point_store::memory::MemoryPoints;
use oxtsdb_schema::RowKeyLayout;

use super::*;
use crate::filter::TagMatcher;
use crate::names::NameGeneration;
use crate::plan::selection::matches::MatchCache;
use crate::plan::selection::tag_test::TagTest;
use crate::quirks::Quirks;
use crate::testing::NumberedNames;

fn tagk() -> TagkUid {
    TagkUid::from_bytes(&[0, 0, 1]).unwrap()
}

/// A series of metric 1 with a host, and in one of two data centres.
fn key(host: u8) -> Vec<u8> {
    [
        [0, 0, 1],
        [0, 0, 1],
        [0, 0, host],
        [0, 0, 2],
        [0, 0, host % 2 + 1],
    ]
    .concat()
}

struct Fixture {
    store: Arc<dyn PointStore>,
    directory: NumberedNames,
    compute: ComputePool,
    cache: MatchCache,
    layout: RowKeyLayout,
}

impl Fixture {
    fn new() -> Self {
        let layout = RowKeyLayout::default();
        Self {
            store: Arc::new(MemoryPoints::new(layout.widths)),
            directory: NumberedNames::default(),
            compute: ComputePool::new(1).unwrap(),
            cache: MatchCache::default(),
            layout,
        }
    }

    fn add(&self, hosts: impl Iterator<Item = u8>) {
        for host in hosts {
            self.store.numbers(&[&key(host)]).unwrap();
        }
    }

    /// The hosts that match, and the hosts that had their names requested.
    async fn select(&self, generation: u64, pattern: &str, others: Vec<TagTest>) -> (Vec<u8>, Vec<u64>) {
        let matcher = TagMatcher::parse("wildcard", pattern).unwrap();
        let generation = NameGeneration {
            changes: generation,
            age: 0,
        };
        let matches = self
            .cache
            .get_or_insert(Some(generation), tagk(), &matcher, Quirks::NONE);
        let test = NameTest::new(matcher.predicate(Quirks::NONE).unwrap(), matches);
        let mut tests = others;
        tests.push(TagTest {
            tagk: tagk(),
            test: ValueTest::Name(test),
        });
        let catalogue = Catalogue {
            store: &self.store,
            directory: &self.directory,
            compute: &self.compute,
            widths: &self.layout.widths,
            deadline: None,
        };
        let selection = Selection::from_tests(&self.layout, tests, None);
        let metric = MetricUid::from_bytes(&[0, 0, 1]).unwrap();
        let series = catalogue.by_metric(metric, &selection).await.unwrap();
        let mut key = Vec::new();
        let host = |series: SeriesNumber| {
            self.store.key(series, &mut key);
            key[8]
        };
        let hosts = series.into_iter().map(host).collect();
        let requested = self.directory.take_requested().into_iter().flatten();
        let mut requested: Vec<u64> = requested.map(|uid| uid.number()).collect();
        requested.sort_unstable();
        (hosts, requested)
    }
}

#[tokio::test]
async fn a_name_is_requested_by_one_query_and_again_after_a_change() {
    let fixture = Fixture::new();
    fixture.add(1..=20);
    let select = |generation, pattern| fixture.select(generation, pattern, Vec::new());
    let of_ten = vec![1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19];
    assert_eq!(select(0, "v1*").await, (of_ten.clone(), (1..=20).collect()));
    assert_eq!(select(0, "v1*").await, (of_ten.clone(), vec![]));
    // Most match: the others are excluded.
    assert_eq!(select(0, "v*").await.0, (1..=20).collect::<Vec<_>>());
    fixture.add(21..=21);
    fixture.add(100..=100);
    let with_new = [of_ten, vec![100]].concat();
    assert_eq!(select(0, "v1*").await, (with_new.clone(), vec![21, 100]));
    assert_eq!(select(0, "v*").await.0.len(), 22);
    let (hosts, requested) = select(1, "v1*").await;
    assert_eq!((hosts, requested.len()), (with_new, 22));
}

#[tokio::test]
async fn literal_values_come_first() {
    let fixture = Fixture::new();
    fixture.add(1..=20);
    let one = TagvUid::from_bytes(&[0, 0, 1]).unwrap();
    let of_one = || {
        vec![TagTest {
            tagk: TagkUid::from_bytes(&[0, 0, 2]).unwrap(),
            test: ValueTest::In([one].into_iter().collect()),
        }]
    };
    let (hosts, requested) = fixture.select(0, "v1*", of_one()).await;
    assert_eq!(hosts, [10, 12, 14, 16, 18]);
    assert_eq!(requested, (1..=10).map(|half| half * 2).collect::<Vec<_>>());
    assert_eq!(fixture.select(0, "v1*", of_one()).await, (hosts, vec![]));
    // All others are needed now.
    assert_eq!(fixture.select(0, "v1*", Vec::new()).await.1.len(), 10);
}
