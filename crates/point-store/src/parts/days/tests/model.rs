//! Random operations beside a map of the newest points: the same points are visible, also after a power loss between
//! any two steps.

use proptest::prelude::*;

use super::*;

const DAYS: i64 = 3;

#[derive(Clone, Debug)]
enum Operation {
    Add(Vec<TestPoint>),
    Delete(Vec<u32>, i64, i64),
    Merge,
    DropBefore(i64),
}

fn instant() -> impl Strategy<Value = i64> {
    // Few instants, so that points meet.
    (0..DAYS, 0_i64..12).prop_map(|(day, step)| day * DAY_MS + step * 7_200_000)
}

fn operation() -> impl Strategy<Value = Operation> {
    let points = prop::collection::vec((0_u32..4, instant(), any::<u64>()), 1..20);
    let series = prop::collection::vec(0_u32..4, 0..3);
    prop_oneof![
        5 => points.prop_map(Operation::Add),
        2 => (series, instant(), instant()).prop_map(|(series, first, last)| Operation::Delete(series, first, last)),
        4 => Just(Operation::Merge),
        1 => (0..DAYS).prop_map(|day| Operation::DropBefore(day * DAY_MS)),
    ]
}

impl Operation {
    fn run(&self, store: &Store) -> Result<(), PointStoreError> {
        match self {
            Self::Add(points) => store.add(points),
            Self::Delete(series, first_ms, last_ms) => store.delete(series, span(*first_ms, *last_ms)),
            Self::Merge => store.merge().map(drop),
            Self::DropBefore(edge_ms) => store.days.drop_before(FIRST_DAY_MS + edge_ms).map(drop),
        }
    }

    fn apply(&self, model: &mut Model) {
        match self {
            Self::Add(points) => model.extend(
                points
                    .iter()
                    .map(|(series, time, value)| ((*series, *time), *value)),
            ),
            Self::Delete(series, first_ms, last_ms) => {
                model.retain(|(of, time), _| !(series.contains(of) && (first_ms..=last_ms).contains(&time)));
            }
            Self::Merge => {}
            Self::DropBefore(edge_ms) => model.retain(|(_, time), _| time >= edge_ms),
        }
    }
}

/// Whether each point is as before or as after an operation.
fn is_between(points: &Model, before: &Model, after: &Model) -> bool {
    let keys = points.keys().chain(before.keys()).chain(after.keys());
    keys.into_iter()
        .all(|key| [before.get(key), after.get(key)].contains(&points.get(key)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn reads_return_the_newest_points(
        operations in prop::collection::vec((operation(), any::<u64>()), 1..25),
    ) {
        let mut store = Store::new();
        let mut model = Model::new();
        for (operation, seed) in operations {
            operation.run(&store).unwrap();
            operation.apply(&mut model);
            prop_assert_eq!(&store.visible(), &model, "{:?}", operation);
            let surviving = match seed % 4 {
                0 => store.disk.kill(),
                1 => store.disk.power_loss(),
                _ => store.disk.power_loss_seeded(seed),
            };
            let reopened = Store::open(surviving).unwrap();
            prop_assert_eq!(&reopened.visible(), &model, "{:?}, reopened", operation);
            prop_assert_eq!(reopened.days.damage(), []);
            if seed % 3 == 0 {
                store = reopened;
            }
        }
        store.merge_all();
        prop_assert_eq!(store.visible(), model);
        let days = store.days.days_in(TimeRange::ALL);
        prop_assert!(days.iter().all(|list| list.parts().len() == 1 && list.tombstones.is_empty()));
    }

    #[test]
    fn an_interrupted_operation_is_done_in_part_or_not(
        operations in prop::collection::vec((operation(), 0_u64..40, any::<u64>()), 1..25),
    ) {
        let mut store = Store::new();
        let mut model = Model::new();
        for (operation, steps, seed) in operations {
            let before = model.clone();
            operation.apply(&mut model);
            store.disk.fail_after(steps);
            let result = operation.run(&store);
            let is_done = result.is_ok();
            let surviving = if seed % 2 == 0 { store.disk.kill() } else { store.disk.power_loss_seeded(seed) };
            store = Store::open(surviving).unwrap();
            let points = store.visible();
            if is_done {
                prop_assert_eq!(&points, &model, "{:?}", operation);
            } else {
                prop_assert!(
                    is_between(&points, &before, &model),
                    "{operation:?}: {points:?} of {before:?} to {model:?}"
                );
            }
            prop_assert_eq!(store.days.damage(), []);
            model = points;
        }
    }

    #[test]
    fn a_failed_operation_leaves_a_store_that_goes_on(
        operations in prop::collection::vec((operation(), 0_u64..30), 1..25),
    ) {
        let store = Store::new();
        let mut model = Model::new();
        for (operation, step) in operations {
            let before = model.clone();
            operation.apply(&mut model);
            store.disk.fail_operation(step, std::io::ErrorKind::StorageFull);
            let result = operation.run(&store);
            store.disk.repair();
            let points = store.visible();
            if result.is_err() {
                prop_assert!(
                    is_between(&points, &before, &model),
                    "{operation:?}: {points:?} of {before:?} to {model:?}"
                );
                model = points;
            }
            prop_assert_eq!(&store.visible(), &model, "{:?}", operation);
        }
        store.merge_all();
        prop_assert_eq!(store.visible(), model);
    }
}
