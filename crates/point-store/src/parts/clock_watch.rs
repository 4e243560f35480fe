//! The clock of retention: the wall clock, unless it is further ahead than the store can explain.
//!
//! ```text
//!   wall clock      10:00  10:01  10:21 (set ahead)  …  24 hours later
//!   witness         10:00  10:01  10:02              …  follows the wall clock
//!
//!   wall clock      2026-11-26 10:01   stopped   2027-12-31 (set ahead)   …          confirmed
//!   witness         2026-11-26 10:01             2026-11-26 10:01         advances   follows the wall clock
//! ```
//!
//! The witness is the earliest time that it can be: the last time at which the store saw the clock and believed it, which
//! [file `CLOCK`](super::clock_record) keeps across restarts, and the uptime since then. A clock that is wrong by years
//! must not drop the days of these years. So retention takes the witness for the time while the wall clock is ahead of it:
//!
//! - by [`JUMP_MS`] while the store is open: for [`HELD_MS`], in which an operator can set the clock right;
//! - by more than the retention, at which all points would be too old: until the operator confirms the day.
//!
//! A store that was closed for less than its retention follows the clock at once. A clock that is set back is followed,
//! which drops nothing; the witness stays for [`HELD_MS`], so that the clock's way back is no jump ahead.

use std::time::Duration;

use parking_lot::Mutex;

/// A difference that counts as a jump: 10 minutes.
const JUMP_MS: i64 = 10 * 60 * 1000;

/// How long the witness does not follow a wall clock that was set: a day.
const HELD_MS: i64 = DAY_MS;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Stands for the retention of a store without one: points may get a retention later.
const NO_RETENTION_MS: i64 = 30 * DAY_MS;

/// The witness is recorded when the record is off by this: 10 minutes.
const RECORD_MS: i64 = 10 * 60 * 1000;

/// Watches the wall clock.
#[derive(Debug)]
pub(super) struct ClockWatch {
    /// How far the wall clock may be ahead of the witness without a confirmation.
    limit_ms: i64,
    has_retention: bool,
    /// The operator confirms that it is this time at most.
    confirmed_ms: i64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: the wall clock of the first look is believed.
    witness_ms: Option<i64>,
    /// Wall clock and uptime of the last look.
    last: Option<(i64, i64)>,
    /// The side of the wall clock, and the uptime since which it is there, or of its last jump.
    side: Side,
    since_ms: i64,
    /// How far the wall clock is ahead of retention's.
    held_back_ms: i64,
    jumps: u64,
    recorded_ms: Option<i64>,
}

/// The side of the witness on which the wall clock is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Side {
    #[default]
    Equal,
    Ahead,
    Behind,
}

/// Counters of a clock watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStats {
    /// Jumps of the wall clock since the store was opened, ahead or back.
    pub jumps: u64,
    /// Milliseconds by which retention's clock is behind the wall clock now; 0 without retention.
    pub held_back_ms: i64,
    /// Whether these are more than the retention: an operator has to confirm the wall clock.
    pub needs_confirmation: bool,
}

impl ClockWatch {
    /// A watch for a store that drops points of an age. The wall clock is believed up to `confirmed_ms`.
    pub(super) fn new(retention: Option<Duration>, confirmed_ms: Option<i64>) -> Self {
        let retention_ms = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Self {
            limit_ms: retention.map_or(NO_RETENTION_MS, retention_ms),
            has_retention: retention.is_some(),
            confirmed_ms: confirmed_ms.unwrap_or(i64::MIN),
            state: Mutex::default(),
        }
    }

    /// Sets the witness before the first look: the record, or else an instant that the store's points have.
    pub(super) fn set_witness(&self, recorded_ms: Option<i64>, newest_ms: Option<i64>) {
        let mut state = self.state.lock();
        state.recorded_ms = recorded_ms;
        state.witness_ms = recorded_ms.or(newest_ms);
    }

