//! Recovery after crashes, power losses, failed operations and damage.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use proptest::prelude::*;

use super::*;
use crate::disk::real::RealDisk;
use crate::disk::simulated::SimulatedDisk;

const DIR: &str = "/store/journal";
const OPTIONS: JournalOptions = JournalOptions {
    magic: *b"oxtsdbts",
    cut: None,
    has_list: false,
    accept_losses: false,
};

/// The content of a frame: its number, and some filler.
fn content(frame: u64) -> Vec<u8> {
    let filler = usize::try_from(frame % 3).unwrap() * 9 + 20;
    [&frame.to_be_bytes()[..], &vec![7; filler]].concat()
}

/// The numbers of the frames that are recovered.
fn open_with(
    disk: Arc<dyn Disk>,
    options: JournalOptions,
) -> Result<(Journal, Vec<u64>, Recovered), StorageError> {
    let mut frames = Vec::new();
    let (mut journal, recovered) = Journal::open(disk, Path::new(DIR), options, &mut |_, bytes| {
        let frame = u64::from_be_bytes(*bytes.first_chunk().unwrap());
        assert_eq!(*bytes, content(frame));
        frames.push(frame);
        Ok::<_, Rejected<StorageError>>(())
    })?;
    assert_eq!(recovered.frames, frames.len() as u64);
    // Three frames or so.
    journal.segment_bytes = 200;
    Ok((journal, frames, recovered))
}

fn open(disk: &SimulatedDisk) -> Result<(Journal, Vec<u64>), StorageError> {
    open_with(Arc::new(disk.clone()), OPTIONS).map(|(journal, frames, _)| (journal, frames))
}

fn append(journal: &mut Journal, frame: u64) -> Result<u64, StorageError> {
    journal.append(|bytes| bytes.extend_from_slice(&content(frame)))
}

fn append_synced(journal: &mut Journal, frames: impl IntoIterator<Item = u64>) {
    for frame in frames {
        append(journal, frame).unwrap();
        journal.sync().unwrap();
    }
}

fn segments(disk: &SimulatedDisk) -> Vec<String> {
    let files = disk.files().into_keys();
    files.filter(|path| path.ends_with(".journal")).collect()
}

#[test]
fn recovers_frames_on_the_real_disk() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    let ignore = &mut |_, _: &[u8]| Ok::<_, Rejected<StorageError>>(());
    let (mut journal, _) = Journal::open(Arc::new(RealDisk), &dir, OPTIONS, ignore).unwrap();
    append_synced(&mut journal, 0..5);
    let bytes = journal.byte_len();
    drop(journal);
    let (journal, recovered) = Journal::open(Arc::new(RealDisk), &dir, OPTIONS, ignore).unwrap();
    assert_eq!((recovered.frames, recovered.cut_bytes), (5, 0));
    assert_eq!(journal.byte_len(), bytes);
    assert_eq!(journal.files().byte_len(), bytes);
}

#[test]
fn a_journal_of_a_version_without_a_list_begins_at_its_first_segment() {
    let disk = SimulatedDisk::new();
    let (mut journal, _) = open(&disk).unwrap();
    append_synced(&mut journal, 0..5);
    let last = journal.rotate().unwrap();
    append_synced(&mut journal, 5..7);
    journal.remove_through(last).unwrap();
    disk.remove(&Path::new(DIR).join("SEGMENTS")).unwrap();
    let (journal, frames) = open(&disk).unwrap();
    assert_eq!((frames, journal.files().cut()), (vec![5, 6], 5));
    assert_eq!(open(&disk).unwrap().1, [5, 6], "it has a list now");
}

#[test]
fn rotate_begins_a_segment_and_flushes_remove_the_older_ones() {
    let disk = SimulatedDisk::new();
    let (mut journal, _) = open(&disk).unwrap();
    append_synced(&mut journal, 0..5);
    let last = journal.rotate().unwrap();
    assert_eq!(journal.byte_len(), 0);
    append_synced(&mut journal, [5]);
    let all = journal.files().byte_len();
    journal.remove_through(last).unwrap();
    assert!(journal.byte_len() > 0);
    assert_eq!(journal.files().byte_len(), journal.byte_len());
    assert!(all > journal.byte_len());
    assert_eq!(segments(&disk).len(), 1);
    assert_eq!(open(&disk.power_loss()).unwrap().1, [5]);
}

