use std::path::PathBuf;

use super::super::segment::segment_path;
use super::*;

/// A journal of two segments: frames 1 and 2 in the first, 3 to 5 in the second.
fn five_frames(folder: &Path) -> PathBuf {
    let mut journal = recover(folder, |_| Ok(())).unwrap().journal;
    for number in 1..=5_u8 {
        journal
            .append(1_000 + i64::from(number), |buffer| {
                buffer.extend_from_slice(&[number; 100])
            })
            .unwrap();
        if number == 2 {
            assert_eq!(journal.rotate(), 1);
        }
    }
    segment_path(folder, 2)
}

fn frames(folder: &Path) -> Result<Vec<u8>, StoreError> {
    let mut found = Vec::new();
    recover(folder, |frame| {
        assert_eq!(frame.payload, [frame.payload[0]; 100]);
        found.push(frame.payload[0]);
        Ok(())
    })?;
    Ok(found)
}

/// Bytes from one frame to the next.
const FRAME: usize = (FRAME_HEADER + 100).next_multiple_of(ALIGN);

#[test]
fn recovers_frames_and_continues_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    five_frames(folder.path());
    let recovered = recover(folder.path(), |_| Ok(())).unwrap();
    assert_eq!(recovered.last_ms, 1_005);
    let mut journal = recovered.journal;
    journal
        .append(0, |buffer| buffer.extend_from_slice(&[6; 100]))
        .unwrap();
    drop(journal);
    assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4, 5, 6]);
    super::super::remove_through(folder.path(), 2).unwrap();
    assert_eq!(frames(folder.path()).unwrap(), [6]);
}

#[test]
fn truncates_a_torn_last_frame() {
    let whole = tempfile::tempdir().unwrap();
    let path = five_frames(whole.path());
    let bytes = fs::read(&path).unwrap();
    let last = HEADER + 2 * FRAME;
    for torn in (last + 1..last + FRAME_HEADER + 100).step_by(7) {
        let folder = tempfile::tempdir().unwrap();
        five_frames(folder.path());
        fs::write(segment_path(folder.path(), 2), &bytes[..torn]).unwrap();
        assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4], "cut at {torn}");
        assert_eq!(
            fs::metadata(segment_path(folder.path(), 2)).unwrap().len(),
            last as u64
        );
        assert_eq!(
            frames(folder.path()).unwrap(),
            [1, 2, 3, 4],
            "and the second time it is clean"
        );

        // The same with zeros in place of the rest, as in a preallocated segment.
        let mut zeroed = bytes.clone();
        zeroed[torn..].fill(0);
        fs::write(segment_path(folder.path(), 2), &zeroed).unwrap();
        assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4], "zeros from {torn}");
    }
}

#[test]
fn rejects_damage_before_the_end_with_its_offset() {
    for (number, frame, place) in [(1_u64, 0, 0), (1, 1, 1), (2, 0, 0), (2, 1, 1)] {
        for offset_in_frame in [0, 5, 13, 30, 40, 131] {
            let folder = tempfile::tempdir().unwrap();
            five_frames(folder.path());
            let path = segment_path(folder.path(), number);
            let mut bytes = fs::read(&path).unwrap();
            bytes[HEADER + frame * FRAME + offset_in_frame] ^= 0x40;
            fs::write(&path, bytes).unwrap();
            let error = frames(folder.path()).unwrap_err();
            let StoreError::Corrupt { place: found, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(
                *found,
                format!("{} offset {}", path.display(), HEADER + place * FRAME)
            );
        }
    }
}

#[test]
fn rejects_a_missing_segment() {
    let folder = tempfile::tempdir().unwrap();
    five_frames(folder.path());
    let mut journal = recover(folder.path(), |_| Ok(())).unwrap().journal;
    journal
        .append(0, |buffer| buffer.extend_from_slice(&[6; 100]))
        .unwrap();
    fs::remove_file(segment_path(folder.path(), 2)).unwrap();
    let error = frames(folder.path()).unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt { place, .. } if place.contains("3.journal")),
        "{error}"
    );
}

