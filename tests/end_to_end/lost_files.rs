//! Each file and folder of the embedded store removed, emptied, cut, or replaced by an older copy: the start fails, or the
//! server serves and names the loss. After a failed start, `tsdb store salvage` accepts the loss, or says that it cannot;
//! then the server serves the rest. In no case does a name get the number of another, or a metric the points of another.
//!
//! The cases are the files that are there, whatever the layout of the stores is. `OXTSDB_LOST_FILES` sets how many
//! of the cases are run, drawn at random; with more than there are, all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use futures::StreamExt as _;
use oxtsdb_proto::data::v1::check_store_response::Event;
use oxtsdb_proto::data::v1::store_admin_service_client::StoreAdminServiceClient;
use oxtsdb_proto::data::v1::{CheckStoreRequest, GetStoreStatsRequest};
use oxtsdb_tests::http::{Http, HttpResponse};
use oxtsdb_tests::ledger::{self, Ledger, Metric};
use oxtsdb_tests::{Options, Tsdb, program_path, random, sizes};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use tempfile::TempDir;

/// Cases that are run unless `OXTSDB_LOST_FILES` says otherwise.
const CASES: usize = 8;

/// Cases at the same time.
const AT_ONCE: usize = 3;

/// The damage of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// It is removed.
    Removed,
    /// It has no bytes.
    Emptied,
    /// It has the first half of its bytes.
    Cut,
    /// It is as it was after the first stop of the server; it is absent if it was.
    Older,
}

impl Damage {
    const OF_FILES: [Self; 4] = [Self::Removed, Self::Emptied, Self::Cut, Self::Older];
    const OF_FOLDERS: [Self; 2] = [Self::Removed, Self::Older];
}

/// A damage of a file or folder below the data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    path: PathBuf,
    damage: Damage,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.damage {
            Damage::Removed => "removed",
            Damage::Emptied => "emptied",
            Damage::Cut => "cut",
            Damage::Older => "older copy",
        };
        write!(f, "{} {what}", self.path.display())
    }
}

impl Case {
    /// Damages a copy of the folder.
    fn apply(&self, data_dir: &Path, older: &Path) -> anyhow::Result<()> {
        let path = data_dir.join(&self.path);
        match self.damage {
            Damage::Removed => remove(&path),
            Damage::Emptied => Ok(fs::write(&path, "")?),
            Damage::Cut => {
                let half = fs::metadata(&path)?.len() / 2;
                Ok(fs::File::options().write(true).open(&path)?.set_len(half)?)
            }
            Damage::Older => {
                remove(&path)?;
                copy(&older.join(&self.path), &path)
            }
        }
    }

    /// Whether a text names the file or folder, or a file below it.
    fn is_named_by(&self, text: &str, data_dir: &Path) -> bool {
        // An older file contradicts others of its store, and nothing says which one is wrong.
        if self.damage == Damage::Older {
            let store: PathBuf = self.path.components().take(1).collect();
            return text.contains(&data_dir.join(store).display().to_string());
        }
        // A file that is set aside keeps its name.
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let is_distinct = name.len() >= 8 && text.contains(&*name);
        let is_deep = self.path.components().count() > 1;
        let below = is_deep && text.contains(&self.path.display().to_string());
        is_distinct || below || text.contains(&data_dir.join(&self.path).display().to_string())
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    removed.with_context(|| path.display().to_string())
}

/// Copies a file or folder; nothing if it does not exist.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_file() {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
    } else if from.is_dir() {
        fs::create_dir_all(to)?;
        // The server warns of a folder that others may read.
        fs::set_permissions(to, fs::metadata(from)?.permissions())?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
    }
    Ok(())
}

/// The files with their bytes, and the folders, below a folder; by their paths from there.
fn tree(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, Option<Vec<u8>>>> {
    let mut entries = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below))? {
            let path = below.join(entry?.file_name());
            let whole = folder.join(&path);
            let bytes = match whole.is_dir() {
                true => None,
                false => Some(fs::read(whole)?),
            };
            if bytes.is_none() {
                folders.push(path.clone());
            }
            entries.insert(path, bytes);
        }
    }
    Ok(entries)
}

