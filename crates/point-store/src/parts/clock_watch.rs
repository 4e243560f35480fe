//! The clock of retention: the wall clock, without its jumps ahead.
//!
//! ```text
//!   wall clock      10:00  10:01  2031-01-01 10:02  …  24 hours later
//!   retention       10:00  10:01  10:02 (held back)  …  follows the wall clock
//! ```
//!
//! The wall clock and a clock that is never set advance alike. If they differ by [`JUMP_MS`] between two looks, the wall
//! clock was set, or the machine was suspended. A clock that is wrong by years must not drop the days of these years, so
//! retention does not follow a jump ahead for [`HELD_MS`], in which an operator can set the clock right. It follows a
//! clock that is set back, which drops nothing.

use parking_lot::Mutex;

/// A difference that counts as a jump: 10 minutes.
const JUMP_MS: i64 = 10 * 60 * 1000;

/// How long a jump ahead is not followed: a day.
const HELD_MS: i64 = 24 * 60 * 60 * 1000;

/// Watches the wall clock.
#[derive(Debug, Default)]
pub(super) struct ClockWatch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Wall clock and uptime of the last look.
    last: Option<(i64, i64)>,
    /// How far the wall clock is ahead of retention's.
    held_back_ms: i64,
    /// The uptime of the last jump ahead.
    since_ms: i64,
    jumps: u64,
}

/// What a watch has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStats {
    /// Jumps of the wall clock since the store was opened, ahead or back.
    pub jumps: u64,
    /// Milliseconds by which retention's clock is behind the wall clock now.
    pub held_back_ms: i64,
}

impl ClockWatch {
    /// The time for retention, at a time of the wall clock and an uptime.
    pub(super) fn time_ms(&self, wall_ms: i64, uptime_ms: i64) -> i64 {
        let mut state = self.0.lock();
        if let Some((last_wall_ms, last_uptime_ms)) = state.last.replace((wall_ms, uptime_ms)) {
            let jump_ms = (wall_ms - last_wall_ms) - (uptime_ms - last_uptime_ms);
            if jump_ms.abs() >= JUMP_MS {
                state.jump(jump_ms, uptime_ms);
            }
        }
        if state.held_back_ms > 0 && uptime_ms - state.since_ms >= HELD_MS {
            state.held_back_ms = 0;
            tracing::warn!("the clock was not set back for a day: retention follows it again");
        }
        wall_ms - state.held_back_ms
    }

    pub(super) fn stats(&self) -> ClockStats {
        let state = self.0.lock();
        ClockStats {
            jumps: state.jumps,
            held_back_ms: state.held_back_ms,
        }
    }
}

impl State {
    fn jump(&mut self, jump_ms: i64, uptime_ms: i64) {
        self.jumps += 1;
        if jump_ms > 0 {
            self.since_ms = uptime_ms;
        }
        self.held_back_ms += jump_ms;
        // Set right again, up to what the clock may have been off before.
        if self.held_back_ms < JUMP_MS {
            self.held_back_ms = 0;
        }
        let (jump_seconds, held_back_seconds) = (jump_ms / 1000, self.held_back_ms / 1000);
        tracing::warn!(
            jump_seconds,
            held_back_seconds,
            "the system's clock jumped, or the machine was suspended; retention follows a jump ahead after a day"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_795_305_600_000;
    const YEAR_MS: i64 = 365 * HELD_MS;

    #[test]
    fn follows_a_steady_clock() {
        let watch = ClockWatch::default();
        for step in 0..1000 {
            // Adjusted by a few seconds now and then.
            let wall_ms = NOW_MS + step * 60_000 + step % 7 * 1000;
            assert_eq!(watch.time_ms(wall_ms, step * 60_000), wall_ms);
        }
        assert_eq!(watch.stats(), ClockStats::default());
    }

    #[test]
    fn a_jump_ahead_is_followed_after_a_day() {
        let watch = ClockWatch::default();
        assert_eq!(watch.time_ms(NOW_MS, 0), NOW_MS);
        let ahead = |uptime_ms| NOW_MS + 5 * YEAR_MS + uptime_ms;
        for uptime_ms in [500, 1000, HELD_MS] {
            let time_ms = watch.time_ms(ahead(uptime_ms), uptime_ms);
            assert_eq!(time_ms, NOW_MS + uptime_ms);
        }
        assert_eq!(watch.stats().held_back_ms, 5 * YEAR_MS);
        assert_eq!(
            watch.time_ms(ahead(HELD_MS + 500), HELD_MS + 500),
            ahead(HELD_MS + 500)
        );
        let stats = ClockStats {
            jumps: 1,
            held_back_ms: 0,
        };
        assert_eq!(watch.stats(), stats);
    }

    #[test]
    fn a_clock_that_is_set_right_is_followed() {
        let watch = ClockWatch::default();
        watch.time_ms(NOW_MS, 0);
        assert_eq!(watch.time_ms(NOW_MS + YEAR_MS, 500), NOW_MS + 500);
        assert_eq!(watch.time_ms(NOW_MS + 1000, 1000), NOW_MS + 1000);
        assert_eq!(watch.stats().jumps, 2);
        // Set back, it is followed, and its way ahead again is held.
        assert_eq!(watch.time_ms(NOW_MS - YEAR_MS, 1500), NOW_MS - YEAR_MS);
        assert_eq!(watch.time_ms(NOW_MS, 2000), NOW_MS - YEAR_MS + 500);
        assert_eq!(watch.stats().jumps, 4);
    }
}
