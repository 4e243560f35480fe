//! A disk that fails under a running server: a sync that fails once or for a while, a full device, a file system that
//! becomes read-only. Nothing acknowledged is lost, a name has one UID, reads go on, and writes recover.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::common::v1::{ErrorReason, UidKind};
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1::get_or_create_uids_response::result::Outcome;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use oxtsdb_tests::disks::Disk;
use oxtsdb_tests::faults::Faults;
use oxtsdb_tests::http::{Http, HttpResponse};
use oxtsdb_tests::ledger::{self, Differences, Ledger, Metric};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, PATIENCE, Tsdb, random, sizes, until};
use rand::RngExt as _;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

/// Clients that assign names at the same time.
const CLIENTS: i64 = 48;

/// Names of a client; more while the fault has not happened.
const NAMES: i64 = 8;

/// Moments at which a sync fails, unless `OXTSDB_FAULT_MOMENTS` says otherwise: 50 by hand.
const MOMENTS: usize = 1;

/// The latest moment, in syncs: the clients cause more.
const LATEST: usize = 60;

/// Repeats a request until it is acknowledged.
async fn acknowledged<T, R>(what: &str, mut request: impl FnMut() -> R) -> anyhow::Result<T>
where
    R: Future<Output = anyhow::Result<Result<T, HttpResponse>>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        match request().await.context(what.to_owned())? {
            Ok(response) => return Ok(response),
            Err(response) if Instant::now() > end => {
                bail!("{what}: not acknowledged within {PATIENCE:?}: {response:?}")
            }
            Err(_refused) => sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}

/// Creates metrics, every third by a point, until the fault has happened; repeats what fails.
async fn create_metrics(http: Http, faults: Arc<Faults>, client: i64) -> anyhow::Result<Ledger> {
    let mut ledger = Ledger::default();
    for number in 0..NAMES * 20 {
        if number >= NAMES && !faults.failed().is_empty() {
            break;
        }
        let name = format!("m.{client}.{number}");
        if number % 3 == 2 {
            let metric = Metric::new(name, client * 1000 + number);
            acknowledged("/api/put", || ledger::put(&http, &metric, &[0, 1])).await?;
            ledger.written(&metric, &[0, 1]);
        } else {
            let uid = acknowledged("/api/uid/assign", || ledger::assign(&http, &name)).await?;
            ledger.assigned(&name, uid)?;
        }
    }
    Ok(ledger)
}

/// One failed sync, then a crash; returns what differs.
async fn one_failed_sync(moment: usize) -> anyhow::Result<Option<Differences>> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("data");
    let Some(faults) = Faults::for_files_below(&data_dir.join("uid"))? else {
        return Ok(None);
    };
    let faults = Arc::new(faults);
    let on_folder = || Options::default().data_dir(&data_dir);
    let mut tsdb = Tsdb::start_with(on_folder().variables(faults.variables())).await?;
    faults.fail_one_sync(moment)?;
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(create_metrics(tsdb.http(), Arc::clone(&faults), client));
    }
    let mut ledger = Ledger::default();
    let mut broken = Vec::new();
    while let Some(client) = clients.join_next().await {
        match client?.and_then(|acknowledged| ledger.extend(acknowledged)) {
            Ok(()) => {}
            Err(error) => broken.push(format!("{error:#}")),
        }
    }
    let failed = faults.failed();
    ensure!(failed.len() == 1, "not one sync failed: {failed:?}");
    let failed = failed.first().context("a failed sync")?;
    let log = tsdb.process().log();
    let is_logged = names_file(&log, failed, &data_dir);
    tsdb.kill9()?;
    tsdb.restart_with(on_folder()).await?;
    // A number that is free by mistake is given to the next names.
    let http = tsdb.http();
    for number in 0..CLIENTS {
        let name = format!("later.{number}");
        let uid = acknowledged("/api/uid/assign", || ledger::assign(&http, &name)).await?;
        ledger.assigned(&name, uid)?;
    }
    let mut differences = ledger.compare(&tsdb).await?;
    differences.wrong.extend(broken);
    if !is_logged {
        let what = format!("the log does not name {}", failed.display());
        differences.unreadable.push(what);
    }
    println!(
        "sync {moment} fails, of {}: {} names, {} points; {differences}",
        failed.strip_prefix(&data_dir).unwrap_or(failed).display(),
        ledger.names(),
        ledger.points(),
    );
    Ok(Some(differences))
}