#[test]
fn errors_of_the_caller_are_returned() {
    let disk = SimulatedDisk::new();
    append_synced(&mut open(&disk).unwrap().0, 0..2);
    let error = StorageError::Invalid("no".to_owned());
    let opened = Journal::open(Arc::new(disk), Path::new(DIR), OPTIONS, &mut |_, _| {
        Err(Rejected::Store(error.clone()))
    });
    assert_eq!(opened.unwrap_err(), error);
}

#[test]
fn opens_on_a_full_disk() {
    let disk = SimulatedDisk::new();
    append_synced(&mut open(&disk).unwrap().0, 0..2);
    disk.set_free_bytes(0);
    let (mut journal, frames) = open(&disk).unwrap();
    assert_eq!(frames, [0, 1]);
    assert!(matches!(append(&mut journal, 2), Err(StorageError::Full(_))));
    disk.set_free_bytes(1000);
    append_synced(&mut journal, [3]);
    assert_eq!(open(&disk.power_loss()).unwrap().1, [0, 1, 3]);
}

#[test]
fn recovered_frames_that_were_not_synced_survive_with_later_ones() {
    let disk = SimulatedDisk::new();
    let (mut journal, _) = open(&disk).unwrap();
    append_synced(&mut journal, [0]);
    append(&mut journal, 1).unwrap();
    disk.fail_operation(0, ErrorKind::Other);
    journal.sync().unwrap_err();
    let killed = disk.kill();
    let (mut journal, frames) = open(&killed).unwrap();
    assert_eq!(frames, [0, 1]);
    append_synced(&mut journal, [2]);
    assert_eq!(open(&killed.power_loss()).unwrap().1, [0, 1, 2]);
}

#[test]
fn a_removed_segment_does_not_return_when_the_next_one_begins() {
    let disk = SimulatedDisk::new();
    append_synced(&mut open(&disk).unwrap().0, [0]);
    let (mut journal, _) = open(&disk).unwrap();
    let last = journal.rotate().unwrap();
    journal.remove_through(last).unwrap();
    append_synced(&mut journal, [1]);
    assert_eq!(open(&disk).unwrap().1, [1]);
}

/// A failed creation may leave a file with the number of no segment, with a header only or with the frames of another.
#[test]
fn a_segment_whose_creation_failed_does_not_prevent_opening() {
    let options = JournalOptions {
        has_list: true,
        ..OPTIONS
    };
    let cases = [false, true].map(|recovers| [false, true].map(|removes| (recovers, removes)));
    for (recovers, removes) in cases.into_iter().flatten() {
        for failing in 0..16 {
            let mut disk = SimulatedDisk::new();
            let (mut journal, _) = open(&disk).unwrap();
            append_synced(&mut journal, [0]);
            let mut expected = vec![0];
            if recovers {
                append(&mut journal, 1).unwrap();
                disk = disk.kill();
                // The next segment begins with the frame.
                journal = open(&disk).unwrap().0;
                expected.push(1);
            } else {
                journal.rotate().unwrap();
            }
            disk.fail_operation(failing, ErrorKind::Other);
            let appended = append(&mut journal, 2).and_then(|_| journal.sync());
            if appended.is_err() {
                let crashed = open_with(Arc::new(disk.kill()), options).unwrap();
                assert!(crashed.1.starts_with(&expected), "{failing}: {:?}", crashed.1);
                append_synced(&mut journal, [2]);
            }
            expected.push(2);
            if removes {
                let last = journal.rotate().unwrap();
                if journal.remove_through(last).is_err() {
                    journal.remove_through(last).unwrap();
                }
                append_synced(&mut journal, [3]);
                expected = vec![3];
            }
            for disk in [disk.kill(), disk.power_loss()] {
                let (_, frames, _) = open_with(Arc::new(disk), options).unwrap();
                assert_eq!(frames, expected, "{recovers} {removes} {failing}");
            }
        }
    }
}

/// The losses that opening accepts, and the frames that are left.
fn losses(disk: &SimulatedDisk) -> (Vec<StorageError>, Vec<u64>) {
    let options = JournalOptions {
        accept_losses: true,
        has_list: true,
        ..OPTIONS
    };
    let (mut journal, frames, recovered) = open_with(Arc::new(disk.clone()), options).unwrap();
    // The frames that follow are recovered, once other files have the frames before.
    journal.make_durable().unwrap();
    append_synced(&mut journal, [99]);
    (recovered.losses, frames)
}

