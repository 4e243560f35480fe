//! Retries of calls: exponential back-off within a shared budget.

use std::sync::atomic::{AtomicI64, Ordering};

use backon::ExponentialBuilder;

use crate::service_config::{self, MethodPolicy, Throttling};

/// Stops retries while most calls fail, so that retries do not multiply the load on an overloaded service.
///
/// gRPC's retry throttling: the budget holds tokens, a failed attempt takes one, a successful call returns a
/// part of one, and retries are allowed while more than half are left.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// Thousandths of tokens.
    tokens: AtomicI64,
    max: i64,
    success: i64,
}

/// Thousandths of a token that a failed attempt takes.
const FAILURE: i64 = 1000;

impl RetryBudget {
    /// A full budget, as the service config defines it.
    pub(crate) fn new() -> Self {
        Self::with(service_config::throttling())
    }

    fn with(throttling: Throttling) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "small constants of the config")]
        let thousandths = |tokens: f32| (f64::from(tokens) * 1000.0) as i64;
        let max = thousandths(throttling.max_tokens);
        Self {
            tokens: AtomicI64::new(max),
            max,
            success: thousandths(throttling.token_ratio),
        }
    }

    /// Counts a successful call.
    pub(crate) fn succeeded(&self) {
        self.add(self.success);
    }

    /// Counts a failed attempt; returns whether it can be retried.
    pub(crate) fn failed(&self) -> bool {
        self.add(-FAILURE) > self.max / 2
    }

    fn add(&self, tokens: i64) -> i64 {
        let sum = |now: i64| (now + tokens).clamp(0, self.max);
        let update = self
            .tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(sum(now)));
        // The closure always returns a value.
        update.map_or(0, sum)
    }
}

/// The pauses between the attempts of a call. `max_attempts` replaces the number of the policy, but a method without a retry
/// policy is not idempotent: it has one attempt.
pub(crate) fn backoff(policy: &MethodPolicy, max_attempts: Option<usize>) -> ExponentialBuilder {
    let attempts = match policy.max_attempts {
        1 => 1,
        attempts => max_attempts.unwrap_or(attempts),
    };
    ExponentialBuilder::default()
        .with_min_delay(policy.initial_backoff)
        .with_max_delay(policy.max_backoff)
        .with_factor(policy.multiplier)
        .with_max_times(attempts.saturating_sub(1))
        .with_jitter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_exhaust_the_budget_and_successes_restore_it() {
        let budget = RetryBudget::with(Throttling {
            max_tokens: 4.0,
            token_ratio: 0.5,
        });
        assert!(budget.failed(), "3 of 4 are left");
        assert!(!budget.failed() && !budget.failed() && !budget.failed());
        assert!(!budget.failed(), "never below zero");
        for _ in 0..7 {
            budget.succeeded();
        }
        assert!(budget.failed(), "3.5 restored");
    }

    #[test]
    fn more_attempts_are_of_idempotent_methods_only() {
        use backon::BackoffBuilder as _;
        let attempts = |method: &str, max_attempts| {
            let policy = service_config::policy(&format!("oxtsdb.uid.v1.UidService/{method}"));
            1 + backoff(&policy, max_attempts).build().count()
        };
        assert_eq!(
            [None, Some(1), Some(9)].map(|max| attempts("LookupUids", max)),
            [4, 1, 9]
        );
        assert_eq!(
            [None, Some(1), Some(9)].map(|max| attempts("RenameUid", max)),
            [1, 1, 1]
        );
    }
}