/// Whether a text names a file, by its path or by its path below the data folder.
fn names_file(text: &str, file: &Path, data_dir: &Path) -> bool {
    let short = file.strip_prefix(data_dir).unwrap_or(file);
    text.contains(&short.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_gives_no_uid_twice() -> anyhow::Result<()> {
    let mut random = random::seeded("disk_faults")?;
    let moments = sizes::from_environment("OXTSDB_FAULT_MOMENTS", MOMENTS)?;
    let mut wrong = Vec::new();
    for number in 0..moments {
        let moment = random.random_range(0..LATEST);
        match one_failed_sync(moment).await {
            Ok(None) => return Ok(()),
            Ok(Some(differences)) if differences.is_empty() => {}
            Ok(Some(differences)) => wrong.push(format!("run {number}, sync {moment}: {differences}")),
            Err(error) => wrong.push(format!("run {number}, sync {moment}: {error:#}")),
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} of {moments} runs differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(())
}

/// A server on a disk that fails, with what it acknowledged.
struct Target {
    tsdb: Tsdb,
    data_dir: PathBuf,
    ledger: Ledger,
    next: i64,
}

impl Target {
    /// Starts it on a healthy disk, with metrics and points.
    async fn start(data_dir: &Path, variables: Vec<(String, String)>) -> anyhow::Result<Self> {
        // No space is reserved: the disk itself rejects writes, not a check before.
        let options = Options::default()
            .flag("--disk-reserve-mib", "0")
            .variables(variables)
            .data_dir(data_dir);
        let mut target = Self {
            tsdb: Tsdb::start_with(options).await?,
            data_dir: data_dir.to_owned(),
            ledger: Ledger::default(),
            next: 0,
        };
        for _ in 0..10 {
            let metric = target.next_metric();
            target.put(&metric, &[0, 1, 2]).await?;
            target.assign().await?;
        }
        Ok(target)
    }

    fn next_metric(&mut self) -> Metric {
        self.next += 1;
        Metric::new(format!("metric.{}", self.next), self.next)
    }

    /// The first metric, which has points from the start.
    fn first_metric() -> Metric {
        Metric::new("metric.1", 1)
    }

    /// Writes points of a metric; fails if they are rejected.
    async fn put(&mut self, metric: &Metric, points: &[i64]) -> anyhow::Result<()> {
        let put = ledger::put(&self.tsdb.http(), metric, points).await?;
        put.map_err(|response| anyhow::anyhow!("/api/put is refused: {response:?}"))?;
        self.ledger.written(metric, points);
        Ok(())
    }

    /// Assigns a new name; fails if that is rejected.
    async fn assign(&mut self) -> anyhow::Result<()> {
        self.next += 1;
        let name = format!("name.{}", self.next);
        let uid = ledger::assign(&self.tsdb.http(), &name).await?;
        let uid = uid.map_err(|response| anyhow::anyhow!("the name is refused: {response:?}"))?;
        self.ledger.assigned(&name, uid)
    }

    /// The error of a new name over gRPC.
    async fn refused_name(&mut self) -> anyhow::Result<Refusal> {
        self.next += 1;
        let name = UidName {
            kind: UidKind::Metric.into(),
            name: format!("refused.{}", self.next),
            tag_key: String::new(),
        };
        let request = GetOrCreateUidsRequest {
            names: vec![name],
            explicit: true,
            in_use: None,
        };
        let response = timeout(PATIENCE, self.tsdb.uids().get_or_create_uids(request)).await;
        let response = match response.context("a new name: no response")? {
            Err(status) => return Ok(Refusal::from(status)),
            Ok(response) => response.into_inner(),
        };
        let result = response.results.into_iter().next().context("no result")?;
        match result.outcome.context("no outcome")? {
            Outcome::Error(error) => Ok(Refusal {
                code: Code::from(error.code),
                reason: Some(error.reason()),
                message: error.message,
            }),
            Outcome::Uid(uid) => bail!("the name got {uid:02x?}"),
        }
    }

    /// The error of points over gRPC. They may become visible later if the outcome is unknown.
    async fn refused_points(&self, metric: &Metric, point: i64) -> anyhow::Result<Refusal> {
        let samples: [Sample; 1] = [metric.point(point)];
        let response = timeout(PATIENCE, self.tsdb.data().write(write_request(&samples))).await;
        match response.context("a point: no response")? {
            Err(status) => Ok(Refusal::from(status)),
            Ok(response) => bail!("the point is accepted: {:?}", response.into_inner()),
        }
    }

    /// The errors of a name and of a point.
    async fn refused(&mut self) -> anyhow::Result<[Refusal; 2]> {
        let name = self.refused_name().await?;
        let point = self.refused_points(&Self::first_metric(), 9).await?;
        println!("{name:?}; {point:?}");
        Ok([name, point])
    }

    /// Checks that what was acknowledged is served.
    async fn check_reads(&self) -> anyhow::Result<()> {
        let differences = self.ledger.compare(&self.tsdb).await?;
        ensure!(differences.is_empty(), "{differences}");
        Ok(())
    }

    /// Checks that the readiness page and the log name one of the files that failed.
    async fn check_reports(&mut self, files: &[PathBuf], problems: &mut Problems) -> anyhow::Result<()> {
        let data_dir = self.data_dir.clone();
        let files = files.iter().collect::<BTreeSet<_>>();
        let names_one = |text: &str| files.iter().any(|file| names_file(text, file, &data_dir));
        let admin = self.tsdb.admin();
        // Stores are checked once a second.
        let named = until("/readyz names the file", || {
            let (admin, names_one) = (admin.clone(), &names_one);
            async move {
                let page = admin.get("/readyz").await?;
                ensure!(names_one(&page.body), "{page:?}");
                Ok(())
            }
        });
        if let Err(error) = named.await {
            problems.0.push(format!("{error:#}"));
        }
        let page = self.tsdb.admin().get("/readyz").await?;
        if page.body.contains(&data_dir.display().to_string()) {
            problems
                .0
                .push(format!("/readyz names the data folder: {page:?}"));
        }
        let log = self.tsdb.process().log();
        if !names_one(&log) {
            let last = log.lines().last().unwrap_or_default();
            let problem = format!("the log names none of {files:?}, its last line is `{last}`");
            problems.0.push(problem);
        }
        Ok(())
    }

    /// Waits until names and points are accepted again.
    async fn recovers(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let metric = self.next_metric();
            let result = match self.assign().await {
                Ok(()) => self.put(&metric, &[0, 1]).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => break,
                Err(error) if Instant::now() > end => {
                    return Err(error.context(format!("no write succeeds within {PATIENCE:?}")));
                }
                Err(_not_yet) => sleep(std::time::Duration::from_millis(50)).await,
            }
        }
        self.put(&Self::first_metric(), &[10]).await?;
        let admin = self.tsdb.admin();
        until("/readyz is 200", || {
            let admin = admin.clone();
            async move {
                let page = admin.get("/readyz").await?;
                ensure!(page.status == 200 && page.body == "ready\n", "{page:?}");
                Ok(())
            }
        })
        .await
    }

    /// A crash, and a start without faults: nothing acknowledged is lost, and new names get other UIDs.
    async fn survives_kill_9(&mut self) -> anyhow::Result<()> {
        self.tsdb.kill9()?;
        self.restarts().await
    }

    async fn restarts(&mut self) -> anyhow::Result<()> {
        let options = Options::default().data_dir(&self.data_dir);
        self.tsdb.restart_with(options).await?;
        for _ in 0..20 {
            self.assign().await?;
        }
        self.check_reads().await.context("after kill -9")
    }
}

/// The error of a write.
#[derive(Debug)]
struct Refusal {
    code: Code,
    reason: Option<ErrorReason>,
    message: String,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self {
            code: status.code(),
            reason: reason_of(&status),
            message: status.message().to_owned(),
        }
    }
}

impl Refusal {
    fn is(&self, code: Code, reason: ErrorReason) -> anyhow::Result<()> {
        let is_right = self.code == code && self.reason == Some(reason);
        ensure!(is_right, "{self:?}, expected {code:?} with {reason:?}");
        Ok(())
    }

    fn is_retryable(&self) -> anyhow::Result<()> {
        self.is(Code::Unavailable, ErrorReason::StoreUnavailable)
    }

    fn names_a_file(&self, data_dir: &Path) -> anyhow::Result<()> {
        let is_named = self.message.contains(&data_dir.display().to_string());
        ensure!(is_named, "no file of {} in {self:?}", data_dir.display());
        Ok(())
    }

    fn names_no_file(&self, data_dir: &Path) -> anyhow::Result<()> {
        let is_named = self.message.contains(&data_dir.display().to_string());
        ensure!(!is_named, "a path of the server in {self:?}");
        Ok(())
    }
}

/// The faults of a run; a test reports all of them, not the first only.
#[derive(Debug, Default)]
struct Problems(Vec<String>);

impl Problems {
    fn check(&mut self, checked: anyhow::Result<()>) {
        if let Err(error) = checked {
            self.0.push(format!("{error:#}"));
        }
    }

    fn report(self) -> anyhow::Result<()> {
        ensure!(
            self.0.is_empty(),
            "{} problems:\n{}",
            self.0.len(),
            self.0.join("\n")
        );
        Ok(())
    }
}

/// Syncs below a folder fail for a while.
async fn failing_syncs(below: &str) -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("data");
    let Some(faults) = Faults::for_files_below(&data_dir.join(below))? else {
        return Ok(());
    };
    let mut target = Target::start(&data_dir, faults.variables()).await?;
    let mut problems = Problems::default();
    faults.fail_syncs()?;
    let refusals = match below {
        "uid" => [target.refused_name().await?, target.refused_name().await?],
        _ => {
            let metric = Target::first_metric();
            let first = target.refused_points(&metric, 5).await?;
            [first, target.refused_points(&metric, 6).await?]
        }
    };
    println!("syncs below {below}/ fail: {refusals:?}");
    for refusal in refusals {
        problems.check(refusal.is_retryable());
    }
    let failed = faults.failed();
    ensure!(!failed.is_empty(), "no sync failed");
    problems.check(target.check_reads().await.context("while syncs fail"));
    if below == "uid" {
        // The other store is healthy.
        problems.check(target.put(&Target::first_metric(), &[5]).await);
    }
    target.check_reports(&failed, &mut problems).await?;
    faults.end()?;
    problems.check(target.recovers().await);
    problems.check(target.survives_kill_9().await);
    problems.report()
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_syncs_of_uids_stop_assignments_until_they_succeed() -> anyhow::Result<()> {
    failing_syncs("uid").await
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_syncs_of_points_stop_writes_until_they_succeed() -> anyhow::Result<()> {
    failing_syncs("data/points").await
}

/// The files below the data folder cannot be changed for a while: `mount -o remount,ro`, which the kernel refuses while a
/// file is open for writing, and `remount,rw`, as the server sees them.
#[tokio::test(flavor = "multi_thread")]
async fn a_readonly_folder_stops_writes_until_it_is_writable() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("data");
    let Some(faults) = Faults::for_files_below(&data_dir)? else {
        return Ok(());
    };
    let mut target = Target::start(&data_dir, faults.variables()).await?;
    let mut problems = Problems::default();
    faults.make_readonly()?;
    for refusal in target.refused().await? {
        problems.check(refusal.is_retryable());
        problems.check(refusal.names_a_file(&data_dir));
    }
    problems.check(target.check_reads().await.context("while read-only"));
    target.check_reports(&faults.failed(), &mut problems).await?;
    faults.end()?;
    problems.check(target.recovers().await);
    problems.check(target.survives_kill_9().await);
    problems.report()
}

/// The kernel makes the file system read-only under the server. Only a repair by the operator makes it writable.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_turns_readonly_loses_nothing() -> anyhow::Result<()> {
    let Some(disk) = Disk::mount("a_file_system_that_turns_readonly_loses_nothing", 256)? else {
        return Ok(());
    };
    let data_dir = disk.path().join("data");
    let mut target = Target::start(&data_dir, Vec::new()).await?;
    let mut problems = Problems::default();
    disk.fail()?;
    for refusal in target.refused().await? {
        problems.check(refusal.is_retryable());
        problems.check(refusal.names_a_file(&data_dir));
    }
    problems.check(target.check_reads().await.context("while read-only"));
    let page = target.tsdb.admin().get("/readyz").await?;
    // From the data folder on.
    if !["uid/journal/", "data/points/journal/"]
        .iter()
        .any(|file| page.body.contains(file))
    {
        problems.0.push(format!("/readyz names no file: {page:?}"));
    }
    target.tsdb.kill9()?;
    disk.repair()?;
    problems.check(target.restarts().await);
    // The disk is used while the server runs.
    drop(target);
    problems.report()
}