#[test]
fn a_segment_that_is_removed_emptied_or_cut_is_damage() {
    let disk = SimulatedDisk::new();
    append_synced(&mut open(&disk).unwrap().0, 0..9);
    let segments = segments(&disk);
    assert!(segments.len() > 2);
    let options = JournalOptions {
        has_list: true,
        ..OPTIONS
    };
    for segment in &segments {
        let is_last = Some(segment) == segments.last();
        for left in [None, Some(0), Some(10), Some(40), Some(100)] {
            let lost = disk.kill();
            let path = Path::new(segment);
            match left {
                None => lost.remove(path).unwrap(),
                Some(bytes) => lost.append(path, bytes).unwrap().sync().unwrap(),
            }
            let opened = open_with(Arc::new(lost.clone()), options);
            if is_last && left.is_some_and(|bytes| bytes >= 40) {
                // As an interrupted write leaves it.
                assert!(opened.unwrap().1.starts_with(&[0, 1, 2, 3, 4, 5]));
                continue;
            }
            let error = opened.unwrap_err();
            assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
            let (losses, frames) = losses(&lost);
            assert!(losses.contains(&error), "{losses:?}");
            assert!(frames.len() >= 5 && frames.is_sorted(), "{frames:?}");
        }
    }
}

#[test]
fn a_journal_that_is_removed_or_older_is_damage() {
    let disk = SimulatedDisk::new();
    let (mut journal, _) = open(&disk).unwrap();
    append_synced(&mut journal, 0..2);
    let older = disk.kill();
    append_synced(&mut journal, 2..9);
    let cut = Some(journal.durable());
    let end = journal.rotate().unwrap();
    let options = |cut| JournalOptions {
        cut,
        has_list: true,
        ..OPTIONS
    };
    let open = |disk: &SimulatedDisk, cut| open_with(Arc::new(disk.clone()), options(cut));

    assert_eq!(
        open(&disk.kill(), cut).unwrap().1,
        [0_u64; 0],
        "other files have all"
    );
    let error = open(&older, cut).unwrap_err().to_string();
    assert!(error.contains("the journal ends before commit 3"), "{error}");

    let emptied = disk.kill();
    for path in emptied.files().into_keys() {
        emptied.remove(Path::new(&path)).unwrap();
    }
    let error = open(&emptied, None).unwrap_err().to_string();
    assert!(error.contains("SEGMENTS") && error.contains("missing"), "{error}");
    assert_eq!(losses(&emptied).0.len(), 1);

    journal.remove_through(end).unwrap();
    append_synced(&mut journal, [9]);
    let error = open(&disk.kill(), Some(4)).unwrap_err().to_string();
    assert!(
        error.contains("commits 5 to 9 were moved to other files"),
        "{error}"
    );

    // An older list: the segments that follow count, and the segments before are not needed.
    let list = crate::folder::read_all(&older, &files::list_path(Path::new(DIR)), u64::MAX).unwrap();
    let listed = disk.kill();
    crate::folder::replace(&listed, &files::list_path(Path::new(DIR)), &list).unwrap();
    assert_eq!(open(&listed, cut).unwrap().1, [9]);
}

#[test]
fn failed_frames_are_absent_once_the_journal_is_durable() {
    for step in 0..12 {
        let disk = SimulatedDisk::new();
        let (mut journal, _) = open(&disk).unwrap();
        append_synced(&mut journal, 0..2);
        disk.fail_operation(step, ErrorKind::Other);
        let failed = append(&mut journal, 2).and_then(|_| journal.sync());
        let durable = journal.make_durable();
        for crashed in [disk.kill(), disk.power_loss()]
            .into_iter()
            .chain((0..20).map(|seed| disk.power_loss_seeded(seed)))
        {
            let frames = open(&crashed).unwrap().1;
            match (&failed, &durable) {
                (Ok(()), _) => assert_eq!(frames, [0, 1, 2]),
                (Err(_), Ok(())) => assert_eq!(frames, [0, 1], "step {step}"),
                (Err(_), Err(_)) => assert!(frames.starts_with(&[0, 1])),
            }
        }
        disk.repair();
        journal.make_durable().unwrap();
        append_synced(&mut journal, [3]);
        let frames = open(&disk.power_loss()).unwrap().1;
        assert_eq!(frames.contains(&2), failed.is_ok());
    }
}

#[test]
fn unknown_versions_are_rejected() {
    let disk = SimulatedDisk::new();
    append_synced(&mut open(&disk).unwrap().0, [0]);
    let path = &segments(&disk)[0];
    let mut bytes = crate::folder::read_all(&disk, Path::new(path), u64::MAX).unwrap();
    bytes[11] = 2;
    let crc = crc32fast::hash(&bytes[..28]).to_be_bytes();
    bytes[28..32].copy_from_slice(&crc);
    crate::folder::replace(&disk, Path::new(path), &bytes).unwrap();
    let error = open(&disk).unwrap_err().to_string();
    assert!(
        error.ends_with("offset 0: the version of the segment is unknown"),
        "{error}"
    );
}

