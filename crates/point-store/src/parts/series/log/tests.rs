use std::io::ErrorKind;

use oxtsdb_schema::uid::UidWidth;

use super::*;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

const PATH: &str = "/series.log";
const COPY: &str = "/series.copy";

/// The keys of this many series.
fn key_of(series: u32) -> Vec<u8> {
    [&[0, 0, (series % 3) as u8], &series.to_be_bytes()[..], &[1; 4]].concat()
}

/// Opens the log, checks the keys of its series, and returns their number.
fn open(disk: &SimulatedDisk) -> Result<(SeriesLog, u32), PointStoreError> {
    let mut next = 0;
    let log = SeriesLog::open(
        Arc::new(disk.clone()),
        Path::new(PATH),
        UidWidths::default(),
        &mut |series, key| {
            assert!(series.0 <= next, "{series:?}");
            assert_eq!(key, key_of(series.0));
            next = next.max(series.0 + 1);
            Ok(())
        },
    )?;
    Ok((log, next))
}

fn save(log: &mut SeriesLog, end: u32) -> Result<(), PointStoreError> {
    log.save(end, &|series, key| {
        *key = key_of(series.0);
        true
    })
}

fn lengths(disk: &SimulatedDisk) -> Vec<u64> {
    let files = disk.files();
    [PATH, COPY]
        .map(|path| files.get(path).copied().unwrap_or(0))
        .to_vec()
}

#[test]
fn series_are_read_back_in_several_frames() {
    let disk = SimulatedDisk::new();
    let (mut log, series) = open(&disk).unwrap();
    assert_eq!((series, log.saved()), (0, Some(0)));
    assert!(disk.files().is_empty());
    for end in [1, 100_000, 100_000, 100_001] {
        save(&mut log, end).unwrap();
        assert_eq!(log.saved(), Some(end));
        assert_eq!(open(&disk.power_loss()).unwrap().1, end);
    }
    assert!(lengths(&disk)[0] > FRAME_BYTES as u64);
    let (mut log, _) = open(&disk).unwrap();
    save(&mut log, 100_010).unwrap();
    assert_eq!(open(&disk.power_loss()).unwrap().1, 100_010);
    log.verify(&mut |_, _| Ok(())).unwrap();
}

#[test]
fn the_format_is_as_documented() {
    let disk = SimulatedDisk::new();
    save(&mut open(&disk).unwrap().0, 2).unwrap();
    let file = disk.open(Path::new(COPY)).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    let header = b"oxtsdbsr\0\0\0\x01\x03\x03\x03\0";
    let frame = b"\0\0\0\x18\0\0\0\0\0\0\0\x02";
    let keys = b"\0\0\0\x0b\0\0\0\0\0\0\0\x01\x01\x01\x01\x02\x04\0\x05\x01\0\0\0\x01";
    let crc = |parts: &[&[u8]]| crc32fast::hash(&parts.concat()).to_be_bytes();
    let expected = [&header[..], &crc(&[header]), frame, &crc(&[frame, keys]), keys];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn a_bit_that_flips_in_a_copy_is_repaired() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk).unwrap();
    for end in [5, 9] {
        save(&mut log, end).unwrap();
    }
    let bytes = lengths(&disk)[0];
    for path in [PATH, COPY] {
        for bit in 0..bytes * 8 {
            let disk = disk.power_loss();
            disk.flip_bit(Path::new(path), bit).unwrap();
            let (mut log, series) = open(&disk).unwrap();
            assert_eq!((series, log.saved()), (9, None), "{path} {bit}");
            save(&mut log, 0).unwrap();
            assert_eq!(log.saved(), Some(9));
            log.verify(&mut |_, _| Ok(())).unwrap();
            let disk = disk.power_loss();
            disk.remove(Path::new(if path == PATH { COPY } else { PATH }))
                .unwrap();
            assert_eq!(open(&disk).unwrap().1, 9);
        }
    }
}

