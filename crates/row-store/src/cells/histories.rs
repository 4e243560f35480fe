//! Random histories on a simulated disk, each reproducible by its seed: every operation of the disk may fail once, in any
//! way, and then another one; the process is killed or the machine loses power, and the store goes on.
//!
//! The store's steps run on one thread, so that a seed always leads to the same operations. The model is a set of
//! possible states: an acknowledged group is applied to all of them, and must have had its outcomes in one; a group of
//! unknown outcome adds the states in which it took effect; a rejected one changes nothing. A read must return one of
//! the states.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_storage_file::disk::Disk as _;
use oxtsdb_storage_file::disk::simulated::{Fault, SimulatedDisk};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::CellConfig;
use super::background;
use super::catalog::Table;
use super::commit::{Change, Committer, Group};
use super::core::Core;
use super::queue::{Operation, Outcome, Queue};
use super::read::{self, View};
use crate::rules::Columns;
use crate::{CellAddress, Clock, Condition, Retry, StoreError, TableDef, WriteBatch};

const FOLDER: &str = "/store";
const ROWS: u64 = 12;
const NAMES: u64 = 40;

/// Row and qualifier.
type Cell = (Vec<u8>, u8);
/// The newest value of each cell.
type State = BTreeMap<Cell, Vec<u8>>;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405);
        (self.0 >> 33) % bound
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_be_bytes()[7]
    }
}

/// A request of a caller.
#[derive(Clone, Debug)]
enum Call {
    /// Puts and deletes of some rows: a value, or none to delete the cell.
    Write(Vec<(Cell, Option<Vec<u8>>)>),
    DeleteRow(Vec<u8>),
    Increment(Vec<u8>, i64),
    Append(Vec<u8>, Vec<u8>),
    CheckAndPut(Cell, Option<Vec<u8>>, Vec<u8>),
    /// Assigns the number behind the counter's to a name, if the counter is as expected and the name has none.
    Assign {
        name: Vec<u8>,
        counter: Option<Vec<u8>>,
    },
}

const COUNTER: u8 = b'c';
const NAME: u8 = b'n';
const UID: u8 = b'u';

fn uid_counter() -> (Vec<u8>, u8) {
    (vec![0], COUNTER)
}

fn number(value: Option<&Vec<u8>>) -> i64 {
    value.map_or(0, |value| {
        i64::from_be_bytes(value.as_slice().try_into().unwrap())
    })
}

impl Call {
    fn random(random: &mut Random, state: &State) -> Self {
        let row = |random: &mut Random| {
            let row = random.below(ROWS);
            [b"row ".as_slice(), &row.to_be_bytes()[6..]].concat()
        };
        let value = |random: &mut Random| vec![random.byte(); usize::try_from(random.below(90)).unwrap()];
        match random.below(10) {
            0..4 => {
                let cells = (0..1 + random.below(4)).map(|_| {
                    let cell = (row(random), b'a' + u8::try_from(random.below(2)).unwrap());
                    let value = (!random.chance(5)).then(|| value(random));
                    (cell, value)
                });
                Self::Write(cells.collect())
            }
            4 => Self::DeleteRow(row(random)),
            5 => Self::Increment(row(random), i64::try_from(random.below(5)).unwrap()),
            6 => Self::Append(row(random), value(random)),
            7 => {
                let cell = (row(random), b'a');
                let expected = if random.chance(4) {
                    Some(value(random))
                } else {
                    state.get(&cell).cloned()
                };
                Self::CheckAndPut(cell, expected, value(random))
            }
            _ => Self::Assign {
                name: [b"name ".as_slice(), &random.below(NAMES).to_be_bytes()[6..]].concat(),
                counter: state.get(&uid_counter()).cloned(),
            },
        }
    }

