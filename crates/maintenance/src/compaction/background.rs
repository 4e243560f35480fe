//! Compaction in the background: each hour when it has ended, and the last hours again once a day.
//!
//! ```text
//!   start            the look-back        rows of before the start
//!   each hour        the hours since      rows that are complete
//!   once a day       the look-back        rows that were written late
//! ```
//!
//! Progress is kept in memory only: table `tsdb` has no place for it that OpenTSDB would not trip over, and
//! a row that is compact costs a restarted service a read of one cell. Several services do the same work, each of
//! which finds most rows compact if they do not start in the same minute.

use std::time::{Duration, Instant};

use oxtsdb_data_settings::CompactionSettings;
use oxtsdb_query::Engine;
use oxtsdb_query::Hours;
use oxtsdb_schema::{BaseTime, HOUR_SECONDS};
use oxtsdb_server::Shutdown;
use tracing::{debug, info, warn};

use super::{Compactor, Courtesy, Figures, Finding, Pass, Rate, ended, now_ms};

/// How often the job looks whether an hour has ended.
const TICK: Duration = Duration::from_secs(15);

/// How often the look-back is read.
const FULL_EVERY: Duration = Duration::from_secs(86_400);

/// The first pause after a failure; each is twice as long as the one before, up to a limit.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Rows of a pass that are logged one by one.
const LOGGED_FINDINGS: usize = 10;

/// The job.
#[derive(Debug)]
pub struct Background {
    compactor: Compactor,
    after: Duration,
    rate: Rate,
    look_back_seconds: u64,
    courtesy: Courtesy,
}

/// How far a pass is.
#[derive(Debug, Default)]
struct Progress {
    figures: Figures,
    findings: usize,
    last_row_key: Vec<u8>,
}

impl Background {
    /// The job; `None` unless the settings have it.
    pub fn from_settings(
        compactor: Compactor,
        engine: &Engine,
        settings: &CompactionSettings,
    ) -> Option<Self> {
        Some(Self {
            compactor,
            after: settings.after()?,
            rate: Rate {
                rows_per_second: Some(settings.compaction_rows_per_second),
                bytes_per_second: None,
            },
            look_back_seconds: settings.compaction_look_back_hours * u64::from(HOUR_SECONDS),
            courtesy: Courtesy::ToQueries(engine.resources().admission.clone()),
        })
    }

    /// Runs passes until the program drains.
    pub async fn run(self, shutdown: Shutdown) {
        tokio::select! {
            () = self.passes() => {}
            // A pass may stop after any step.
            () = shutdown.draining() => {}
        }
    }

    async fn passes(&self) {
        let mut done_until = 0;
        let mut last_full: Option<Instant> = None;
        loop {
            let stop_seconds = ended(Hours::ALL, now_ms(), self.after).stop_seconds;
            let full = last_full.is_none_or(|last| last.elapsed() >= FULL_EVERY);
            if stop_seconds > done_until || full {
                let start_seconds = if full {
                    stop_seconds.saturating_sub(self.look_back_seconds)
                } else {
                    done_until
                };
                last_full = if full { Some(Instant::now()) } else { last_full };
                self.pass(Hours {
                    start: BaseTime::from_seconds(u32::try_from(start_seconds).unwrap_or(u32::MAX)),
                    stop_seconds,
                })
                .await;
                done_until = stop_seconds;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Compacts the rows of some hours; repeats what fails.
    async fn pass(&self, hours: Hours) {
        let begun = Instant::now();
        let mut progress = Progress::default();
        let mut pause = FIRST_PAUSE;
        loop {
            let rows_before = progress.figures.rows;
            let pass = Pass {
                metric: None,
                hours,
                start_after_row_key: progress.last_row_key.clone(),
                min_age: self.after,
                rate: self.rate,
                courtesy: self.courtesy.clone(),
            };
            let ran = self.compactor.run(pass, |step| {
                progress.figures.add(step.figures);
                progress.last_row_key = step.last_row_key.to_vec();
                for finding in &step.findings {
                    log(finding, progress.findings);
                    progress.findings += 1;
                }
            });
            let Err(error) = ran.await else { break };
            if progress.figures.rows > rows_before {
                pause = FIRST_PAUSE;
            }
            warn!(%error, pause_seconds = pause.as_secs(), "the compaction of rows is interrupted and continues after a pause");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        let Figures { rows, compacted, .. } = progress.figures;
        let (hours, seconds) = (hours.count(), begun.elapsed().as_secs());
        if compacted > 0 {
            info!(hours, rows, compacted, seconds, "compacted rows");
        } else {
            debug!(hours, rows, seconds, "no rows to compact");
        }
    }
}

/// Logs a row that an operator has to look at, if few were logged before.
fn log(finding: &Finding, before: usize) {
    let row_key = hex::encode_upper(&finding.row_key);
    let (problem, detail) = (finding.problem, &finding.detail);
    if before < LOGGED_FINDINGS {
        warn!(row_key, ?problem, detail, "a row is not compacted");
    } else {
        debug!(row_key, ?problem, detail, "a row is not compacted");
    }
}

#[cfg(test)]
mod tests;
