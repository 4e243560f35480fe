//! A queue for each client; the client that has used the least time is served next.
//!
//! Start-time fair queueing: a client has a *used time*, which grows by what its items took. A client that comes, or
//! comes again, begins at the used time of the client that was served last: it is served within one item of each other
//! client, and earns nothing by having been away. Items of one client are in order of arrival.
//!
//! The queue has no clock: its user says what an item took.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use crate::ClientId;

/// Clients without waiting items that are kept before the first search for those that can be forgotten.
const KEPT_CLIENTS: usize = 64;

/// Items in queues by client.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    clients: HashMap<ClientId, Client<T>>,
    /// Clients with waiting items, by used time; of equal ones, the client that was served or came first.
    order: BTreeMap<Place, ClientId>,
    last_arrival: u64,
    /// The used time of the client that was served last.
    now: Duration,
    /// Items that were served and have not ended.
    running: usize,
    /// The number of clients at which idle ones are forgotten.
    forgets_at: usize,
}

/// The place of a client in the order: its used time, and when it got the place.
type Place = (Duration, u64);

#[derive(Debug)]
struct Client<T> {
    items: VecDeque<(ItemId, T)>,
    used: Duration,
    /// Its place in the order; `None`: it has no waiting items.
    place: Option<Place>,
    running: usize,
}

/// The number of a waiting item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemId(u64);

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            clients: HashMap::new(),
            order: BTreeMap::new(),
            last_arrival: 0,
            now: Duration::ZERO,
            running: 0,
            forgets_at: KEPT_CLIENTS,
        }
    }
}

impl<T> FairQueue<T> {
    /// Adds an item behind the other items of its client.
    pub(crate) fn push(&mut self, client: ClientId, item: T) -> ItemId {
        self.insert(client, item, VecDeque::push_back)
    }

    /// Adds an item that goes on with an earlier one, before the other items of its client.
    pub(crate) fn push_front(&mut self, client: ClientId, item: T) -> ItemId {
        self.insert(client, item, VecDeque::push_front)
    }

    fn insert(
        &mut self,
        client: ClientId,
        item: T,
        insert: impl FnOnce(&mut VecDeque<(ItemId, T)>, (ItemId, T)),
    ) -> ItemId {
        let id = ItemId(self.next_arrival());
        let now = self.now;
        let state = self.clients.entry(client).or_insert_with(|| Client {
            items: VecDeque::new(),
            used: now,
            place: None,
            running: 0,
        });
        insert(&mut state.items, (id, item));
        if state.place.is_none() {
            state.used = state.used.max(now);
            let place = (state.used, id.0);
            state.place = Some(place);
            self.order.insert(place, client);
        }
        id
    }

    /// Takes the next item, of the client that has used the least time. [`FairQueue::end`] must follow.
    pub(crate) fn pop(&mut self) -> Option<(ClientId, T)> {
        let (place, client) = self.order.pop_first()?;
        self.now = self.now.max(place.0);
        let arrival = self.next_arrival();
        let state = self.clients.get_mut(&client)?;
        let (_, item) = state.items.pop_front()?;
        state.running += 1;
        self.running += 1;
        state.place = (!state.items.is_empty()).then_some((state.used, arrival));
        if let Some(place) = state.place {
            self.order.insert(place, client);
        }
        Some((client, item))
    }

    /// Adds to the used time of a client.
    pub(crate) fn charge(&mut self, client: ClientId, time: Duration) {
        let arrival = self.next_arrival();
        let Some(state) = self.clients.get_mut(&client) else {
            return;
        };
        state.used += time;
        if let Some(place) = &mut state.place {
            self.order.remove(place);
            *place = (state.used, arrival);
            self.order.insert(*place, client);
        }
    }

    /// Notes that an item of a client has ended, or waits again.
    pub(crate) fn end(&mut self, client: ClientId) {
        self.running -= 1;
        if let Some(state) = self.clients.get_mut(&client) {
            state.running -= 1;
        }
        self.forget();
    }

    /// Forgets clients that have neither items nor debts, now and then.
    fn forget(&mut self) {
        if self.running == 0 && self.order.is_empty() {
            // Used times only order clients that want the threads at the same time.
            *self = Self {
                last_arrival: self.last_arrival,
                ..Self::default()
            };
        } else if self.clients.len() >= self.forgets_at {
            // A client that is behind has to be known: it would begin anew with each item.
            let now = self.now;
            self.clients
                .retain(|_, state| state.running > 0 || state.place.is_some() || state.used > now);
            self.forgets_at = (2 * self.clients.len()).max(KEPT_CLIENTS);
        }
    }

    /// Whether another client has used less time than this one, and has waiting items.
    pub(crate) fn has_priority_over(&self, client: ClientId) -> bool {
        let used = self.clients.get(&client).map_or(self.now, |state| state.used);
        let next = self.order.first_key_value();
        next.is_some_and(|(place, next)| *next != client && place.0 < used)
    }

    /// Removes an item that still waits.
    pub(crate) fn remove(&mut self, client: ClientId, id: ItemId) -> Option<T> {
        let state = self.clients.get_mut(&client)?;
        let index = state.items.iter().position(|(other, _)| *other == id)?;
        let (_, item) = state.items.remove(index)?;
        if state.items.is_empty()
            && let Some(place) = state.place.take()
        {
            self.order.remove(&place);
            self.forget();
        }
        Some(item)
    }

    /// Places are unique.
    const fn next_arrival(&mut self) -> u64 {
        self.last_arrival += 1;
        self.last_arrival
    }
}

#[cfg(test)]
mod tests;