/// A flipped bit is detected, or was in the last frame, which an interrupted write may have damaged.
#[test]
fn flipped_bits_are_detected() {
    let disk = SimulatedDisk::new();
    append_synced(&mut open(&disk).unwrap().0, 0..8);
    let segments = segments(&disk);
    assert!(segments.len() > 2);
    for (path, length) in disk
        .files()
        .into_iter()
        .filter(|(path, _)| segments.contains(path))
    {
        let is_last = Some(&path) == segments.last();
        for bit in 0..length * 8 {
            let damaged = disk.kill();
            damaged.flip_bit(Path::new(&path), bit).unwrap();
            match open(&damaged) {
                Err(StorageError::Damaged { path: segment, .. }) => {
                    assert_eq!(segment, Path::new(&path))
                }
                Err(error) => panic!("{error}"),
                Ok((_, frames)) => assert!(
                    is_last && frames == [0, 1, 2, 3, 4, 5, 6],
                    "{path} {bit}: {frames:?}"
                ),
            }
        }
    }
}

/// Damage before a frame that was written after a sync is an error; a group that was never synced is cut off, in
/// whatever order its bytes reached the disk.
#[test]
fn damage_counts_if_it_was_durable() {
    for synced in [false, true] {
        let disk = SimulatedDisk::new();
        let (mut journal, _) = open(&disk).unwrap();
        append_synced(&mut journal, [0]);
        let place = journal.byte_len();
        append(&mut journal, 1).unwrap();
        if synced {
            journal.sync().unwrap();
        }
        append(&mut journal, 2).unwrap();
        disk.flip_bit(Path::new(&segments(&disk)[0]), (place + 40) * 8)
            .unwrap();
        match open(&disk) {
            Ok((_, frames)) => assert!(!synced && frames == [0]),
            Err(error) => assert!(synced && matches!(error, StorageError::Damaged { .. })),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append,
    Sync,
    Rotate,
    Remove,
    Kill,
    PowerLoss(u64),
    /// Fails an operation soon.
    Fail(u64, bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Append),
        4 => Just(Step::Sync),
        1 => Just(Step::Rotate),
        1 => Just(Step::Remove),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerLoss),
        1 => (0..8_u64, any::<bool>()).prop_map(|(count, full)| Step::Fail(count, full)),
    ]
}

/// The frames that recovery may return: all synced ones, then a prefix of one of the unsynced runs.
#[derive(Clone, Debug, Default)]
struct Model {
    synced: Vec<u64>,
    /// Frames before this one may be removed, in any number from the oldest on.
    removable: u64,
    /// Frames that were recovered, which are durable with the next one.
    base: Vec<u64>,
    /// Each begins with `base`; the last one is being written.
    runs: Vec<Vec<u64>>,
}

impl Model {
    fn check(&self, recovered: &[u64]) {
        let is_allowed = |run: &[u64]| {
            let all = [&self.synced, run].concat();
            let first = recovered.first().copied().unwrap_or(u64::MAX);
            let removed = all.iter().take_while(|frame| **frame < first.min(self.removable));
            all[removed.count()..] == *recovered
        };
        let mut runs = self
            .runs
            .iter()
            .flat_map(|run| (0..=run.len()).map(|end| &run[..end]));
        assert!(runs.any(is_allowed), "{recovered:?} is not allowed by {self:?}");
    }

    fn recovered(&mut self, frames: Vec<u64>) {
        self.check(&frames);
        self.synced.clear();
        self.runs = vec![frames.clone()];
        self.base = frames;
    }

    /// A write or a sync failed.
    fn failed<T>(&mut self, _: T) {
        self.runs.push(self.base.clone());
    }

    fn synced(&mut self) {
        if self.runs.last().unwrap().len() > self.base.len() {
            self.synced.extend(self.runs.pop().unwrap());
            self.base.clear();
            self.runs = vec![Vec::new()];
        }
    }
}