    fn operation(&self, table: &TableDef) -> Operation {
        let mut batch = WriteBatch::new(table.name.clone());
        let family = batch.family("f");
        let address = |(row, qualifier): &(Vec<u8>, u8)| CellAddress::new(row.clone(), "f", vec![*qualifier]);
        let families = vec![0];
        match self {
            Self::Write(cells) => {
                for ((row, qualifier), value) in cells {
                    match value {
                        Some(value) => batch.row(row).put(family, &[*qualifier], value),
                        None => batch.row(row).delete_column(family, &[*qualifier]),
                    };
                }
                Operation::Write { batch, families }
            }
            Self::DeleteRow(row) => {
                batch.row(row).delete_row();
                Operation::Write { batch, families }
            }
            Self::Increment(row, amount) => Operation::Increment {
                cell: address(&(row.clone(), COUNTER)),
                amount: *amount,
            },
            Self::Append(row, value) => Operation::Append {
                cell: address(&(row.clone(), b'p')),
                value: value.clone(),
            },
            Self::CheckAndPut(cell, expected, value) => {
                batch.row(&cell.0).put(family, &[cell.1], value);
                Operation::CommitIf {
                    conditions: vec![Condition {
                        cell: address(cell),
                        expected: expected.clone(),
                    }],
                    batch,
                    families,
                }
            }
            Self::Assign { name, counter } => {
                let next = number(counter.as_ref()) + 1;
                let counter_cell = uid_counter();
                batch
                    .row(&counter_cell.0)
                    .put(family, &[counter_cell.1], &next.to_be_bytes());
                batch.row(name).put(family, &[UID], &next.to_be_bytes());
                batch.row(&next.to_be_bytes()).put(family, &[NAME], name);
                let absent = Condition {
                    cell: address(&(name.clone(), UID)),
                    expected: None,
                };
                let unchanged = Condition {
                    cell: address(&counter_cell),
                    expected: counter.clone(),
                };
                Operation::CommitIf {
                    conditions: vec![absent, unchanged],
                    batch,
                    families,
                }
            }
        }
    }

    /// Applies the call to a state; returns its outcome.
    fn apply(&self, state: &mut State) -> String {
        let empty_is_absent = |value: Option<&Vec<u8>>| value.cloned().unwrap_or_default();
        let outcome = match self {
            Self::Write(cells) => {
                for (cell, value) in cells {
                    match value {
                        Some(value) => drop(state.insert(cell.clone(), value.clone())),
                        None => drop(state.remove(cell)),
                    }
                }
                Outcome::Done
            }
            Self::DeleteRow(row) => {
                state.retain(|(cell_row, _), _| cell_row != row);
                Outcome::Done
            }
            Self::Increment(row, amount) => {
                let cell = (row.clone(), COUNTER);
                let sum = number(state.get(&cell)) + amount;
                if *amount != 0 {
                    state.insert(cell, sum.to_be_bytes().to_vec());
                }
                Outcome::Sum(sum)
            }
            Self::Append(row, value) => {
                let appended = state.entry((row.clone(), b'p')).or_default();
                appended.extend_from_slice(value);
                Outcome::Appended(appended.clone())
            }
            Self::CheckAndPut(cell, expected, value) => {
                let holds = empty_is_absent(state.get(cell)) == empty_is_absent(expected.as_ref());
                if holds {
                    state.insert(cell.clone(), value.clone());
                }
                Outcome::Held(holds)
            }
            Self::Assign { name, counter } => {
                let holds = !state.contains_key(&(name.clone(), UID))
                    && state.get(&uid_counter()) == counter.as_ref();
                if holds {
                    let next = (number(counter.as_ref()) + 1).to_be_bytes().to_vec();
                    state.insert(uid_counter(), next.clone());
                    state.insert((name.clone(), UID), next.clone());
                    state.insert((next, NAME), name.clone());
                }
                Outcome::Held(holds)
            }
        };
        format!("{outcome:?}")
    }
}

fn check_possible(worlds: &[State], state: &State, context: &str) {
    let differences = worlds.iter().map(|world| {
        let missing = world
            .iter()
            .filter(|(cell, value)| state.get(*cell) != Some(value));
        let extra = state
            .iter()
            .filter(|(cell, value)| world.get(*cell) != Some(value));
        format!(
            "expected {:?}, found {:?}",
            missing.collect::<Vec<_>>(),
            extra.collect::<Vec<_>>()
        )
    });
    assert!(
        worlds.contains(state),
        "{context}: {:#?}",
        differences.collect::<Vec<_>>()
    );
}

/// Names with one UID, and UIDs with one name.
fn check_uids(state: &State, context: &str) {
    let names = state.iter().filter(|((_, qualifier), _)| *qualifier == UID);
    let mut uids = BTreeSet::new();
    for ((name, _), uid) in names {
        assert!(uids.insert(uid.clone()), "{context}: two names have UID {uid:?}");
        let reverse = state.get(&(uid.clone(), NAME));
        assert_eq!(reverse, Some(name), "{context}: the reverse mapping differs");
        assert!(
            number(Some(uid)) <= number(state.get(&uid_counter())),
            "{context}: counter"
        );
    }
}

