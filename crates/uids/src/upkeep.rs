//! The background work of the service: it reads the rules file again when it changes, counts the names of new
//! quotas, and samples the usage.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tokio::time::MissedTickBehavior;

use crate::uids::Uids;

/// How often the rules file is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the usage is looked at, in intervals.
const USAGE_INTERVALS: u64 = 60;

/// How often the usage is read for metrics, in intervals.
const METRICS_INTERVALS: u64 = 10;

/// Starts the task. It ends when `uids` is dropped.
pub fn start(uids: &Arc<Uids>) {
    tokio::spawn(run(Arc::downgrade(uids)));
}

async fn run(uids: Weak<Uids>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in 0_u64.. {
        ticks.tick().await;
        let Some(uids) = uids.upgrade() else { return };
        uids.upkeep(SystemTime::now()).await;
        if tick.is_multiple_of(METRICS_INTERVALS) {
            uids.refresh_usage(SystemTime::now()).await;
        }
        if (tick + 1).is_multiple_of(USAGE_INTERVALS) {
            uids.check_usage(SystemTime::now()).await;
        }
    }
}