/// All cases that change something.
fn cases(whole: &Path, older: &Path) -> anyhow::Result<Vec<Case>> {
    let (whole, older) = (tree(whole)?, tree(older)?);
    let below = |tree: &BTreeMap<PathBuf, Option<Vec<u8>>>, path: &Path| {
        let entries = tree.iter().filter(|(entry, _)| entry.starts_with(path));
        entries
            .map(|(path, bytes)| (path.clone(), bytes.clone()))
            .collect::<Vec<_>>()
    };
    let mut cases = Vec::new();
    for (path, bytes) in &whole {
        let damages = match bytes {
            Some(_) => &Damage::OF_FILES[..],
            None => &Damage::OF_FOLDERS[..],
        };
        for damage in damages {
            let length = bytes.as_ref().map_or(0, Vec::len);
            let changes = match damage {
                Damage::Removed => true,
                Damage::Emptied => length > 0,
                Damage::Cut => length > 1,
                // A file that the older copy lacks is the case of a removed one.
                Damage::Older => older.contains_key(path) && below(&whole, path) != below(&older, path),
            };
            if changes {
                cases.push(Case {
                    path: path.clone(),
                    damage: *damage,
                });
            }
        }
    }
    Ok(cases)
}

/// A folder as a crash left it, its older copy, and what was acknowledged.
struct Folders {
    folder: TempDir,
    ledger: Ledger,
}

impl Folders {
    fn whole(&self) -> PathBuf {
        self.folder.path().join("whole")
    }

    fn older(&self) -> PathBuf {
        self.folder.path().join("older")
    }

    /// Runs a server three times: stopped, copied, stopped, killed. So there are files of points, and journals with
    /// more.
    async fn prepare() -> anyhow::Result<Self> {
        let mut folders = Self {
            folder: TempDir::with_prefix("oxtsdb-test-")?,
            ledger: Ledger::default(),
        };
        let whole = folders.whole();
        let mut tsdb = Tsdb::start_with(Options::default().data_dir(&whole)).await?;
        folders.write(&tsdb, 0..6, &[0, 1, 5, 6]).await?;
        tsdb.terminate().await?;
        copy(&whole, &folders.older())?;
        tsdb.restart().await?;
        folders.write(&tsdb, 3..12, &[2, 7, 8]).await?;
        tsdb.terminate().await?;
        tsdb.restart().await?;
        folders.write(&tsdb, 9..18, &[3, 9]).await?;
        tsdb.kill9()?;
        Ok(folders)
    }

    /// Writes points of metrics, some of them new, and assigns as many other names.
    async fn write(
        &mut self,
        tsdb: &Tsdb,
        metrics: std::ops::Range<i64>,
        points: &[i64],
    ) -> anyhow::Result<()> {
        for number in metrics {
            add(&tsdb.http(), &mut self.ledger, "m", number, points)
                .await?
                .map_err(|refused| anyhow::anyhow!(refused))?;
        }
        Ok(())
    }

