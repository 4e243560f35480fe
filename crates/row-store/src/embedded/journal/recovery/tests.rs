use std::path::PathBuf;

use super::super::segment_path;
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
fn frames_are_read_back_and_the_journal_goes_on() {
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
fn a_torn_frame_at_the_end_is_cut_off_wherever_it_tore() {
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

        // The same with the rest as zeros, as in a segment that was made ahead.
        let mut zeroed = bytes.clone();
        zeroed[torn..].fill(0);
        fs::write(segment_path(folder.path(), 2), &zeroed).unwrap();
        assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4], "zeros from {torn}");
    }
}

#[test]
fn damage_before_the_end_is_an_error_that_says_where() {
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
fn a_missing_segment_is_an_error() {
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
fn a_segment_whose_making_was_interrupted_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    five_frames(folder.path());
    for content in [&b""[..], b"oxtsdbjn\0\0"] {
        fs::write(segment_path(folder.path(), 3), content).unwrap();
        assert_eq!(frames(folder.path()).unwrap(), [1, 2, 3, 4, 5]);
        assert!(!segment_path(folder.path(), 3).exists());
    }
}

#[test]
fn what_a_payload_lacks_is_said_with_its_place() {
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