#[test]
fn damage_of_both_copies_is_an_error() {
    let disk = SimulatedDisk::new();
    save(&mut open(&disk).unwrap().0, 9).unwrap();
    for bit in [3, 200, lengths(&disk)[0] * 8 - 1] {
        let disk = disk.power_loss();
        disk.flip_bit(Path::new(PATH), bit).unwrap();
        disk.flip_bit(Path::new(COPY), bit + 1 - bit % 8).unwrap();
        let error = open(&disk).unwrap_err();
        assert!(matches!(error, PointStoreError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_missing_copy_is_written_again() {
    for path in [PATH, COPY] {
        let disk = SimulatedDisk::new();
        save(&mut open(&disk).unwrap().0, 9).unwrap();
        disk.remove(Path::new(path)).unwrap();
        let (mut log, series) = open(&disk).unwrap();
        assert_eq!((series, log.saved()), (9, None));
        save(&mut log, 10).unwrap();
        assert_eq!(lengths(&disk)[0], lengths(&disk)[1]);
    }
}

/// Saved series survive a crash at any step of saving more, and more can be saved then.
#[test]
fn what_is_saved_survives_every_crash() {
    for seed in 0..40_u64 {
        for steps in 0..20 {
            let mut disk = SimulatedDisk::new();
            let mut saved = 0;
            for round in 1..6 {
                let Ok((mut log, series)) = open(&disk) else {
                    panic!("seed {seed}, {steps} steps, round {round}");
                };
                assert!(
                    series >= saved,
                    "seed {seed}, {steps} steps, round {round}: {series} of {saved}"
                );
                saved = series;
                disk.fail_after((steps + seed * round) % 13);
                for end in [saved + 2, saved + 3] {
                    if save(&mut log, end).is_err() {
                        break;
                    }
                    saved = end;
                }
                disk = match seed % 4 {
                    0 => disk.kill(),
                    1 => disk.power_loss(),
                    _ => disk.power_loss_seeded(seed * 100 + round),
                };
                disk.repair();
            }
        }
    }
}

#[test]
fn a_failed_save_is_repeated() {
    for step in 0..12 {
        let disk = SimulatedDisk::new();
        let (mut log, _) = open(&disk).unwrap();
        disk.fail_operation(step, ErrorKind::StorageFull);
        let first = save(&mut log, 5);
        let error = first.or_else(|_| save(&mut log, 8).map(|()| disk.repair()));
        error.unwrap();
        save(&mut log, 9).unwrap();
        assert_eq!(log.saved(), Some(9));
        assert_eq!(open(&disk.power_loss()).unwrap().1, 9, "{step}");
    }
}

#[test]
fn other_versions_and_widths_are_rejected() {
    let disk = SimulatedDisk::new();
    save(&mut open(&disk).unwrap().0, 1).unwrap();
    let widths = UidWidths {
        tagk: UidWidth::new(4).unwrap(),
        ..UidWidths::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let opened = SeriesLog::open(Arc::clone(&disk), Path::new(PATH), widths, &mut |_, _| Ok(()));
    let error = opened.unwrap_err().to_string();
    let expected = "/series.log has UIDs of 3, 3 and 3 bytes (metric, tagk, tagv), configured are 3, 4 and 3";
    assert_eq!(error, expected);

    let mut newer = header(&UidWidths::default());
    newer.truncate(HEADER_BYTES - 4);
    newer[11] = 2;
    newer.extend(crc32fast::hash(&newer).to_be_bytes());
    oxtsdb_storage_file::folder::replace(&*disk, Path::new(COPY), &newer).unwrap();
    let opened = SeriesLog::open(disk, Path::new(PATH), UidWidths::default(), &mut |_, _| Ok(()));
    assert!(matches!(opened, Err(PointStoreError::Format { format, supported: 1, .. }) if format == "2"));
}

#[test]
fn verification_names_the_damaged_copy() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk).unwrap();
    save(&mut log, 9).unwrap();
    log.verify(&mut |_, _| Ok(())).unwrap();
    disk.flip_bit(Path::new(COPY), 300).unwrap();
    let error = log.verify(&mut |_, _| Ok(())).unwrap_err().to_string();
    assert_eq!(
        error,
        "/series.copy is damaged: the checksum of a frame does not match"
    );
}
