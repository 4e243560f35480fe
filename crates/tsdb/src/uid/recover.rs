//! `tsdb uid recover`: makes a table of UIDs fit the points again, after it was lost or replaced by an older copy.
//!
//! Counters first, so that no number in use is assigned from then on; then a name for each UID in use that has none.
//! Each mapping is a conditional repair, so that the command can be repeated, and runs beside writers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use oxtsdb_client::proto::uid::v1::{UidCellChange, UidRepair};
use oxtsdb_client::{
    DataClient, ErrorReason, ReferencedUids, Uid, UidClient, UidKind, UidLayout, UidSet, UidUsage,
};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::{DataTarget, Server};

use super::line::line;

/// UIDs of a request.
const BATCH: usize = 4096;

/// Repairs of a request.
const REPAIRS: usize = 256;

/// Families of table `tsdb-uid`: names to UIDs, and UIDs to names.
const ID: &str = "id";
const NAME: &str = "name";

/// Repair the table of UIDs after it was lost or replaced by an older copy
///
/// Searches the tables of a data service for UIDs, then raises the counters above all of them, so that UIDs are
/// assigned again, and gives each UID in use that has no name a name: the one that still leads to it, the one in
/// --names, or a placeholder such as `lost-metrics-00002A`, which `tsdb uid rename` replaces once the name is known.
/// Prints each name. Restore the folder uid in place of this if there is a copy of its last state. With several data
/// services, run it once for each.
///
/// UIDs get a placeholder, too, if their names were deleted on purpose. Exit status: 1 if a UID has no name afterwards.
#[derive(Debug, Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    target: DataTarget,
    /// Mappings as `tsdb uid grep` prints them, `KIND NAME: UID` a line, from an older copy or an export
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Print what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Where the name of a UID is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The name leads to the UID; the way back was lost.
    Forward,
    /// The file of names.
    File,
    /// None: a placeholder.
    Lost,
}

impl Source {
    const fn label(self) -> &'static str {
        match self {
            Self::Forward => "recovered",
            Self::File => "from the file",
            Self::Lost => "lost",
        }
    }
}

/// A name for a UID that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Recovered {
    kind: UidKind,
    uid: Uid,
    name: String,
    source: Source,
}

/// Mappings of a file.
type Names = HashMap<(UidKind, Uid), String>;

/// Runs `tsdb uid recover`.
///
/// # Errors
///
/// A call fails as a whole, or the file cannot be read.
pub(super) async fn run(server: &Server<UidClient>, args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    let failed = |error| server.error("uid recover", &error);
    let given = match &args.names {
        Some(file) => read_names(file)?,
        None => Names::new(),
    };
    let layout = server.client.get_uid_layout().await.map_err(failed)?;
    let usage = server.client.get_uid_usage().await.map_err(failed)?;
    let data: Server<DataClient> = args.target.data()?;
    let search = data.client.without_deadline();
    let references = search.list_referenced_uids(&layout, &[], |_| {}).await;
    let references = references.map_err(|error| data.error("uid recover", &error))?;
    if references.unknown > 0 {
        eprintln!(
            "{} rows or cells of unknown form may use further UIDs",
            references.unknown
        );
    }
    let is_random = |kind| layout.kind(kind).is_some_and(|layout| layout.random);
    for kind in UidKind::ALL.into_iter().filter(|kind| !is_random(*kind)) {
        raise(server, kind, &references, &usage, args.dry_run).await?;
    }
    let mut has_failed = false;
    for kind in UidKind::ALL {
        let used: Vec<Uid> = uids(references.get(kind), kind, &layout)?;
        let nameless = nameless(server, kind, &used).await?;
        let names = names(server, kind, nameless, &given).await?;
        let named = match args.dry_run {
            true => names,
            false => {
                let count = names.len();
                let named = put(server, names).await?;
                has_failed |= named.len() < count;
                named
            }
        };
        report(kind, used.len(), &named)?;
    }
    Ok(ExitCode::from(u8::from(has_failed)))
}

