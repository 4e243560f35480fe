//! Generations: the folder of a store that is gone, or older as a whole, is noticed.
//!
//! A store notices that files of its folder are missing by the other files there. If the whole folder is removed, or
//! replaced by an older copy, nothing in it says so; nor does a journal that is an older copy as a whole. Therefore the
//! number of the last opening is in three places, which are written in this order:
//!
//! ```text
//!   <data folder>/uid/journal/GENERATION   `oxtsdb generation 7`
//!   <data folder>/uid/GENERATION           `oxtsdb generation 7`
//!   <data folder>/uid.generation           `oxtsdb generation 7`     of folder data/points: data-points.generation
//! ```
//!
//! | In a folder | In a later place | Opening for serving |
//! |---|---|---|
//! | absent | absent | begins with 1: the folder is new, restored from a snapshot, or of a version without generations |
//! | n | absent | continues: the folder was moved here, or its first opening was interrupted |
//! | n | at most n | continues: later places are behind after a crash or on a full disk |
//! | n | more than n | is rejected: an older copy |
//! | absent | n | is rejected: the folder is gone, or was restored without the others |
//! | damaged | damaged | is rejected, if any is |
//!
//! A copy of the last opening but one is accepted if the process ended between two writes. Each process has numbers for
//! its own folders only, so that services with one data folder do not interfere.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use oxtsdb_row_store::StoreError;
use oxtsdb_storage_file::StorageError;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{read_all, replace};

/// The text before the number.
const LABEL: &str = "oxtsdb generation ";

/// The name of the files in folders.
const INSIDE: &str = "GENERATION";

/// The end of the name of the file beside the folder.
const SUFFIX: &str = ".generation";

/// A longer file is not read.
const MAX_BYTES: u64 = 64;

/// The generation of a store's folder.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The journal and the folder.
    folders: [PathBuf; 2],
    beside: PathBuf,
}

impl Generation {
    /// The generation of the folder `name` of a data folder, for example `data/points`.
    pub fn new(data_dir: &Path, name: &str) -> Self {
        let folder = data_dir.join(name);
        Self {
            beside: data_dir.join(name.replace('/', "-") + SUFFIX),
            folders: [folder.join("journal"), folder],
        }
    }

    /// The names of folders below `parent` that have been opened, whether they are still there or not.
    ///
    /// # Errors
    ///
    /// The data folder cannot be read.
    pub fn known(data_dir: &Path, parent: &str) -> io::Result<Vec<String>> {
        let prefix = parent.replace('/', "-") + "-";
        let entries = match fs::read_dir(data_dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            names.extend(
                name.and_then(|name| name.strip_prefix(&prefix))
                    .map(str::to_owned),
            );
        }
        Ok(names)
    }

    /// Whether the folder has been opened: there is a file beside it.
    pub fn exists(&self) -> bool {
        self.beside.exists()
    }

    /// Compares the numbers.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] with the folder or the file, if opening is rejected; errors of the disk.
    pub fn check(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        self.read(disk).map(drop)
    }

    /// Writes the next number. The folder must be open.
    ///
    /// # Errors
    ///
    /// As [`Generation::check`].
    pub fn advance(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let last = self.read(disk)?;
        self.write(disk, last + 1)
    }

    /// Writes a number that follows all, whatever they are: the folder is to be served from now on. It must be open.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn reset(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let known = self
            .places()
            .into_iter()
            .filter_map(|file| number(disk, &file).ok()?);
        let last = known.max().unwrap_or(0);
        self.write(disk, last + 1)
    }

    /// The files, in the order in which they are written.
    fn places(&self) -> [PathBuf; 3] {
        let [journal, folder] = &self.folders;
        [journal.join(INSIDE), folder.join(INSIDE), self.beside.clone()]
    }

    /// The number of the last opening; 0 if there was none.
    fn read(&self, disk: &dyn Disk) -> Result<u64, StoreError> {
        let [journal_file, folder_file, beside_file] = self.places();
        // The last one first, since a process that opens the folder now writes them in the other order.
        let beside = number(disk, &beside_file)?;
        let folder = number(disk, &folder_file)?;
        let journal = number(disk, &journal_file)?;
        let [journal_path, folder_path] = &self.folders;
        // The whole folder before its journal.
        check(disk, folder_path, folder, &beside_file, beside)?;
        check(disk, journal_path, journal, &folder_file, folder)?;
        Ok(journal.unwrap_or(0))
    }

    fn write(&self, disk: &dyn Disk, number: u64) -> Result<(), StoreError> {
        for file in self.places() {
            let text = format!("{LABEL}{number}\n");
            replace(disk, &file, text.as_bytes())
                .map_err(|error| StorageError::io(file.display(), &error))?;
        }
        Ok(())
    }
}

/// Fails if the number of a folder is smaller than the number in a file that is written later.
fn check(
    disk: &dyn Disk,
    folder: &Path,
    number: Option<u64>,
    later_file: &Path,
    later: Option<u64>,
) -> Result<(), StoreError> {
    let Some(later) = later else {
        return Ok(());
    };
    let detail = match number {
        Some(number) if number >= later => return Ok(()),
        Some(number) => format!("the folder is an older copy, of generation {number}"),
        None => match disk.list(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => "the folder is missing".to_owned(),
            Ok(entries) if entries.is_empty() => "the folder is empty".to_owned(),
            _ => format!("the folder has no file {INSIDE}, so it is not the one that was served last"),
        },
    };
    Err(StoreError::Corrupt {
        place: folder.display().to_string(),
        detail: format!("{detail}, and {} says generation {later}", later_file.display()),
    })
}