fn config(disk: &SimulatedDisk) -> CellConfig {
    let mut config = CellConfig::new(FOLDER);
    // Flushes every few groups.
    config.memory_bytes = 4 * 6_000;
    config.cache_bytes = 64 << 10;
    config.clock = Clock::new(|| 1_700_000_000_000);
    config.disk = Arc::new(disk.clone());
    config
}

struct Running<'a> {
    core: &'a Core,
    committer: Committer<'a>,
    table: Arc<Table>,
}

/// The replies to a group of calls.
enum Answered {
    /// `None`: the call failed without effect, because a read did.
    Outcomes(Vec<Option<String>>),
    Rejected,
    Unknown,
}

impl Running<'_> {
    fn call(&mut self, calls: &[Call]) -> Answered {
        let permits = Arc::new(Semaphore::new(calls.len()));
        let mut group = Group::default();
        let mut replies = Vec::new();
        for call in calls {
            let (reply, response) = oneshot::channel();
            replies.push(response);
            let change = Change {
                table: Arc::clone(&self.table),
                operation: call.operation(&self.table.def),
                reply,
                permit: Arc::clone(&permits).try_acquire_owned().unwrap(),
            };
            group.evaluate(self.core, change);
        }
        self.committer.commit(&mut group);
        let replies = replies.into_iter().map(|mut reply| reply.try_recv().unwrap());
        let replies: Vec<Result<Outcome, StoreError>> = replies.collect();
        let is = |retry: Retry| {
            let mut replies = replies.iter();
            replies.all(|reply| reply.as_ref().is_err_and(|error| error.retry() == retry))
        };
        if is(Retry::Safe) {
            return Answered::Rejected;
        }
        if is(Retry::IfIdempotent) {
            return Answered::Unknown;
        }
        let outcomes = replies
            .into_iter()
            .map(|reply| reply.ok().map(|outcome| format!("{outcome:?}")));
        Answered::Outcomes(outcomes.collect())
    }

    /// Flushes and merges as the threads do; errors are repeated later.
    fn background(&mut self, random: &mut Random) {
        if self.core.tree.version().active.byte_len() >= self.core.memtable_bytes || random.chance(10) {
            drop(self.committer.freeze());
        }
        let is_due =
            |core: &Core, random: &mut Random| core.tree.version().frozen.len() > 1 || random.chance(2);
        if is_due(self.core, random)
            && let Some(frozen) = self.core.tree.version().frozen.first()
        {
            let flushed = background::flush_memtable(self.core, frozen);
            self.core.background.lock().flush_error = flushed.err();
        }
        if random.chance(3) {
            drop(background::merge_next(self.core));
        }
    }
}

/// All cells of the table.
fn contents(core: &Core, table: &Table) -> Result<State, StoreError> {
    let mut rows = Vec::new();
    let view = View::new(core, table, Columns::All, 1);
    let mut cursor = read::Cursor {
        scan: crate::Scan::range([], []),
        view,
        done: false,
    };
    while !cursor.done {
        rows.extend(
            core.tree
                .read(|snapshot| read::step(core, snapshot, table, &mut cursor))?,
        );
    }
    let mut state = State::new();
    for row in &rows {
        for cell in row.cells() {
            state.insert((row.key().to_vec(), cell.qualifier[0]), cell.value.to_vec());
        }
    }
    Ok(state)
}

/// Opens the store, which must work without a fault, and compares it with the possible states.
fn open(
    disk: &SimulatedDisk,
    worlds: &mut Vec<State>,
    context: &str,
) -> (Core, oxtsdb_storage_file::journal::Journal) {
    let (core, journal) =
        Core::open(config(disk)).unwrap_or_else(|error| panic!("{context}: {error}; {:?}", disk.files()));
    core.catalog
        .create(&TableDef::new("t".parse().unwrap(), &["f"]))
        .unwrap();
    let table = core.catalog.table(&"t".parse().unwrap()).unwrap();
    let state = contents(&core, &table).unwrap_or_else(|error| panic!("{context}: {error}"));
    check_possible(worlds, &state, context);
    check_uids(&state, context);
    *worlds = vec![state];
    (core, journal)
}

/// Kinds of faults and how often they were reached.
type Reached = BTreeMap<String, u64>;

