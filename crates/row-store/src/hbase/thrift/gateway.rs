//! The state of the gateways, and the schedule of attempts to reach them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use oxtsdb_resources::Durations;
use parking_lot::{Condvar, Mutex};

use crate::GatewayFigures;

/// The delays between attempts to reach a gateway that is down.
const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(5))
    .without_max_times()
    .with_jitter();

/// The gateways and their states; shared by the workers.
#[derive(Debug)]
pub(super) struct Gateways {
    addresses: Vec<String>,
    states: Mutex<Vec<State>>,
    calls: Vec<Arc<CallCounts>>,
    /// Notified when a gateway comes up and when the store closes.
    changed: Condvar,
}

/// A gateway counts as up until an attempt fails.
#[derive(Debug, Default)]
struct State {
    down: Option<Down>,
    /// When a connection to it last broke.
    suspect_at: Option<Instant>,
}

#[derive(Debug)]
struct Down {
    error: String,
    retry_at: Instant,
    delays: ExponentialBackoff,
}

/// The calls to a gateway.
#[derive(Debug, Default)]
pub(super) struct CallCounts {
    durations: Durations,
    failed: AtomicU64,
}

impl CallCounts {
    /// Counts a call.
    pub(super) fn count(&self, begun: Instant, failed: bool) {
        self.durations.observe_since(begun);
        self.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
    }
}

/// The next step of a worker that needs a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Try this gateway and report the outcome.
    Try(usize),
    /// All gateways are down; the next attempt is due at this time.
    WaitUntil(Instant),
    /// All gateways are down, and the request cannot wait any longer.
    GiveUp,
}

impl Gateways {
    pub(super) fn new(addresses: Vec<String>) -> Self {
        Self {
            calls: addresses.iter().map(|_| Arc::default()).collect(),
            states: Mutex::new(addresses.iter().map(|_| State::default()).collect()),
            addresses,
            changed: Condvar::new(),
        }
    }

    /// The calls to a gateway.
    pub(super) fn calls(&self, gateway: usize) -> &Arc<CallCounts> {
        &self.calls[gateway]
    }