/// The number in a file; `None` without the file.
fn number(disk: &dyn Disk, file: &Path) -> Result<Option<u64>, StoreError> {
    let text = match read_all(disk, file, MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Vec::new(),
        read => read.map_err(|error| StorageError::io(file.display(), &error))?,
    };
    let number = String::from_utf8(text).ok().and_then(|text| {
        let number = text.strip_prefix(LABEL)?.strip_suffix('\n')?;
        number.parse::<u64>().ok().filter(|number| *number < u64::MAX)
    });
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(StoreError::Corrupt {
            place: file.display().to_string(),
            detail: format!("expected `{LABEL}` and a number"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_storage_file::disk::real::RealDisk;

    use super::*;

    /// The places, in the order in which they are written.
    const PLACES: [&str; 3] = [
        "data/points/journal/GENERATION",
        "data/points/GENERATION",
        "data-points.generation",
    ];

    struct Fixture {
        data_dir: tempfile::TempDir,
        generation: Generation,
    }

    impl Fixture {
        fn new() -> Self {
            let data_dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(data_dir.path().join("data/points/journal")).unwrap();
            let generation = Generation::new(data_dir.path(), "data/points");
            Self { data_dir, generation }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.data_dir.path().join(name)
        }

        fn set(&self, numbers: [Option<u64>; 3]) {
            for (place, number) in PLACES.into_iter().zip(numbers) {
                let file = self.path(place);
                match number {
                    Some(number) => fs::write(file, format!("oxtsdb generation {number}\n")).unwrap(),
                    None => drop(fs::remove_file(file)),
                }
            }
        }

        /// Fails with the folder and the reason.
        fn rejects(&self, folder: &str, reason: &str) {
            let error = self.generation.check(&RealDisk).unwrap_err();
            let StoreError::Corrupt { place, detail } = &error else {
                panic!("{error:?}");
            };
            assert_eq!(*place, self.path(folder).display().to_string(), "{error}");
            assert!(detail.contains(reason), "{error}");
        }
    }

    #[test]
    fn accepts_the_folder_that_was_served_last() {
        let fixture = Fixture::new();
        for (numbers, next) in [
            ([None, None, None], 1),
            ([Some(1), None, None], 2),
            ([Some(1), Some(1), None], 2),
            ([Some(4), Some(4), Some(4)], 5),
            ([Some(5), Some(4), Some(4)], 6),
            ([Some(5), Some(5), Some(4)], 6),
            ([Some(9), Some(9), Some(4)], 10),
        ] {
            fixture.set(numbers);
            fixture.generation.advance(&RealDisk).unwrap();
            for place in PLACES {
                let text = fs::read_to_string(fixture.path(place)).unwrap();
                assert_eq!(text, format!("oxtsdb generation {next}\n"), "{numbers:?}");
            }
        }
    }

    #[test]
    fn rejects_older_and_absent_folders_until_a_reset() {
        let fixture = Fixture::new();
        let (folder, journal) = ("data/points", "data/points/journal");
        fixture.set([Some(3), Some(3), Some(4)]);
        fixture.rejects(folder, "an older copy, of generation 3");
        fixture.set([Some(3), Some(4), Some(4)]);
        fixture.rejects(journal, "an older copy, of generation 3");
        fixture.set([None, Some(4), Some(4)]);
        fixture.rejects(journal, "the folder is empty");
        fixture.set([None, None, Some(4)]);
        fixture.rejects(folder, "has no file GENERATION");
        fs::remove_dir_all(fixture.path(folder)).unwrap();
        fixture.rejects(folder, "the folder is missing");
        fs::create_dir_all(fixture.path(journal)).unwrap();
        fixture.generation.reset(&RealDisk).unwrap();
        fixture.generation.check(&RealDisk).unwrap();
        let text = fs::read_to_string(fixture.path(PLACES[2])).unwrap();
        assert_eq!(text, "oxtsdb generation 5\n");
    }

    #[test]
    fn rejects_damaged_files() {
        let fixture = Fixture::new();
        for text in [
            "",
            "oxtsdb generation 1",
            "oxtsdb generation x\n",
            "1\n",
            &"9".repeat(100),
        ] {
            for place in PLACES {
                fixture.set([Some(4); 3]);
                fs::write(fixture.path(place), text).unwrap();
                fixture.rejects(place, "expected `oxtsdb generation ` and a number");
            }
        }
        fixture.generation.reset(&RealDisk).unwrap();
        fixture.generation.check(&RealDisk).unwrap();
    }

    #[test]
    fn lists_folders_that_are_gone() {
        let fixture = Fixture::new();
        for file in [
            "data-rollups-tsdb-rollup-1h.generation",
            "data-rollups-x",
            "uid.generation",
        ] {
            fs::write(fixture.path(file), "").unwrap();
        }
        let known = Generation::known(fixture.data_dir.path(), "data/rollups").unwrap();
        assert_eq!(known, ["tsdb-rollup-1h"]);
        let known = Generation::known(Path::new("/no/such/folder"), "data/rollups").unwrap();
        assert_eq!(known, [""; 0]);
    }
}