/// Runs calls with faults until a crash. Returns the disk after it.
fn life(
    disk: &SimulatedDisk,
    core: &Core,
    journal: oxtsdb_storage_file::journal::Journal,
    random: &mut Random,
    worlds: &mut Vec<State>,
    reached: &mut Reached,
    context: &str,
) {
    let queue = Queue::new(1 << 20);
    // A failure that is not repaired at once ends the process, which reports an unknown outcome.
    queue.close();
    let table = core.catalog.table(&"t".parse().unwrap()).unwrap();
    let mut running = Running {
        core,
        committer: Committer::new(core, &queue, journal),
        table,
    };
    let mut armed = false;
    let mut faults = Vec::new();
    for step in 0..10 + random.below(60) {
        if !armed && random.chance(4) {
            let fault = Fault::ALL[usize::try_from(random.below(4)).unwrap()];
            let error = if random.chance(2) {
                ErrorKind::StorageFull
            } else {
                ErrorKind::Other
            };
            disk.inject(random.below(40), fault, error);
            faults.push(fault);
            armed = true;
        } else if random.chance(60) {
            disk.set_free_bytes(random.below(2_000_000));
        } else if random.chance(6) {
            disk.set_free_bytes(1 << 40);
        }
        if armed && let Some((operation, path)) = disk.injected() {
            let kind = path
                .rsplit('.')
                .next()
                .unwrap_or_default()
                .rsplit('/')
                .next()
                .unwrap_or_default();
            let fault = faults.last().map_or(String::new(), |fault| format!("{fault:?}"));
            *reached.entry(format!("{operation} {kind}: {fault}")).or_default() += 1;
            armed = false;
        }
        let calls: Vec<Call> = (0..1 + random.below(4))
            .map(|_| Call::random(random, &worlds[0]))
            .collect();
        match running.call(&calls) {
            Answered::Outcomes(outcomes) => {
                let mut next = Vec::new();
                for world in &*worlds {
                    let mut world = world.clone();
                    let answered = calls.iter().zip(&outcomes);
                    let expected =
                        answered.map(|(call, outcome)| outcome.as_ref().map(|_| call.apply(&mut world)));
                    let expected: Vec<Option<String>> = expected.collect();
                    if expected == outcomes {
                        next.push(world);
                    }
                }
                assert!(
                    !next.is_empty(),
                    "{context}, step {step}: {calls:?} had {outcomes:?} in none of {worlds:?}"
                );
                *worlds = next;
            }
            Answered::Rejected => {}
            Answered::Unknown => {
                let happened = worlds.iter().map(|world| {
                    let mut world = world.clone();
                    calls.iter().for_each(|call| drop(call.apply(&mut world)));
                    world
                });
                let happened: Vec<State> = happened.collect();
                worlds.extend(happened);
                // The process ends.
                break;
            }
        }
        running.background(random);
        if random.chance(8) {
            let state = contents(core, &running.table);
            if let Ok(state) = state {
                check_possible(worlds, &state, &format!("{context}, step {step}"));
            }
        }
    }
    core.stopping.store(true, Ordering::Relaxed);
}

fn crash(disk: &SimulatedDisk, random: &mut Random) -> SimulatedDisk {
    let crashed = match random.below(3) {
        0 => disk.kill(),
        1 => disk.power_loss(),
        _ => disk.power_loss_seeded(random.below(u64::MAX)),
    };
    crashed.set_free_bytes(1 << 40);
    crashed
}

fn history(seed: u64, reached: &mut Reached) {
    let mut random = Random(seed);
    let mut disk = SimulatedDisk::new();
    let mut worlds = vec![State::new()];
    for life_number in 0..4 {
        let context = format!("seed {seed}, life {life_number}");
        if random.chance(2) {
            // Opening fails, in any operation, and is repeated.
            let fault = Fault::ALL[usize::try_from(random.below(4)).unwrap()];
            disk.inject(random.below(60), fault, ErrorKind::Other);
            drop(Core::open(config(&disk)));
            disk = crash(&disk, &mut random);
        }
        let (core, journal) = open(&disk, &mut worlds, &context);
        life(&disk, &core, journal, &mut random, &mut worlds, reached, &context);
        let crashed = crash(&disk, &mut random);
        drop(core);
        disk = crashed;
    }
    drop(open(&disk, &mut worlds, &format!("seed {seed}, end")));
}