    /// The time for retention, at a time of the wall clock and an uptime.
    pub(super) fn time_ms(&self, wall_ms: i64, uptime_ms: i64) -> i64 {
        let mut state = self.state.lock();
        let last = state.last.replace((wall_ms, uptime_ms));
        let elapsed_ms = last.map_or(0, |(_, last_uptime_ms)| uptime_ms - last_uptime_ms);
        let jump_ms = last.map_or(0, |(last_wall_ms, _)| wall_ms - last_wall_ms - elapsed_ms);
        let has_jumped = jump_ms.abs() >= JUMP_MS;
        if has_jumped {
            state.jumps += 1;
        }
        let witness_ms = state
            .witness_ms
            .map_or(wall_ms, |ms| ms.saturating_add(elapsed_ms));
        let ahead_ms = wall_ms.saturating_sub(witness_ms);
        let side = if ahead_ms.abs() < JUMP_MS {
            Side::Equal
        } else if ahead_ms > 0 {
            Side::Ahead
        } else {
            Side::Behind
        };
        let is_new = side != state.side || (has_jumped && jump_ms > 0);
        if is_new {
            (state.side, state.since_ms) = (side, uptime_ms);
        }
        let has_lasted = last.is_none() || uptime_ms - state.since_ms >= HELD_MS;
        let follows = match side {
            Side::Equal => true,
            Side::Behind => uptime_ms - state.since_ms >= HELD_MS,
            Side::Ahead => wall_ms <= self.confirmed_ms || (has_lasted && ahead_ms <= self.limit_ms),
        };
        if follows && side == Side::Ahead && state.held_back_ms > 0 {
            tracing::warn!("retention follows the system's clock again");
        }
        state.witness_ms = Some(if follows { wall_ms } else { witness_ms });
        state.held_back_ms = if follows { 0 } else { ahead_ms.max(0) };
        if has_jumped || (is_new && state.held_back_ms > 0) {
            self.warn(jump_ms, state.held_back_ms);
        }
        wall_ms - state.held_back_ms
    }

    fn warn(&self, jump_ms: i64, held_back_ms: i64) {
        let (jump_seconds, held_back_seconds) = (jump_ms / 1000, held_back_ms / 1000);
        if !self.has_retention {
            tracing::warn!(
                jump_seconds,
                "the system's clock jumped, or the machine was suspended"
            );
        } else if held_back_ms > self.limit_ms {
            tracing::warn!(
                jump_seconds,
                held_back_seconds,
                "the system's clock is ahead of the time at which the store was last used by more than --retention: no \
                 points are dropped for that; set the clock right, or confirm it with --confirm-clock and today's date"
            );
        } else {
            tracing::warn!(
                jump_seconds,
                held_back_seconds,
                "the system's clock jumped, or the machine was suspended; retention follows a jump ahead after a day"
            );
        }
    }

    /// The witness, if it has to be recorded. It counts as recorded then.
    pub(super) fn to_record(&self) -> Option<i64> {
        let mut state = self.state.lock();
        let witness_ms = state.witness_ms?;
        let is_due = |recorded_ms: i64| (witness_ms - recorded_ms).abs() >= RECORD_MS;
        state.recorded_ms.is_none_or(is_due).then(|| {
            state.recorded_ms = Some(witness_ms);
            witness_ms
        })
    }

    /// The earliest time that it can be; `None` before the first look.
    pub(super) fn witness_ms(&self) -> Option<i64> {
        self.state.lock().witness_ms
    }

