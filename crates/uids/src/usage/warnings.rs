//! Warnings in the log before names are rejected, at most once a day for each kind and quota unless it gets worse.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tracing::warn;

use super::{KindUsage, percent_of};
use crate::policy::Warnings;
use crate::policy::quota::QuotaUse;

/// How long a warning is not repeated.
const REPEAT: Duration = Duration::from_secs(86_400);

/// Logs warnings.
#[derive(Debug, Default)]
pub(crate) struct Warner {
    /// When each subject was warned of, and its percentage then.
    logged: Mutex<HashMap<String, (SystemTime, u64)>>,
}

impl Warner {
    /// Warns of kinds and quotas that are nearly used up.
    pub(crate) fn check(&self, limits: Warnings, kinds: &[KindUsage], quotas: &[QuotaUse]) {
        for usage in kinds {
            let percent = usage.percent();
            let days_left = usage.forecast.days_left(usage.read_time);
            let soon = days_left.is_some_and(|days| days < limits.days);
            let subject = usage.kind.to_string();
            if (percent >= limits.percent || soon) && self.is_due(&subject, percent, usage.read_time) {
                let (used, available) = (usage.used, usage.available);
                warn!(
                    kind = subject,
                    used, available, percent, days_left, "UIDs are running out: new names will be rejected"
                );
            }
        }
        let now = kinds
            .first()
            .map_or(SystemTime::UNIX_EPOCH, |usage| usage.read_time);
        for quota in quotas {
            let percent = percent_of(quota.used, quota.limit);
            let subject = format!("quota of {}", quota.scope);
            if percent >= limits.percent && self.is_due(&subject, percent, now) {
                let (used, limit) = (quota.used, quota.limit);
                warn!(scope = %quota.scope, used, limit, percent, "a quota is nearly used up: new names will be rejected");
            }
        }
    }

    /// Whether a subject was not warned of within a day, or has a higher percentage now; notes that it is.
    fn is_due(&self, subject: &str, percent: u64, now: SystemTime) -> bool {
        let mut logged = self.logged.lock();
        if let Some((at, before)) = logged.get(subject) {
            let age = now.duration_since(*at).unwrap_or_default();
            if age < REPEAT && percent <= *before {
                return false;
            }
        }
        logged.insert(subject.to_owned(), (now, percent));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_after_a_day_or_when_it_is_worse() {
        let warner = Warner::default();
        let at = |hours: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600);
        assert!(warner.is_due("tagv", 91, at(1)));
        assert!(!warner.is_due("tagv", 91, at(2)));
        assert!(warner.is_due("metrics", 91, at(2)));
        assert!(warner.is_due("tagv", 92, at(3)));
        assert!(!warner.is_due("tagv", 92, at(26)));
        assert!(warner.is_due("tagv", 92, at(27)));
    }
}