    /// Runs a case.
    async fn run(&self, case: &Case) -> anyhow::Result<Outcome> {
        let folder = TempDir::with_prefix("oxtsdb-test-")?;
        let data_dir = folder.path().join("data");
        copy(&self.whole(), &data_dir)?;
        case.apply(&data_dir, &self.older())?;
        let options = Options::default().data_dir(&data_dir);
        let mut wrong = Vec::new();
        let mut refused_start = None;
        let mut tsdb = match Tsdb::try_start(options).await? {
            Ok(tsdb) => tsdb,
            Err(log) => {
                let error = log.lines().find_map(|line| line.strip_prefix("tsdb: "));
                let error = error.with_context(|| format!("no error:\n{log}"))?;
                if !case.is_named_by(error, &data_dir) {
                    wrong.push("the error of the start names another file".to_owned());
                }
                // The commands and flags that help.
                if !["`tsdb ", " --", "restore", "remove"]
                    .iter()
                    .any(|word| error.contains(word))
                {
                    wrong.push("the error of the start does not say what to do".to_owned());
                }
                let shown = error.replace(&folder.path().display().to_string(), "…");
                let shown = format!("start refused: {shown}");
                match salvage(&data_dir).await? {
                    Ok(tsdb) => {
                        refused_start = Some(shown);
                        tsdb
                    }
                    Err(output) => {
                        let output = output.replace(&folder.path().display().to_string(), "…");
                        let what = format!("{shown}; NOT SALVAGED: {}", output.trim().replace('\n', " / "));
                        return Ok(Outcome { what, wrong });
                    }
                }
            }
        };
        let before = self.ledger.compare(&tsdb).await?;
        // New names, with points, and points of names of before.
        let mut ledger = self.ledger.clone();
        let mut refused = None;
        // A name that was lost by an accepted loss becomes another one if it is used again.
        let known = (0..3).filter(|_| refused_start.is_none());
        let known = known.map(|number| ("m", number));
        let new = (100..110).map(|number| ("new", number));
        for (prefix, number) in known.chain(new) {
            if let Err(refusal) = add(&tsdb.http(), &mut ledger, prefix, number, &[4]).await? {
                refused.get_or_insert(refusal);
            }
        }
        let after = ledger.compare(&tsdb).await?;

        let mut reports = reports(&mut tsdb).await?;
        reports.extend(after.unreadable.iter().cloned());
        let named_by = reports.iter().find(|text| case.is_named_by(text, &data_dir));
        if !after.is_only_loss() {
            wrong.push("served as if it were right".to_owned());
        }
        let is_named = named_by.is_some() || refused_start.is_some();
        let has_loss = !before.is_empty() || !after.is_empty();
        if has_loss && !is_named {
            wrong.push("no report names the loss".to_owned());
        }
        let what = match (before.is_empty(), after.is_empty(), refused) {
            (true, true, None) => "serves, nothing is missing".to_owned(),
            (_, _, None) => format!("serves: {before}; with new names: {after}"),
            (_, _, Some(refusal)) => format!("serves: {before}; with new names: {after}; refuses {refusal}"),
        };
        let what = match named_by {
            Some(report) => format!("{what}; reported: {report}"),
            None => what,
        };
        let what = match refused_start {
            Some(refused) => format!("{refused}; salvaged: {what}"),
            None => what,
        };
        let what = what.replace(&folder.path().display().to_string(), "…");
        Ok(Outcome { what, wrong })
    }
}

/// The outcome of a case, and what breaks a promise.
struct Outcome {
    what: String,
    wrong: Vec<String>,
}

/// Accepts the loss, as the error of the start says, and starts a server. Returns the output of a salvage that fails.
async fn salvage(data_dir: &Path) -> anyhow::Result<Result<Tsdb, String>> {
    let output = Command::new(program_path("tsdb")?)
        .args(["store", "salvage", "--yes", "--data-dir"])
        .arg(data_dir)
        .output()?;
    if !output.status.success() {
        return Ok(Err(
            String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?
        ));
    }
    let options = || Options::default().data_dir(data_dir);
    let log = match Tsdb::try_start(options()).await? {
        Ok(tsdb) => return Ok(Ok(tsdb)),
        Err(log) => log,
    };
    // The names are gone as a whole.
    ensure!(
        log.contains("--accept-uid-table"),
        "refused after a salvage:\n{log}"
    );
    let accepting = options().flags(["--accept-uid-table".to_owned()]);
    let started = Tsdb::try_start(accepting).await?;
    Ok(Ok(started.map_err(|log| {
        anyhow::anyhow!("refused after a salvage:\n{log}")
    })?))
}

/// Writes points and an annotation, and assigns a name. The server may reject each; returns the first error.
async fn add(
    http: &Http,
    ledger: &mut Ledger,
    prefix: &str,
    number: i64,
    points: &[i64],
) -> anyhow::Result<Result<(), String>> {
    let mut refused = None;
    let mut refuse = |response: HttpResponse| {
        refused.get_or_insert(format!("{}: {}", response.status, response.body));
    };
    let metric = Metric::new(format!("{prefix}.metric.{number}"), number);
    match ledger::put(http, &metric, points).await? {
        Ok(()) => ledger.written(&metric, points),
        Err(response) => refuse(response),
    }
    match ledger::annotate(http, number).await? {
        Ok(()) => ledger.annotated(number),
        Err(response) => refuse(response),
    }
    let name = format!("{prefix}.name.{number}");
    match ledger::assign(http, &name).await? {
        Ok(uid) => ledger.assigned_again(&name, uid),
        Err(response) => refuse(response),
    }
    Ok(refused.map_or(Ok(()), Err))
}