    pub(super) fn stats(&self) -> ClockStats {
        let state = self.state.lock();
        let held_back_ms = if self.has_retention { state.held_back_ms } else { 0 };
        ClockStats {
            jumps: state.jumps,
            held_back_ms,
            needs_confirmation: held_back_ms > self.limit_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_795_305_600_000;
    const YEAR_MS: i64 = 365 * DAY_MS;

    fn watch(retention_ms: i64) -> ClockWatch {
        ClockWatch::new(Some(Duration::from_millis(retention_ms.cast_unsigned())), None)
    }

    /// A watch of a store that was last used at `NOW_MS`.
    fn reopened(retention_ms: i64, confirmed_ms: Option<i64>) -> ClockWatch {
        let watch = ClockWatch {
            confirmed_ms: confirmed_ms.unwrap_or(i64::MIN),
            ..watch(retention_ms)
        };
        watch.set_witness(Some(NOW_MS), None);
        watch
    }

    #[test]
    fn follows_a_steady_clock() {
        let watch = watch(DAY_MS);
        for step in 0..1000 {
            // Adjusted by a few seconds now and then.
            let wall_ms = NOW_MS + step * 60_000 + step % 7 * 1000;
            assert_eq!(watch.time_ms(wall_ms, step * 60_000), wall_ms);
        }
        assert_eq!(watch.stats(), ClockStats::default());
    }

    #[test]
    fn a_jump_ahead_is_followed_after_a_day() {
        let watch = watch(20 * YEAR_MS);
        assert_eq!(watch.time_ms(NOW_MS, 0), NOW_MS);
        let ahead = |uptime_ms| NOW_MS + 5 * YEAR_MS + uptime_ms;
        for uptime_ms in [500, 1000, HELD_MS] {
            let time_ms = watch.time_ms(ahead(uptime_ms), uptime_ms);
            assert_eq!(time_ms, NOW_MS + uptime_ms);
        }
        assert_eq!(watch.stats().held_back_ms, 5 * YEAR_MS);
        assert!(!watch.stats().needs_confirmation);
        assert_eq!(
            watch.time_ms(ahead(HELD_MS + 500), HELD_MS + 500),
            ahead(HELD_MS + 500)
        );
        let stats = ClockStats {
            jumps: 1,
            ..ClockStats::default()
        };
        assert_eq!(watch.stats(), stats);
    }

    #[test]
    fn a_jump_ahead_by_more_than_the_retention_is_not_followed() {
        let watch = watch(30 * DAY_MS);
        assert_eq!(watch.time_ms(NOW_MS, 0), NOW_MS);
        for day in 1..100 {
            let uptime_ms = day * DAY_MS;
            let wall_ms = NOW_MS + 31 * DAY_MS + uptime_ms;
            assert_eq!(watch.time_ms(wall_ms, uptime_ms), NOW_MS + uptime_ms);
        }
        assert_eq!(watch.stats().held_back_ms, 31 * DAY_MS);
        assert!(watch.stats().needs_confirmation);
    }

    #[test]
    fn a_clock_that_is_set_right_is_followed() {
        let watch = watch(DAY_MS);
        watch.time_ms(NOW_MS, 0);
        assert_eq!(watch.time_ms(NOW_MS + YEAR_MS, 500), NOW_MS + 500);
        assert_eq!(watch.time_ms(NOW_MS + 1000, 1000), NOW_MS + 1000);
        assert_eq!(watch.stats().jumps, 2);
        // Set back, it is followed, and its way ahead again, too: it was there before.
        assert_eq!(watch.time_ms(NOW_MS - YEAR_MS, 1500), NOW_MS - YEAR_MS);
        assert_eq!(watch.time_ms(NOW_MS + 2000, 2000), NOW_MS + 2000);
        assert_eq!(watch.stats().jumps, 4);
        assert_eq!(watch.stats().held_back_ms, 0);
    }

    #[test]
    fn a_clock_that_stays_back_is_the_witness_after_a_day() {
        let watch = watch(DAY_MS);
        watch.time_ms(NOW_MS + YEAR_MS, 0);
        for uptime_ms in [500, 500 + HELD_MS] {
            let wall_ms = NOW_MS + uptime_ms;
            assert_eq!(watch.time_ms(wall_ms, uptime_ms), wall_ms);
        }
        let later_ms = 1000 + HELD_MS;
        let time_ms = watch.time_ms(NOW_MS + YEAR_MS + later_ms, later_ms);
        assert_eq!(time_ms, NOW_MS + later_ms);
    }

    #[test]
    fn a_store_that_was_closed_for_less_than_the_retention_follows_at_once() {
        let later_ms = NOW_MS + 30 * DAY_MS;
        assert_eq!(reopened(30 * DAY_MS, None).time_ms(later_ms, 0), later_ms);
    }

    #[test]
    fn a_store_that_was_closed_for_longer_needs_a_confirmation_of_the_day() {
        let later_ms = NOW_MS + 400 * DAY_MS;
        let watch = reopened(30 * DAY_MS, None);
        for uptime_ms in [0, 500, 2 * DAY_MS] {
            assert_eq!(watch.time_ms(later_ms + uptime_ms, uptime_ms), NOW_MS + uptime_ms);
        }
        assert_eq!(watch.stats().held_back_ms, 400 * DAY_MS);
        assert_eq!(watch.witness_ms(), Some(NOW_MS + 2 * DAY_MS));
        // A confirmation of an earlier day confirms nothing.
        let watch = reopened(30 * DAY_MS, Some(later_ms - 1));
        assert_eq!(watch.time_ms(later_ms, 0), NOW_MS);
        let watch = reopened(30 * DAY_MS, Some(later_ms + 1000));
        assert_eq!(watch.time_ms(later_ms, 0), later_ms);
        assert_eq!(watch.stats(), ClockStats::default());
        assert_eq!(watch.time_ms(later_ms + 2000, 2000), later_ms + 2000);
    }

    #[test]
    fn the_witness_is_recorded_when_the_record_is_off() {
        let watch = watch(DAY_MS);
        assert_eq!(watch.to_record(), None);
        watch.time_ms(NOW_MS, 0);
        assert_eq!(watch.to_record(), Some(NOW_MS));
        watch.time_ms(NOW_MS + 1000, 1000);
        assert_eq!(watch.to_record(), None);
        // Not the wall clock, which is ahead.
        watch.time_ms(NOW_MS + YEAR_MS, RECORD_MS);
        assert_eq!(watch.to_record(), Some(NOW_MS + RECORD_MS));
    }
}
