use super::*;

use fjall::{Database, KeyspaceCreateOptions, PersistMode};

const FILE: &str = "0.jnl";

/// The journal that the engine writes for batches of several items, and the ends of the batches.
fn journal(batches: u8) -> (Vec<u8>, Vec<usize>) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::builder(folder.path()).open().unwrap();
    let cells = database
        .keyspace("cells", KeyspaceCreateOptions::default)
        .unwrap();
    for number in 0..batches {
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        batch.insert(&cells, [number, 0], [7; 5]);
        batch.insert(
            &cells,
            [number, 1],
            if number == 1 { vec![7; 5_000] } else { vec![] },
        );
        batch.remove(&cells, [number, 2]);
        batch.commit().unwrap();
    }
    let bytes = fs::read(folder.path().join(FILE)).unwrap();
    let mut ends = Vec::new();
    let mut end = 0;
    while let Some(batch) = Batch::decode(&bytes[end..]) {
        end += batch.length;
        ends.push(end);
    }
    assert_eq!(ends.len(), usize::from(batches));
    (bytes[..end].to_vec(), ends)
}

/// What the check leaves of a last file.
fn checked(bytes: &[u8]) -> Result<&[u8], (usize, &'static str)> {
    let torn = torn_at(bytes, &mut None, true)?;
    Ok(&bytes[..torn.unwrap_or(bytes.len())])
}

/// What the engine accepts of a whole journal is not touched.
#[test]
fn a_whole_journal_is_left_as_it_is() {
    let (bytes, _) = journal(4);
    let mut preallocated = bytes.clone();
    preallocated.resize(bytes.len() + 100_000, 0);
    for bytes in [&bytes[..], &preallocated, &[], &[0; 10_000]] {
        assert_eq!(checked(bytes).unwrap(), bytes);
    }
}

#[test]
fn a_cut_at_any_place_keeps_all_complete_batches() {
    let (bytes, ends) = journal(4);
    for length in 0..bytes.len() {
        let whole = ends
            .iter()
            .copied()
            .filter(|end| *end <= length)
            .max()
            .unwrap_or(0);
        let cut = &bytes[..length];
        assert_eq!(checked(cut).unwrap(), &bytes[..whole], "cut at {length}");
        let zeros = [cut, &vec![0; 9_000]].concat();
        let kept = checked(&zeros).unwrap();
        // The preallocated zeros remain if there is nothing to cut off.
        assert!(kept.starts_with(&bytes[..whole]), "zeros from {length}");
        assert!(kept[whole..].iter().all(|byte| *byte == 0), "zeros from {length}");
    }
}

#[test]
fn a_hole_anywhere_in_the_last_batch_is_cut_off() {
    let (bytes, ends) = journal(4);
    let last = ends[2];
    for start in last..bytes.len() - 1 {
        let mut torn = bytes.clone();
        let end = torn.len().min(start + 16);
        torn[start..end].fill(0);
        // A hole where the batch has only zeros changes nothing.
        let expected = if torn == bytes { &bytes[..] } else { &bytes[..last] };
        match checked(&torn) {
            Ok(kept) => assert_eq!(kept, expected, "hole at {start}"),
            Err(error) => panic!("hole at {start}: {error:?}"),
        }
    }
}

/// Neither checksum nor structure show a sequence number that is flipped in its higher bits.
fn is_sequence(start: usize, offset: usize) -> bool {
    (start + 5..start + 13).contains(&offset)
}

#[test]
fn a_flip_anywhere_is_an_error_unless_it_is_in_the_last_batch() {
    let (bytes, ends) = journal(4);
    let starts: Vec<usize> = [0].iter().chain(&ends).copied().collect();
    for offset in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[offset] ^= 1 << (offset % 8);
        let start = *starts.iter().rfind(|start| **start <= offset).unwrap();
        let is_last = start == starts[3];
        match checked(&flipped) {
            Err(error) => assert!(
                !is_last || is_sequence(start, offset),
                "flip at {offset}: {error:?}"
            ),
            Ok(kept) if is_sequence(start, offset) => assert_eq!(kept, flipped, "flip at {offset}"),
            Ok(kept) => {
                assert!(is_last, "flip at {offset} went unnoticed");
                assert_eq!(kept, &bytes[..start], "flip at {offset}");
            }
        }
    }
}

#[test]
fn only_the_last_file_is_cut() {
    let (bytes, ends) = journal(4);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("9.jnl"), &bytes[..bytes.len() - 1]).unwrap();
    fs::write(folder.path().join("10.jnl"), []).unwrap();
    let error = check(folder.path()).unwrap_err();
    assert!(error.to_string().contains("9.jnl offset"), "{error}");
    fs::remove_file(folder.path().join("10.jnl")).unwrap();
    check(folder.path()).unwrap();
    let kept = fs::read(folder.path().join("9.jnl")).unwrap();
    assert_eq!(kept, &bytes[..ends[2]]);
}

#[test]
fn a_folder_without_a_journal_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(check(folder.path()), Err(StoreError::Corrupt { .. })));
}