/// The places where a server names what it has lost.
async fn reports(tsdb: &mut Tsdb) -> anyhow::Result<Vec<String>> {
    let mut reports = vec![tsdb.admin().get("/readyz").await?.body];
    let log = tsdb.process().log();
    // Other lines name folders too.
    let warnings = log
        .lines()
        .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
    reports.extend(warnings.map(str::to_owned));
    let mut client = StoreAdminServiceClient::new(tsdb.data_channel());
    let stats = client.get_store_stats(GetStoreStatsRequest::default()).await?;
    let damage = stats.into_inner().damage.into_iter();
    reports.extend(damage.map(|damage| format!("{}: {}", damage.path, damage.detail)));
    let check = CheckStoreRequest {
        bytes_per_second: Some(0),
    };
    let mut check = client.check_store(check).await?.into_inner();
    while let Some(response) = check.next().await {
        if let Some(Event::Finding(finding)) = response?.event {
            reports.push(format!("{}: {}", finding.path, finding.detail));
        }
    }
    Ok(reports)
}

/// Some of the cases: always whole stores, then any.
fn sample(mut cases: Vec<Case>, count: usize, random: &mut StdRng) -> Vec<Case> {
    cases.shuffle(random);
    cases.sort_by_key(|case| case.path.components().count() > 1);
    cases.truncate(count);
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_file_is_named_and_costs_nothing_else() -> anyhow::Result<()> {
    let mut random = random::seeded("lost_files")?;
    let folders = Folders::prepare().await?;
    let all = cases(&folders.whole(), &folders.older())?;
    ensure!(all.len() > 20, "only {} cases", all.len());
    let total = all.len();
    let chosen = sample(
        all,
        sizes::from_environment("OXTSDB_LOST_FILES", CASES)?,
        &mut random,
    );
    let count = chosen.len();
    let folders = &folders;
    let mut outcomes = futures::stream::iter(chosen)
        .map(|case| async move { (folders.run(&case).await, case) })
        .buffered(AT_ONCE);
    let mut broken = Vec::new();
    while let Some((outcome, case)) = outcomes.next().await {
        let outcome = outcome.unwrap_or_else(|error| Outcome {
            what: "the test stops".to_owned(),
            wrong: vec![format!("{error:#}")],
        });
        match outcome.wrong.is_empty() {
            true => println!("ok   {case}: {}", outcome.what),
            false => {
                println!("RED  {case}: {}; {}", outcome.wrong.join(", "), outcome.what);
                broken.push(format!("{case}: {}; {}", outcome.wrong.join(", "), outcome.what));
            }
        }
    }
    println!(
        "{} of {count} cases break a promise, {total} cases in all",
        broken.len()
    );
    ensure!(
        broken.is_empty(),
        "{} of {count} cases:\n{}",
        broken.len(),
        broken.join("\n")
    );
    Ok(())
}

/// The comparison itself finds no difference where nothing is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn an_intact_folder_has_no_loss() -> anyhow::Result<()> {
    let folders = Folders::prepare().await?;
    let mut tsdb = match Tsdb::try_start(Options::default().data_dir(&folders.whole())).await? {
        Ok(tsdb) => tsdb,
        Err(log) => bail!("the start is refused:\n{log}"),
    };
    let differences = folders.ledger.compare(&tsdb).await?;
    ensure!(differences.is_empty(), "{differences}");
    let points = folders.ledger.points();
    ensure!(points == 6 * 4 + 9 * 3 + 9 * 2, "{points} points");
    // Nor is one reported.
    let whole = folders.whole().display().to_string();
    for report in reports(&mut tsdb).await? {
        ensure!(!report.contains(&whole), "{report}");
    }
    // The older folder has a part of them, and the comparison says what is missing.
    drop(tsdb);
    let tsdb = Tsdb::start_with(Options::default().data_dir(&folders.older())).await?;
    let differences = folders.ledger.compare(&tsdb).await?;
    ensure!(
        differences.is_only_loss() && !differences.lost.is_empty(),
        "{differences}"
    );
    Ok(())
}
