//! Generations: the folder of a store that is gone, or older as a whole, is noticed.
//!
//! A store notices that files of its folder are missing by the other files there. If the whole folder is removed, or
//! replaced by an older copy, nothing in it says so. Therefore the number of its last opening is in two places:
//!
//! ```text
//!   <data folder>/uid.generation           `oxtsdb generation 7`     of folder data/points: data-points.generation
//!   <data folder>/uid/GENERATION           `oxtsdb generation 7`
//! ```
//!
//! | In the folder | Beside it | Opening for serving |
//! |---|---|---|
//! | absent | absent | begins with 1: the folder is new, restored from a snapshot, or of a version without generations |
//! | n | absent | continues: the folder was moved here, or its first opening was interrupted |
//! | n | at most n | continues: the number beside it is written last, and is behind after a crash or on a full disk |
//! | n | more than n | is rejected: an older copy |
//! | absent | n | is rejected: the folder is gone, or was restored without its data folder |
//! | damaged | damaged | is rejected, if either is |
//!
//! A copy of the last opening but one is accepted if the process ended between the two writes. Each process has numbers
//! for its own folders only, so that services with one data folder do not interfere.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use oxtsdb_row_store::StoreError;
use oxtsdb_storage_file::StorageError;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{read_all, replace};

/// The text before the number.
const LABEL: &str = "oxtsdb generation ";

/// The name of the file in the folder.
const INSIDE: &str = "GENERATION";

/// The end of the name of the file beside the folder.
const SUFFIX: &str = ".generation";

/// A longer file is not read.
const MAX_BYTES: u64 = 64;

/// The generation of a store's folder.
#[derive(Clone, Debug)]
pub struct Generation {
    folder: PathBuf,
    inside: PathBuf,
    beside: PathBuf,
}

