use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn client(number: u8) -> ClientId {
    ClientId::Address(Ipv4Addr::new(10, 0, 0, number).into())
}

/// Serves the next item, which takes `millis`.
fn serve<T>(queue: &mut FairQueue<T>, millis: u64) -> Option<(ClientId, T)> {
    let (client, item) = queue.pop()?;
    queue.charge(client, Duration::from_millis(millis));
    queue.end(client);
    Some((client, item))
}

#[test]
fn serves_the_items_of_a_client_in_order() {
    let mut queue = FairQueue::default();
    for item in 0..3 {
        queue.push(client(1), item);
    }
    queue.push_front(client(1), 9);
    let served: Vec<i32> = std::iter::from_fn(|| serve(&mut queue, 1))
        .map(|served| served.1)
        .collect();
    assert_eq!(served, [9, 0, 1, 2]);
}

#[test]
fn one_item_is_served_after_one_of_sixty_four() {
    let mut queue = FairQueue::default();
    for item in 0..64 {
        queue.push(client(1), item);
    }
    for _ in 0..10 {
        serve(&mut queue, 5);
    }
    let (heavy, _) = queue.pop().unwrap();
    queue.push(client(2), 100);
    assert!(
        !queue.has_priority_over(heavy),
        "nothing is charged for the running item"
    );
    queue.charge(heavy, Duration::from_millis(5));
    assert!(queue.has_priority_over(heavy));
    queue.end(heavy);
    assert_eq!(serve(&mut queue, 1), Some((client(2), 100)));
}

#[test]
fn clients_share_time_and_not_items() {
    let mut queue = FairQueue::default();
    for item in 0..100 {
        queue.push(client(1), item);
        queue.push(client(2), item);
    }
    let mut counts = HashMap::new();
    for _ in 0..55 {
        let (served, _) = queue.pop().unwrap();
        let millis = if served == client(1) { 10 } else { 1 };
        queue.charge(served, Duration::from_millis(millis));
        queue.end(served);
        *counts.entry(served).or_insert(0) += 1;
    }
    assert_eq!(counts[&client(1)], 5);
    assert_eq!(counts[&client(2)], 50);
}

#[test]
fn a_client_that_was_away_earns_nothing() {
    let mut queue = FairQueue::default();
    for item in 0..100 {
        queue.push(client(1), item);
    }
    for _ in 0..50 {
        serve(&mut queue, 10);
    }
    for item in 0..100 {
        queue.push(client(2), item);
    }
    let served: Vec<ClientId> = (0..20).map(|_| serve(&mut queue, 10).unwrap().0).collect();
    let first = served.iter().filter(|served| **served == client(1)).count();
    assert!((9..=11).contains(&first), "{served:?}");
}

/// A client that sends its next job after the end of the last one pays for the last one.
#[test]
fn a_client_that_leaves_with_debts_comes_back_with_them() {
    let mut queue = FairQueue::default();
    queue.push(client(1), 0);
    for item in 0..100 {
        queue.push(client(2), item);
    }
    assert_eq!(serve(&mut queue, 100).unwrap().0, client(1));
    for _ in 0..50 {
        queue.push(client(1), 1);
        assert_eq!(serve(&mut queue, 1).unwrap().0, client(2));
    }
}

#[test]
fn a_removed_item_is_not_served() {
    let mut queue = FairQueue::default();
    let first = queue.push(client(1), 1);
    let second = queue.push(client(2), 2);
    assert_eq!(queue.remove(client(1), first), Some(1));
    assert_eq!(queue.remove(client(1), second), None);
    assert_eq!(serve(&mut queue, 1), Some((client(2), 2)));
    assert_eq!(queue.remove(client(2), second), None);
    assert!(queue.pop().is_none());
}

#[test]
fn idle_clients_are_forgotten() {
    let mut queue = FairQueue::default();
    queue.push(ClientId::Local, 0);
    for number in 0..200_u8 {
        queue.push(client(number), 1);
        queue.push(ClientId::Local, 0);
        serve(&mut queue, 1);
        serve(&mut queue, 1);
    }
    assert!(queue.clients.len() <= 2 * KEPT_CLIENTS, "{}", queue.clients.len());
    while serve(&mut queue, 1).is_some() {}
    assert!(queue.clients.is_empty());
}

/// The longest item of the property test, in milliseconds.
const LONGEST: u64 = 50;

#[derive(Clone, Debug)]
enum Step {
    Push(u8),
    PushFront(u8),
    /// Removes a waiting item.
    Remove(prop::sample::Index),
    /// Serves an item that takes this number of milliseconds.
    Serve(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8).prop_map(Step::Push),
        1 => (0..6_u8).prop_map(Step::PushFront),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
        5 => (0..=LONGEST).prop_map(Step::Serve),
    ]
}

proptest! {
    /// Each item is served or removed, once. While a client waits, no other client is served for longer than the debt
    /// of the one that waits and an item: twice the longest item.
    #[test]
    fn no_item_is_lost_and_no_client_starves(steps in prop::collection::vec(step(), 0..400)) {
        let mut queue = FairQueue::default();
        let mut waiting: Vec<(ClientId, u64, ItemId)> = Vec::new();
        // The time that other clients are served while a client waits: by the waiting client and the served one.
        let mut got: HashMap<(ClientId, ClientId), u64> = HashMap::new();
        let mut number = 0;
        let drain = std::iter::repeat_n(Step::Serve(LONGEST), steps.len());
        for step in steps.iter().cloned().chain(drain) {
            number += 1;
            match step {
                Step::Push(of) => {
                    let id = queue.push(client(of), number);
                    waiting.push((client(of), number, id));
                }
                Step::PushFront(of) => {
                    let id = queue.push_front(client(of), number);
                    waiting.push((client(of), number, id));
                }
                Step::Remove(index) if !waiting.is_empty() => {
                    let (of, item, id) = waiting.remove(index.index(waiting.len()));
                    prop_assert_eq!(queue.remove(of, id), Some(item));
                    // A client without items waits no longer.
                    got.retain(|(waits, _), _| waiting.iter().any(|(other, ..)| other == waits));
                }
                Step::Remove(_) => {}
                Step::Serve(millis) => {
                    let served = serve(&mut queue, millis);
                    prop_assert_eq!(served.is_none(), waiting.is_empty());
                    let Some((of, item)) = served else { continue };
                    let index = waiting.iter().position(|(_, other, _)| *other == item);
                    waiting.remove(index.expect("an item is served once"));
                    got.retain(|(waits, _), _| *waits != of && waiting.iter().any(|(other, ..)| other == waits));
                    let mut clients: Vec<ClientId> = waiting.iter().map(|(other, ..)| *other).collect();
                    clients.sort_unstable_by_key(|client| format!("{client:?}"));
                    clients.dedup();
                    for waits in clients.into_iter().filter(|waits| *waits != of) {
                        let sum = got.entry((waits, of)).or_default();
                        *sum += millis;
                        prop_assert!(*sum <= 2 * LONGEST, "{:?} got {} ms while {:?} waits", of, sum, waits);
                    }
                }
            }
        }
        prop_assert!(waiting.is_empty());
        prop_assert!(queue.clients.is_empty(), "an idle queue keeps nothing");
    }
}
