//! Small histories.

use super::*;

/// Operations of one instant's length, in order.
fn history(actions: Vec<Action>) -> Vec<Operation> {
    let operation = |(index, action): (usize, Action)| Operation {
        start: index as u64 * 10,
        end: index as u64 * 10 + 5,
        action,
    };
    actions.into_iter().enumerate().map(operation).collect()
}

fn create(name: &str, uid: u64) -> Action {
    let name = name.to_owned();
    Action::GetOrCreate {
        name,
        outcome: Some((uid, true)),
    }
}

fn rename(from: &str, to: &str, uid: u64) -> Action {
    let (from, to) = (from.to_owned(), to.to_owned());
    Action::Rename {
        from,
        to,
        outcome: Change::Done(uid),
    }
}

fn delete(name: &str, uid: u64) -> Action {
    let name = name.to_owned();
    Action::Delete {
        name,
        outcome: Change::Done(uid),
    }
}

fn uid_of(name: &str, uid: Option<u64>) -> Action {
    let name = name.to_owned();
    Action::LookupUid { name, uid }
}

fn name_of(uid: u64, name: Option<&str>) -> Action {
    let name = name.map(str::to_owned);
    Action::LookupName { uid, name }
}

#[test]
fn accepts_what_a_correct_service_does() {
    let correct = history(vec![
        create("a", 1),
        uid_of("a", Some(1)),
        rename("a", "b", 1),
        uid_of("a", None),
        name_of(1, Some("b")),
        create("a", 2),
        delete("a", 2),
        rename("b", "a", 1),
        delete("a", 1),
        create("a", 3),
        name_of(1, None),
    ]);
    assert_eq!(check(&correct, 0), Ok(()));
}

#[test]
fn accepts_stale_responses_up_to_the_bound() {
    let stale = history(vec![
        create("a", 1),
        rename("a", "b", 1),
        uid_of("b", Some(1)),
        uid_of("a", Some(1)),
    ]);
    assert_eq!(check(&stale, 15), Ok(()));
    let violation = check(&stale, 14).unwrap_err().to_string();
    assert!(violation.contains("did not have the name `a`"), "{violation}");
}

#[test]
fn accepts_changes_of_unknown_outcome_either_way() {
    let unknown = Action::Rename {
        from: "a".to_owned(),
        to: "b".to_owned(),
        outcome: Change::Unknown(1),
    };
    for name in ["a", "b"] {
        let history = history(vec![create("a", 1), unknown.clone(), name_of(1, Some(name))]);
        assert_eq!(check(&history, 0), Ok(()), "{name}");
    }
    let lost = Action::GetOrCreate {
        name: "a".to_owned(),
        outcome: None,
    };
    assert_eq!(check(&history(vec![lost, uid_of("a", Some(1))]), 0), Ok(()));
}

#[test]
fn accepts_concurrent_changes_in_the_only_order_that_fits() {
    let mut changes = history(vec![create("a", 1), rename("b", "c", 1), rename("a", "b", 1)]);
    changes[1].end = changes[2].end;
    assert_eq!(check(&changes, 0), Ok(()));
    changes[1].end = changes[1].start + 5;
    assert!(
        check(&changes, 0).is_err(),
        "the first ended before the second began"
    );
}

fn watch(events: Vec<Event>) -> Watch {
    let events = events.into_iter().enumerate();
    Watch {
        events: events.map(|(index, event)| (index as u64 * 10, event)).collect(),
        end: 1000,
    }
}

#[test]
fn watches_return_all_changes_in_order() {
    let changes = history(vec![create("a", 1), rename("a", "b", 1), delete("b", 1)]);
    let (uid, name) = (1, |text: &str| text.to_owned());
    let renamed = Event::Renamed {
        uid,
        from: name("a"),
        to: name("b"),
    };
    let deleted = Event::Deleted { uid, name: name("b") };
    let assigned = Event::Assigned { uid, name: name("a") };
    let check = |events: &[&Event]| check_watch(&events_of(events), &changes, 10);
    for correct in [
        vec![&assigned, &renamed, &deleted],
        vec![&renamed, &assigned, &deleted],
        vec![&renamed, &renamed, &deleted, &renamed, &deleted],
        vec![&renamed, &Event::Resync],
    ] {
        assert_eq!(check(&correct), Ok(()), "{correct:?}");
    }
    for wrong in [vec![&renamed], vec![&deleted, &renamed], vec![]] {
        assert!(check(&wrong).is_err(), "{wrong:?}");
    }
}

/// A watch that began with a resynchronisation.
fn events_of(events: &[&Event]) -> Watch {
    let mut all = vec![Event::Resync];
    all.extend(events.iter().map(|event| (*event).clone()));
    watch(all)
}

#[test]
fn rejects_wrong_histories() {
    for (wrong, rule) in [
        (vec![create("a", 1), create("b", 1)], "was assigned 2 times"),
        (vec![create("a", 1), create("a", 2)], "has two UIDs at once"),
        (
            vec![create("a", 1), delete("a", 1), delete("a", 1)],
            "have no order",
        ),
        (
            vec![create("a", 1), delete("a", 1), rename("a", "b", 1)],
            "have no order",
        ),
        (vec![create("a", 1), rename("b", "c", 1)], "have no order"),
        (
            vec![create("a", 1), uid_of("b", Some(1))],
            "did not have the name `b`",
        ),
        (
            vec![create("a", 1), delete("a", 1), uid_of("a", Some(1))],
            "did not have the name `a`",
        ),
        (vec![uid_of("a", Some(1))], "was never assigned"),
        (
            vec![create("a", 1), uid_of("a", None), name_of(1, Some("a"))],
            "the name has a UID",
        ),
        (vec![create("a", 1), name_of(1, None)], "the UID has a name"),
        (
            vec![
                create("a", 1),
                create("b", 2),
                rename("a", "b", 1),
                uid_of("b", Some(1)),
            ],
            "has two UIDs at once",
        ),
    ] {
        let violation = check(&history(wrong.clone()), 0).unwrap_err().to_string();
        assert!(violation.contains(rule), "{wrong:?}: {violation}");
    }
}