impl Generation {
    /// The generation of the folder `name` of a data folder, for example `data/points`.
    pub fn new(data_dir: &Path, name: &str) -> Self {
        let folder = data_dir.join(name);
        Self {
            inside: folder.join(INSIDE),
            beside: data_dir.join(name.replace('/', "-") + SUFFIX),
            folder,
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
    /// [`StoreError::Corrupt`] with the folder or the file, if opening is rejected; those of the disk.
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

    /// Writes a number that follows both, whatever they are: the folder is the one to serve from now on. It must be open.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn reset(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let known = [&self.inside, &self.beside].map(|file| number(disk, file));
        let last = known
            .into_iter()
            .filter_map(|number| number.ok().flatten())
            .max()
            .unwrap_or(0);
        self.write(disk, last + 1)
    }

    /// The number of the last opening; 0 if there was none.
    fn read(&self, disk: &dyn Disk) -> Result<u64, StoreError> {
        // In this order, since a process that opens the folder now writes them in the other one.
        let beside = number(disk, &self.beside)?;
        let inside = number(disk, &self.inside)?;
        let corrupt = |detail: String| StoreError::Corrupt {
            place: self.folder.display().to_string(),
            detail,
        };
        let file = self.beside.display();
        match (inside, beside) {
            (None, None) => Ok(0),
            (Some(inside), None) => Ok(inside),
            (Some(inside), Some(beside)) if inside >= beside => Ok(inside),
            (Some(inside), Some(beside)) => Err(corrupt(format!(
                "the folder is an older copy: it has generation {inside}, {file} says {beside}"
            ))),
            (None, Some(beside)) => {
                let detail = match disk.list(&self.folder) {
                    Err(error) if error.kind() == ErrorKind::NotFound => "the folder is missing".to_owned(),
                    Ok(entries) if entries.is_empty() => "the folder is empty".to_owned(),
                    _ => {
                        format!("the folder has no file {INSIDE}, so it is not the one that was served last")
                    }
                };
                Err(corrupt(format!("{detail}, and {file} says generation {beside}")))
            }
        }
    }

    fn write(&self, disk: &dyn Disk, number: u64) -> Result<(), StoreError> {
        // The one in the folder first: it must not be the smaller one.
        for file in [&self.inside, &self.beside] {
            let text = format!("{LABEL}{number}\n");
            replace(disk, file, text.as_bytes()).map_err(|error| StorageError::io(file.display(), &error))?;
        }
        Ok(())
    }
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

    struct Fixture {
        data_dir: tempfile::TempDir,
        generation: Generation,
    }

    impl Fixture {
        fn new() -> Self {
            let data_dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(data_dir.path().join("data/points")).unwrap();
            let generation = Generation::new(data_dir.path(), "data/points");
            Self { data_dir, generation }
        }

        fn set(&self, inside: Option<&str>, beside: Option<&str>) {
            let files = ["data/points/GENERATION", "data-points.generation"];
            for (file, number) in files.into_iter().zip([inside, beside]) {
                let file = self.data_dir.path().join(file);
                match number {
                    Some(number) => fs::write(file, format!("oxtsdb generation {number}\n")).unwrap(),
                    None => drop(fs::remove_file(file)),
                }
            }
        }

        fn error(&self) -> String {
            let error = self.generation.check(&RealDisk).unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
            error.to_string()
        }
    }

    #[test]
    fn accepts_the_folder_that_was_served_last() {
        let fixture = Fixture::new();
        for (inside, beside, next) in [
            (None, None, "1"),
            (Some("4"), None, "5"),
            (Some("4"), Some("4"), "5"),
            (Some("5"), Some("4"), "6"),
            (Some("9"), Some("4"), "10"),
        ] {
            fixture.set(inside, beside);
            fixture.generation.advance(&RealDisk).unwrap();
            for file in ["data/points/GENERATION", "data-points.generation"] {
                let text = fs::read_to_string(fixture.data_dir.path().join(file)).unwrap();
                assert_eq!(
                    text,
                    format!("oxtsdb generation {next}\n"),
                    "{inside:?}, {beside:?}"
                );
            }
        }
    }

    #[test]
    fn rejects_older_and_absent_folders_until_a_reset() {
        let fixture = Fixture::new();
        let folder = fixture.data_dir.path().join("data/points");
        let beside = fixture.data_dir.path().join("data-points.generation");
        let (folder_name, beside_name) = (folder.display().to_string(), beside.display().to_string());
        fixture.set(Some("3"), Some("4"));
        let error = fixture.error();
        assert!(error.contains("older copy: it has generation 3"), "{error}");
        assert!(
            error.contains(&folder_name) && error.contains(&beside_name),
            "{error}"
        );
        fixture.set(None, Some("4"));
        assert!(fixture.error().contains("the folder is empty"));
        fs::write(folder.join("STORE"), "").unwrap();
        assert!(fixture.error().contains("has no file GENERATION"));
        fs::remove_dir_all(&folder).unwrap();
        assert!(fixture.error().contains("the folder is missing"));

        fs::create_dir(&folder).unwrap();
        fixture.generation.reset(&RealDisk).unwrap();
        fixture.generation.check(&RealDisk).unwrap();
        assert_eq!(fs::read_to_string(&beside).unwrap(), "oxtsdb generation 5\n");
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
            for file in ["data/points/GENERATION", "data-points.generation"] {
                fixture.set(Some("4"), Some("4"));
                let file = fixture.data_dir.path().join(file);
                fs::write(&file, text).unwrap();
                let error = fixture.error();
                assert!(error.contains(&file.display().to_string()), "{error}");
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
            fs::write(fixture.data_dir.path().join(file), "").unwrap();
        }
        let known = Generation::known(fixture.data_dir.path(), "data/rollups").unwrap();
        assert_eq!(known, ["tsdb-rollup-1h"]);
        assert_eq!(
            Generation::known(Path::new("/no/such/folder"), "data/rollups").unwrap(),
            [""; 0]
        );
    }
}