/// Raises the counter of a kind above all UIDs in use.
async fn raise(
    server: &Server<UidClient>,
    kind: UidKind,
    references: &ReferencedUids,
    usage: &UidUsage,
    dry_run: bool,
) -> anyhow::Result<()> {
    let of_kind = usage.kinds.iter().find(|usage| usage.kind == kind);
    // Series that have no points any more, and series of other data services.
    let reported = of_kind.map_or(0, |usage| usage.highest_in_use);
    let minimum = references.get(kind).iter().last().unwrap_or(0).max(reported);
    let counter = of_kind.map_or(0, |usage| usage.used);
    if minimum <= counter {
        let text = format!("{kind}: the counter is {counter}, in use are UIDs up to {minimum}\n");
        return Ok(print(&text)?);
    }
    if !dry_run {
        let raised = server.client.raise_uid_counter(kind, minimum).await;
        raised.map_err(|error| server.error("uid recover", &error))?;
    }
    print(&format!("{kind}: counter raised from {counter} to {minimum}\n"))?;
    Ok(())
}

fn uids(numbers: &UidSet, kind: UidKind, layout: &UidLayout) -> anyhow::Result<Vec<Uid>> {
    let width = layout.kind(kind).map_or(0, |layout| layout.width);
    let uid = |number: u64| {
        let bytes = number.to_be_bytes();
        let skipped = bytes.len().saturating_sub(width);
        Uid::from_bytes(bytes.get(skipped..).unwrap_or_default())
    };
    Ok(numbers.iter().map(uid).collect::<Result<_, _>>()?)
}

/// The UIDs that have no name.
async fn nameless(server: &Server<UidClient>, kind: UidKind, used: &[Uid]) -> anyhow::Result<Vec<Uid>> {
    let mut nameless = Vec::new();
    for batch in used.chunks(BATCH) {
        let batch: Vec<(UidKind, Uid)> = batch.iter().map(|uid| (kind, *uid)).collect();
        let names = server.client.lookup_names(&batch).await;
        let names = names.map_err(|error| server.error("uid recover", &error))?;
        for ((_, uid), name) in batch.into_iter().zip(names) {
            match name {
                Ok(_) => {}
                Err(rejection) if rejection.reason == Some(ErrorReason::UidNotFound) => nameless.push(uid),
                Err(rejection) => eprintln!("{kind} {uid}: {rejection}"),
            }
        }
    }
    Ok(nameless)
}

/// A name for each UID.
async fn names(
    server: &Server<UidClient>,
    kind: UidKind,
    nameless: Vec<Uid>,
    given: &Names,
) -> anyhow::Result<Vec<Recovered>> {
    let failed = |error| server.error("uid recover", &error);
    if nameless.is_empty() {
        return Ok(Vec::new());
    }
    let mut forward: HashMap<Uid, Option<String>> = nameless.iter().map(|uid| (*uid, None)).collect();
    let mut taken = std::collections::HashSet::new();
    let wanted: HashMap<&str, Uid> = nameless
        .iter()
        .filter_map(|uid| Some((given.get(&(kind, *uid))?.as_str(), *uid)))
        .collect();
    let mut export = server.client.without_deadline().export_uids(&[kind]);
    while let Some(mappings) = export.next().await.map_err(failed)? {
        for mapping in mappings {
            if wanted.contains_key(mapping.name.as_str()) {
                taken.insert(mapping.name.clone());
            }
            if let Some(name) = forward.get_mut(&mapping.uid) {
                name.get_or_insert(mapping.name);
            }
        }
    }
    let recovered = |uid: Uid| {
        let given = given.get(&(kind, uid)).filter(|name| !taken.contains(*name));
        let (name, source) = match (forward.get(&uid).cloned().flatten(), given) {
            (Some(name), _) => (name, Source::Forward),
            (None, Some(name)) => (name.clone(), Source::File),
            (None, None) => (format!("lost-{kind}-{uid}"), Source::Lost),
        };
        Recovered {
            kind,
            uid,
            name,
            source,
        }
    };
    Ok(nameless.into_iter().map(recovered).collect())
}

/// Puts mappings. Returns those that are stored.
async fn put(server: &Server<UidClient>, names: Vec<Recovered>) -> anyhow::Result<Vec<Recovered>> {
    let mut stored = Vec::with_capacity(names.len());
    for batch in names.chunks(REPAIRS) {
        let repairs = batch.iter().map(repair).collect::<anyhow::Result<_>>()?;
        let results = server.client.repair_uids(repairs).await;
        let results = results.map_err(|error| server.error("uid recover", &error))?;
        for (recovered, result) in batch.iter().zip(results) {
            match result {
                Ok(_effect) => stored.push(recovered.clone()),
                Err(rejection) => {
                    eprintln!(
                        "{} {} as {}: {rejection}",
                        recovered.kind, recovered.uid, recovered.name
                    );
                }
            }
        }
    }
    Ok(stored)
}