/// `OXTSDB_HISTORIES=100000` for a longer run, `OXTSDB_HISTORY=7` for that seed alone.
#[test]
fn faults_and_crashes_lose_nothing_that_was_acknowledged() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|value| value.parse::<u64>().unwrap())
    };
    let seeds = match number("OXTSDB_HISTORY") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OXTSDB_HISTORIES").unwrap_or(80),
    };
    let next = AtomicU64::new(seeds.start);
    let reached = Mutex::new(Reached::new());
    let run = || {
        let mut own = Reached::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            history(seed, &mut own);
        }
        let mut reached = reached.lock();
        for (operation, count) in own {
            *reached.entry(operation).or_default() += count;
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    println!("operations that failed: {:#?}", reached.lock());
}

/// Damages each file of a store in each way: opening fails and names a file, or each cell is right or its read fails
/// with the damage.
#[test]
fn lost_and_damaged_files_are_noticed() {
    let mut random = Random(7);
    let disk = SimulatedDisk::new();
    let mut worlds = vec![State::new()];
    let mut older = None;
    for round in 0..6 {
        let (core, journal) = open(&disk, &mut worlds, "preparation");
        let queue = Queue::new(1 << 20);
        let table = core.catalog.table(&"t".parse().unwrap()).unwrap();
        let mut running = Running {
            core: &core,
            committer: Committer::new(&core, &queue, journal),
            table,
        };
        for _ in 0..20 {
            let calls = [Call::random(&mut random, &worlds[0])];
            let Answered::Outcomes(_) = running.call(&calls) else {
                panic!("no fault was injected");
            };
            calls[0].apply(&mut worlds[0]);
            running.background(&mut random);
        }
        if round == 3 {
            older = Some(disk.kill());
        }
    }
    let (state, older) = (&worlds[0], older.unwrap());
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for (path, length) in disk.files() {
        if path.ends_with("/LOCK") {
            continue;
        }
        let path = Path::new(&path);
        for damage in 0..5 {
            let damaged = disk.kill();
            match damage {
                0 => damaged.remove(path).unwrap(),
                1 => drop(damaged.append(path, 0).unwrap()),
                2 => drop(damaged.append(path, length / 2).unwrap()),
                3 => drop(damaged.flip_bit(path, length * 4).unwrap()),
                _ => {
                    let Ok(content) = oxtsdb_storage_file::folder::read_all(&older, path, u64::MAX) else {
                        continue;
                    };
                    oxtsdb_storage_file::folder::replace(&damaged, path, &content).unwrap();
                }
            }
            let context = format!("{}, damage {damage}", path.display());
            // A cut of the last segment is what an interrupted write leaves.
            let may_lose_the_end =
                path.extension().is_some_and(|extension| extension == "journal") && damage >= 2;
            match Core::open(config(&damaged)) {
                Err(StoreError::Corrupt { place, .. }) => {
                    assert!(place.starts_with(FOLDER), "{context}: {place}");
                    *outcomes.entry("refused").or_default() += 1;
                }
                Err(error) => panic!("{context}: {error}"),
                Ok((core, _)) => {
                    let Ok(table) = core.catalog.table(&"t".parse().unwrap()) else {
                        panic!("{context}: the definitions are lost");
                    };
                    let mut is_damaged = false;
                    for ((row, qualifier), value) in state {
                        let view = View::new(&core, &table, Columns::All, 1);
                        let row_read = core.tree.read(|snapshot| {
                            let unbounded = read::Allowance::UNBOUNDED;
                            read::rows(
                                &core,
                                snapshot,
                                &table,
                                std::slice::from_ref(row),
                                &view,
                                None,
                                unbounded,
                            )
                        });
                        match row_read {
                            Err(StoreError::Corrupt { .. }) => is_damaged = true,
                            Err(error) => panic!("{context}: {error}"),
                            Ok(rows) => {
                                let cell = rows
                                    .as_ref()
                                    .and_then(|rows| rows[0].as_ref())
                                    .and_then(|row| row.get("f", &[*qualifier]));
                                let stored = cell.map(|cell| cell.value.to_vec());
                                assert!(
                                    stored.as_ref() == Some(value) || may_lose_the_end,
                                    "{context}: row {row:?} has {stored:?}, expected {value:?}"
                                );
                            }
                        }
                    }
                    let outcome = if is_damaged {
                        "served with the loss named"
                    } else {
                        "served"
                    };
                    assert_eq!(
                        is_damaged,
                        !core.tree.set_aside.is_empty() && is_damaged,
                        "{context}"
                    );
                    *outcomes.entry(outcome).or_default() += 1;
                }
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.len() == 3, "{outcomes:?}");
}