/// Runs steps; every state that a crash may leave is recovered.
fn run(steps: &[Step]) {
    let mut disk = SimulatedDisk::new();
    let (mut journal, _) = open(&disk).unwrap();
    let mut model = Model::default();
    model.runs.push(Vec::new());
    let mut rotated = None;
    let mut next = 0;
    for (index, step) in steps.iter().enumerate() {
        let mut crashed = None;
        match step {
            Step::Append => {
                model.runs.last_mut().unwrap().push(next);
                if let Err(error) = append(&mut journal, next) {
                    model.failed(error);
                }
                next += 1;
            }
            Step::Sync => match journal.sync() {
                Ok(()) => model.synced(),
                Err(error) => model.failed(error),
            },
            Step::Rotate => match journal.rotate() {
                Ok(last) => {
                    model.synced();
                    rotated = Some((last, next));
                }
                Err(error) => model.failed(error),
            },
            Step::Remove => {
                if let Some((last, before)) = rotated.take() {
                    // A failed removal is repeated by the next flush.
                    drop(journal.remove_through(last));
                    model.removable = before;
                }
            }
            Step::Fail(count, true) => disk.fail_operation(*count, ErrorKind::StorageFull),
            Step::Fail(count, false) => disk.fail_operation(*count, ErrorKind::Other),
            Step::Kill => crashed = Some(disk.kill()),
            Step::PowerLoss(seed) => crashed = Some(disk.power_loss_seeded(*seed)),
        }
        // Recovery that is interrupted at any operation changes nothing.
        let lost = disk.power_loss_seeded(index as u64);
        lost.fail_after(index as u64 % 12);
        drop(open(&lost));
        let lost = lost.power_loss_seeded(index as u64);
        model.check(&open(&lost).unwrap().1);
        assert!(lost.files().keys().all(|path| !path.ends_with(".tmp")));
        if let Some(crashed) = crashed {
            disk = crashed;
            let frames;
            (journal, frames) = open(&disk).unwrap();
            model.recovered(frames);
            rotated = None;
        }
    }
    disk.repair();
    model.check(&open(&disk.power_loss()).unwrap().1);
    model.check(&open(&disk.kill()).unwrap().1);
}

/// A list that is written after a removal failed in the middle names no segment that is gone.
#[test]
fn a_removal_that_fails_in_the_middle_loses_no_segment() {
    let rotated = [Step::Append, Step::Rotate, Step::Append, Step::Rotate];
    for count in 0..12 {
        let rest = [
            Step::Fail(count, false),
            Step::Remove,
            Step::Rotate,
            Step::Remove,
            Step::Append,
        ];
        run(&[&rotated[..], &rest].concat());
    }
    run(&[&rotated[..], &[Step::Fail(7, false), Step::Remove, Step::Append]].concat());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn recovery_returns_a_prefix_with_all_synced_frames(steps in prop::collection::vec(any_step(), 1..40)) {
        run(&steps);
    }

    #[test]
    fn arbitrary_segments_do_not_panic(
        frames in 0..4_u64,
        tail in prop::collection::vec(any::<u8>(), 0..100),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let disk = SimulatedDisk::new();
        append_synced(&mut open(&disk).unwrap().0, 0..frames);
        let path = Path::new(DIR).join("0000000001.journal");
        let mut bytes = crate::folder::read_all(&disk, &path, u64::MAX).unwrap_or_default();
        bytes.extend_from_slice(&tail);
        for (place, value) in changes {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
        }
        crate::folder::replace(&disk, &path, &bytes).unwrap();
        match open(&disk) {
            Ok((_, recovered)) => prop_assert!(recovered.len() as u64 <= frames),
            Err(error) => prop_assert!(matches!(error, StorageError::Damaged { .. }), "{}", error),
        }
    }
}

/// A power loss after each operation of a fixed history, with every outcome of 50 seeds.
#[test]
fn acknowledged_frames_survive_a_power_loss_after_each_operation() {
    for stop in 0.. {
        let disk = SimulatedDisk::new();
        disk.fail_after(stop);
        let mut acknowledged = BTreeSet::new();
        let mut removable = 0;
        let mut history = || {
            let (mut journal, _) = open(&disk)?;
            for frame in 0..12 {
                append(&mut journal, frame)?;
                journal.sync()?;
                acknowledged.insert(frame);
                if frame % 5 == 4 {
                    let last = journal.rotate()?;
                    removable = frame + 1;
                    journal.remove_through(last)?;
                }
            }
            Ok::<_, StorageError>(())
        };
        let finished = history().is_ok();
        for seed in 0..50 {
            let lost = disk.power_loss_seeded(seed);
            let (mut journal, frames) = open(&lost).unwrap();
            assert!(frames.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{frames:?}");
            for frame in acknowledged.iter().filter(|frame| **frame >= removable) {
                assert!(frames.contains(frame), "{frame} is missing from {frames:?}");
            }
            append_synced(&mut journal, [99]);
            let later = open(&lost.power_loss()).unwrap().1;
            assert_eq!(later, [frames, vec![99]].concat());
        }
        if finished {
            break;
        }
    }
}