/// A full device: a file of others takes each free block, and is removed again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_device_stops_writes_until_there_is_space() -> anyhow::Result<()> {
    let Some(disk) = Disk::mount("a_full_device_stops_writes_until_there_is_space", 256)? else {
        return Ok(());
    };
    let data_dir = disk.path().join("data");
    let mut target = Target::start(&data_dir, Vec::new()).await?;
    let mut problems = Problems::default();
    let filler = disk.fill()?;
    // Files may have allocated blocks that are not used yet.
    let mut names = 0;
    while target.assign().await.is_ok() {
        names += 1;
        ensure!(names < 5000, "the disk never fills");
    }
    let mut points = 0;
    while target
        .put(&Target::first_metric(), &[20 + points % 100])
        .await
        .is_ok()
    {
        points += 1;
        ensure!(points < 5000, "the disk never fills");
    }
    println!("the disk is full after {names} names and {points} points");
    for refusal in target.refused().await? {
        problems.check(refusal.is(Code::ResourceExhausted, ErrorReason::StoreFull));
        problems.check(refusal.names_no_file(&data_dir));
    }
    problems.check(target.check_reads().await.context("on the full disk"));
    std::fs::remove_file(filler)?;
    problems.check(target.recovers().await);
    problems.check(target.survives_kill_9().await);
    // The disk is used while the server runs.
    drop(target);
    problems.report()
}