#[test]
fn removes_partially_created_segments() {
    let folder = tempfile::tempdir().unwrap();
    five_frames(folder.path());
    for content in [&b""[..], b"oxtsdbjn\0\0"] {
        fs::write(segment_path(folder.path(), 3), content).unwrap();
        assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4, 5]);
        assert!(!segment_path(folder.path(), 3).exists());
    }
}

#[test]
fn rejects_invalid_payloads_with_their_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = five_frames(folder.path());
    let refuse = |frame: &Frame<'_>| {
        if frame.payload[0] == 4 {
            Err("four".to_owned())
        } else {
            Ok(())
        }
    };
    let error = recover(folder.path(), refuse).unwrap_err();
    let expected = format!(
        "stored data is damaged at {} offset {}: four",
        path.display(),
        HEADER + FRAME
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn skips_frames_superseded_by_the_next_segment() {
    // Frame 2 was written to segment 1, completely or partially, and its sync failed.
    for damaged in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = recover(folder.path(), |_| Ok(())).unwrap().journal;
        let append = |journal: &mut Journal, number: u8| {
            journal
                .append(0, |buffer| buffer.extend_from_slice(&[number; 100]))
                .unwrap();
        };
        append(&mut journal, 1);
        append(&mut journal, 9);
        journal.end_segment();
        journal.next_sequence -= 1;
        if damaged {
            let path = segment_path(folder.path(), 1);
            let mut bytes = fs::read(&path).unwrap();
            bytes[HEADER + FRAME + FRAME_HEADER] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        append(&mut journal, 2);
        append(&mut journal, 3);
        drop(journal);
        for _ in 0..2 {
            assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3], "damaged: {damaged}");
        }
    }
}

#[test]
fn truncates_a_torn_frame_before_an_empty_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = five_frames(folder.path());
    cut(&path, HEADER + 2 * FRAME + 60).unwrap();
    fs::write(segment_path(folder.path(), 3), b"").unwrap();
    assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4]);
    assert!(!segment_path(folder.path(), 3).exists());
}

#[test]
fn creates_the_next_segment_ahead_of_need() {
    let folder = tempfile::tempdir().unwrap();
    five_frames(folder.path());
    let mut journal = recover(folder.path(), |_| Ok(())).unwrap().journal;
    let mut append = |number: u8| journal.append(0, |buffer| buffer.extend_from_slice(&[number; 100]));
    append(6).unwrap();
    let next = segment_path(folder.path(), 4);
    assert_eq!(fs::metadata(&next).unwrap().len(), 0);
    drop(journal);
    assert!(!next.exists(), "a closed journal leaves no prepared segment");
}

#[test]
fn retries_creating_a_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    fs::create_dir(&path).unwrap();
    let mut journal = recover(&path, |_| Ok(())).unwrap().journal;
    fs::remove_dir(&path).unwrap();
    let mut append = |number: u8| journal.append(0, |buffer| buffer.extend_from_slice(&[number; 100]));
    for _ in 0..2 {
        let error = append(1).unwrap_err();
        assert_eq!(error.retry(), crate::Retry::Safe, "{error}");
    }
    fs::create_dir(&path).unwrap();
    append(2).unwrap();
    drop(journal);
    assert_eq!(frames(&path).unwrap(), [2]);
}

#[test]
fn recovery_rewrites_the_last_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = five_frames(folder.path());
    let before = fs::read(&path).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(old).unwrap();
    drop(file);
    assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4, 5]);
    // Syncing pages that the kernel considers clean writes nothing.
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > old);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn probe_begins_a_segment_once_possible() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    fs::create_dir(&path).unwrap();
    let mut journal = recover(&path, |_| Ok(())).unwrap().journal;
    fs::remove_dir(&path).unwrap();
    journal.probe(0, false).unwrap_err();
    fs::create_dir(&path).unwrap();
    for _ in 0..3 {
        journal.probe(0, false).unwrap();
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    journal
        .append(0, |buffer| buffer.extend_from_slice(&[1; 100]))
        .unwrap();
    drop(journal);
    assert_eq!(frames(&path).unwrap(), [1]);
}