    /// The figures of all gateways.
    pub(super) fn figures(&self) -> Vec<GatewayFigures> {
        let states = self.states.lock();
        let gateways = self.addresses.iter().zip(&self.calls).zip(&*states);
        gateways
            .map(|((address, calls), state)| GatewayFigures {
                address: address.clone(),
                is_up: state.down.is_none(),
                failed: calls.failed.load(Ordering::Relaxed),
                calls: calls.durations.counts(),
            })
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn address(&self, gateway: usize) -> &str {
        &self.addresses[gateway]
    }

    /// Selects a gateway: `home` if it is up, otherwise another one that is up, otherwise, if the request can wait,
    /// one that is due for a retry. Only one worker at a time tries a gateway that is down.
    pub(super) fn advise(&self, home: usize, attempt: Duration, can_wait: bool) -> Advice {
        let mut states = self.states.lock();
        let count = states.len();
        let in_turn = || (0..count).map(|step| (home + step) % count);
        if let Some(up) = in_turn().find(|gateway| states[*gateway].down.is_none()) {
            return Advice::Try(up);
        }
        if !can_wait {
            return Advice::GiveUp;
        }
        let now = Instant::now();
        let mut first = now + attempt;
        for gateway in in_turn() {
            if let Some(down) = &mut states[gateway].down {
                if down.retry_at <= now {
                    down.retry_at = now + attempt;
                    return Advice::Try(gateway);
                }
                first = first.min(down.retry_at);
            }
        }
        Advice::WaitUntil(first)
    }

    /// Whether a worker that left this gateway should try it again; if so, the attempt is reserved for the caller.
    pub(super) fn may_retry(&self, gateway: usize, attempt: Duration) -> bool {
        let now = Instant::now();
        match &mut self.states.lock()[gateway].down {
            None => true,
            Some(down) if down.retry_at <= now => {
                down.retry_at = now + attempt;
                true
            }
            Some(_) => false,
        }
    }

    /// Records a successful attempt.
    pub(super) fn mark_up(&self, gateway: usize) {
        if self.states.lock()[gateway].down.take().is_some() {
            tracing::info!(gateway = self.address(gateway), "HBase Thrift gateway is back");
            self.changed.notify_all();
        }
    }

    /// Records a failed attempt.
    pub(super) fn mark_down(&self, gateway: usize, error: String) {
        let mut states = self.states.lock();
        let state = &mut states[gateway];
        let down = state.down.get_or_insert_with(|| {
            tracing::warn!(
                gateway = self.address(gateway),
                error,
                "HBase Thrift gateway is down"
            );
            Down {
                error: String::new(),
                retry_at: Instant::now(),
                delays: BACKOFF.build(),
            }
        });
        down.error = error;
        down.retry_at = Instant::now() + down.delays.next().unwrap_or_default();
    }

    /// Records a broken connection or a missing response.
    pub(super) fn mark_suspect(&self, gateway: usize) {
        self.states.lock()[gateway].suspect_at = Some(Instant::now());
    }

    /// Whether a connection to the gateway broke after `time`.
    pub(super) fn is_suspect_since(&self, gateway: usize, time: Instant) -> bool {
        self.states.lock()[gateway]
            .suspect_at
            .is_some_and(|suspect_at| suspect_at > time)
    }

    /// Waits until `then` or until a gateway comes up.
    pub(super) fn wait_until(&self, then: Instant) {
        let mut states = self.states.lock();
        if states.iter().all(|state| state.down.is_some()) {
            self.changed.wait_until(&mut states, then);
        }
    }

    /// Wakes all waiting workers.
    pub(super) fn wake(&self) {
        let _states = self.states.lock();
        self.changed.notify_all();
    }

    /// The last error of each gateway, in one line.
    pub(super) fn errors(&self) -> String {
        let states = self.states.lock();
        let errors = self.addresses.iter().zip(states.iter());
        errors
            .map(|(address, state)| match &state.down {
                Some(down) => format!("{address}: {}", down.error),
                None => format!("{address}: not tried"),
            })
            .collect::<Vec<_>>()
            .join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_calls_and_reports_gateways_that_are_down() {
        let gateways = Gateways::new(vec!["a:1".to_owned(), "b:2".to_owned()]);
        gateways.calls(0).count(Instant::now(), false);
        gateways.calls(0).count(Instant::now(), true);
        gateways.mark_down(1, "refused".to_owned());
        let figures = gateways.figures();
        let of = |figures: &GatewayFigures| {
            let calls = figures.calls.counts.iter().sum::<u64>();
            (figures.address.clone(), figures.is_up, calls, figures.failed)
        };
        assert_eq!(of(&figures[0]), ("a:1".to_owned(), true, 2, 1));
        assert_eq!(of(&figures[1]), ("b:2".to_owned(), false, 0, 0));
    }

    const ATTEMPT: Duration = Duration::from_secs(5);

    fn gateways() -> Gateways {
        Gateways::new(["a:1", "b:1", "c:1"].map(str::to_owned).to_vec())
    }

    #[test]
    fn advises_the_home_gateway_then_the_next_one_up() {
        let gateways = gateways();
        assert_eq!(gateways.advise(1, ATTEMPT, true), Advice::Try(1));
        gateways.mark_down(1, "refused".to_owned());
        assert_eq!(gateways.advise(1, ATTEMPT, true), Advice::Try(2));
        gateways.mark_down(2, "refused".to_owned());
        assert_eq!(gateways.advise(1, ATTEMPT, false), Advice::Try(0));
        gateways.mark_up(1);
        assert_eq!(gateways.advise(1, ATTEMPT, true), Advice::Try(1));
    }

    #[test]
    fn probes_down_gateways_one_at_a_time_with_backoff() {
        let gateways = gateways();
        let waits = |gateways: &Gateways| match gateways.advise(0, ATTEMPT, true) {
            Advice::WaitUntil(then) => then,
            other => panic!("{other:?}"),
        };
        for gateway in 0..3 {
            gateways.mark_down(gateway, "refused".to_owned());
        }
        assert_eq!(gateways.advise(0, ATTEMPT, false), Advice::GiveUp);
        let then = waits(&gateways);
        assert!(
            then <= Instant::now() + Duration::from_millis(100),
            "the first pause is short"
        );
        for gateway in 0..3 {
            for _ in 0..20 {
                gateways.mark_down(gateway, "refused again".to_owned());
            }
        }
        let then = waits(&gateways);
        assert!(
            then > Instant::now() + Duration::from_secs(1),
            "later ones are longer"
        );
        assert!(gateways.errors().contains("b:1: refused again"));
        // As if the time of one had come.
        if let Some(down) = &mut gateways.states.lock()[2].down {
            down.retry_at = Instant::now();
        }
        assert_eq!(gateways.advise(0, ATTEMPT, true), Advice::Try(2));
        waits(&gateways);
    }

    #[test]
    fn gateway_is_suspect_after_a_broken_connection() {
        let gateways = gateways();
        let before = Instant::now();
        assert!(!gateways.is_suspect_since(0, before));
        gateways.mark_suspect(0);
        assert!(gateways.is_suspect_since(0, before));
        assert!(!gateways.is_suspect_since(0, Instant::now()));
        assert!(!gateways.is_suspect_since(1, before));
    }
}