/// Both cells of a mapping, on the condition that neither has another value.
fn repair(recovered: &Recovered) -> anyhow::Result<UidRepair> {
    let Recovered {
        kind,
        uid,
        name,
        source,
    } = recovered;
    let uid = bytes::Bytes::copy_from_slice(uid.as_bytes());
    // The table has names as ISO-8859-1.
    let name = name.chars().map(|character| u8::try_from(u32::from(character)));
    let name: Vec<u8> = name
        .collect::<Result<_, _>>()
        .with_context(|| format!("`{}` has a character that is not in ISO-8859-1", recovered.name))?;
    let name = bytes::Bytes::from(name);
    let qualifier = bytes::Bytes::from_static(kind.qualifier());
    let is_forward = *source == Source::Forward;
    Ok(UidRepair {
        label: source.label().to_owned(),
        description: format!("name {} of {kind}", recovered.uid),
        changes: vec![
            UidCellChange {
                row: uid.clone(),
                family: NAME.to_owned(),
                qualifier: qualifier.clone(),
                old_value: None,
                new_value: Some(name.clone()),
            },
            UidCellChange {
                row: name,
                family: ID.to_owned(),
                qualifier,
                old_value: is_forward.then(|| uid.clone()),
                new_value: Some(uid),
            },
        ],
    })
}

fn report(kind: UidKind, used: usize, named: &[Recovered]) -> anyhow::Result<()> {
    let mut text: String = named
        .iter()
        .map(|recovered| line(kind, &recovered.name, recovered.uid))
        .collect();
    let count = |source| {
        named
            .iter()
            .filter(|recovered| recovered.source == source)
            .count()
    };
    let counts: Vec<String> = [Source::Forward, Source::File, Source::Lost]
        .iter()
        .map(|source| format!("{} {}", count(*source), source.label()))
        .collect();
    let summary = format!("{kind}: {used} UIDs in use, names: {}\n", counts.join(", "));
    text.push_str(&summary);
    print(&text)?;
    Ok(())
}

fn read_names(path: &Path) -> anyhow::Result<Names> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut names = Names::new();
    for (index, line) in text.lines().enumerate() {
        let mapping = || -> anyhow::Result<_> {
            let (kind, rest) = line.split_once(' ').context("expected `KIND NAME: UID`")?;
            let (name, uid) = rest.rsplit_once(": ").context("expected `KIND NAME: UID`")?;
            Ok(((kind.parse()?, Uid::parse(uid)?), name.to_owned()))
        };
        let (key, name) = mapping().with_context(|| format!("{}: line {}", path.display(), index + 1))?;
        names.insert(key, name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_lines_of_uid_grep() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        let uid = Uid::parse("00002A").unwrap();
        std::fs::write(&path, line(UidKind::Tagv, "a: b", uid)).unwrap();
        let names = read_names(&path).unwrap();
        assert_eq!(names[&(UidKind::Tagv, uid)], "a: b");
        std::fs::write(&path, "metrics a: 000001\nmetrics b 000002\n").unwrap();
        let error = format!("{:#}", read_names(&path).unwrap_err());
        assert!(error.ends_with("line 2: expected `KIND NAME: UID`"), "{error}");
    }

    #[test]
    fn a_repair_has_both_directions_and_is_conditional() {
        let recovered = |source| Recovered {
            kind: UidKind::Metric,
            uid: Uid::parse("00002A").unwrap(),
            name: "caf\u{e9}".to_owned(),
            source,
        };
        let [reverse, forward] =
            <[_; 2]>::try_from(repair(&recovered(Source::Lost)).unwrap().changes).unwrap();
        assert_eq!(
            (&reverse.row[..], &forward.row[..]),
            (&[0, 0, 42][..], &b"caf\xe9"[..])
        );
        assert_eq!((reverse.old_value, forward.old_value), (None, None));
        assert_eq!(forward.new_value.as_deref(), Some(&[0, 0, 42][..]));
        let guarded = repair(&recovered(Source::Forward)).unwrap().changes;
        assert_eq!(guarded[1].old_value, guarded[1].new_value);
    }
}
