//! Parts of many series, damaged parts, and copies of blocks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::page::{BlockPage, TimesPage};
use super::*;
use crate::{Point, PointKind, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

type Content = BTreeMap<SeriesKey, Columns>;

const PART: &str = "/day/1.part";
const START: i64 = 1_700_000_000_000;

fn key(metric: u32, series: u32) -> SeriesKey {
    SeriesKey {
        metric: MetricNumber(metric),
        series: SeriesNumber(series),
    }
}

fn new_disk() -> (SimulatedDisk, Arc<dyn Disk>) {
    let disk = SimulatedDisk::new();
    disk.create_dir(Path::new("/day")).unwrap();
    (disk.clone(), Arc::new(disk))
}

fn write(disk: &Arc<dyn Disk>, path: &str, content: &Content) -> PartMeta {
    let mut writer = PartWriter::create(&**disk, Path::new(path)).unwrap();
    for (key, columns) in content {
        writer.push(*key, columns).unwrap();
    }
    writer.finish().unwrap()
}

fn open(disk: &Arc<dyn Disk>, path: &str) -> Result<Arc<Part>, PointStoreError> {
    let cache = Arc::new(PageCache::new(1 << 20, 2));
    Part::open(disk, Path::new(path), &cache).map(Arc::new)
}

/// All series and points, by blocks.
fn read_all(part: &Part) -> Result<Content, PointStoreError> {
    let mut decoder = Decoder::default();
    let mut content = Content::new();
    for block in part.blocks(key(0, 0)..=key(u32::MAX, u32::MAX), TimeRange::ALL) {
        let block = block?;
        let out = content.entry(block.head().key).or_default();
        part.decode(&block, TimeRange::ALL, &mut decoder, out)?;
    }
    Ok(content)
}

/// Series of several metrics by agents: regular and jittering clocks, integers and decimals.
fn agents(agents: u32, points: i64) -> Content {
    let mut content = Content::new();
    for metric in 0..4 {
        for agent in 0..agents {
            let columns = (0..points).map(|index| {
                let noise = (index * 7_919 + i64::from(agent) * 104_729) % 97;
                let jitter = if agent % 2 == 0 { 0 } else { noise % 41 - 20 };
                let value = i64::from(metric) * 1_000 + noise;
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let (kind, bits) = match metric % 2 {
                    0 => (4, value.cast_unsigned()),
                    _ => (6, (value as f64 / 100.0).to_bits()),
                };
                Point {
                    time_ms: START + index * 10_000 + jitter,
                    kind: PointKind::from_byte(kind).unwrap(),
                    bits,
                }
            });
            content.insert(key(metric, metric * agents + agent), columns.collect());
        }
    }
    content
}

#[test]
fn parts_of_many_series_round_trip() {
    let (_, disk) = new_disk();
    let content = agents(50, 1_500);
    let meta = write(&disk, PART, &content);
    let part = open(&disk, PART).unwrap();
    assert_eq!(*part.meta(), meta);
    assert_eq!((meta.series, meta.points, meta.blocks), (200, 300_000, 400));
    assert!(meta.bytes < 300_000 * 13 / 10, "{} bytes", meta.bytes);
    assert_eq!(read_all(&part).unwrap(), content);
    part.verify().unwrap();
    let mut decoder = Decoder::default();
    for (key, columns) in &content {
        let (first, last) = (700, 1_200);
        let range = TimeRange {
            first_ms: columns.times_ms[first],
            last_ms: columns.times_ms[last],
        };
        let mut out = Columns::default();
        part.read(*key, range, &mut decoder, &mut out).unwrap();
        let mut expected = Columns::default();
        expected.extend_from(columns, first..last + 1);
        assert_eq!(out, expected);
    }
    let mut out = Columns::default();
    part.read(key(9, 0), TimeRange::ALL, &mut decoder, &mut out)
        .unwrap();
    assert!(out.is_empty(), "an unknown series has no points");
}

/// Format 1, byte by byte: a change of the format needs another version, and a reader for this one.
#[test]
fn stores_the_documented_bytes() {
    let (_, disk) = new_disk();
    let point = |time_ms, kind, bits| Point {
        time_ms,
        kind: PointKind::from_byte(kind).unwrap(),
        bits,
    };
    let regular: Columns = (0..3).map(|index| point(START + index * 10_000, 0, 5)).collect();
    let irregular = [
        0, 9_990, 20_010, 29_995, 40_000, 50_019, 60_007, 70_000, 79_993, 90_008, 100_001, 110_011,
    ];
    let irregular: Columns = irregular
        .iter()
        .map(|time| point(START + time, 6, 12.5_f64.to_bits()))
        .collect();
    write(
        &disk,
        PART,
        &Content::from([
            (key(0, 7), regular),
            (key(2, 1), irregular.clone()),
            (key(2, 3), irregular),
        ]),
    );
    let mut bytes = [0; 127];
    let file = disk.open(Path::new(PART)).unwrap();
    assert_eq!(file.len().unwrap(), 127);
    file.read_at(&mut bytes, 0).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "4f58504152540001",                                     // header
        "80a0abfef962",                                         // base instant
        "02",                                                   // times
        "0c00904e",                                             // 3 regular
        "3200bbdb0600",                                         // 12 of shared column 0
        "03",                                                   // blocks
        "0e000700000000040a00",                                 // metric 0, series 7
        "050101080006010004fa0100",                             // metric 2, series 1
        "0401080006010004fa0100",                               // metric 2, series 3
        "010e0700a09c01131d050aaec54392ea031b",                 // times page: a column of 14 bytes, a line
        "030266a52c36670007020380d095ffbc31bbdb0621f0f46def01", // index
        "000000000000004b",                                     // index offset
        "0000001c",                                             // index bytes
        "863f02aa",                                             // checksum
        "4f58504152542e2e",                                     // trailer
    );
    assert_eq!(hex, expected);
}

#[test]
fn irregular_instants_are_stored_once() {
    let (_, disk) = new_disk();
    let points = 600;
    let mut content = Content::new();
    for metric in 0..10 {
        for agent in 0..20 {
            let columns = (0..points).map(|index| Point {
                time_ms: START + index * 10_000 + (index * 7_919 + agent * 104_729) % 41,
                kind: PointKind::from_byte(4).unwrap(),
                bits: 5,
            });
            content.insert(key(metric, u32::try_from(agent).unwrap()), columns.collect());
        }
    }
    let meta = write(&disk, PART, &content);
    let times = 20 * 600 * 11 / 16;
    assert!(meta.bytes < times + 200 * 40, "{} bytes", meta.bytes);
    let part = open(&disk, PART).unwrap();
    assert_eq!(read_all(&part).unwrap(), content);
    part.verify().unwrap();
}

#[test]
fn blocks_are_copied_without_change() {
    let (_, disk) = new_disk();
    let content = agents(30, 700);
    write(&disk, PART, &content);
    let part = open(&disk, PART).unwrap();
    let mut writer = PartWriter::create(&*disk, Path::new("/day/2.part")).unwrap();
    for block in part.iter() {
        writer.push_block(&part, &block.unwrap()).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), *part.meta());
    let copy = open(&disk, "/day/2.part").unwrap();
    assert_eq!(read_all(&copy).unwrap(), content);
    copy.verify().unwrap();
}

#[test]
fn pages_with_unknown_series_are_damaged() {
    let (_, disk) = new_disk();
    // The page begins and ends with series that are known.
    let content = [key(0, 0), key(0, 9), key(1, 1)].map(|key| (key, agents(1, 1)[&self::key(0, 0)].clone()));
    write(&disk, PART, &content.into_iter().collect());
    let cache = Arc::new(PageCache::new(1 << 20, 2));
    let opened = || Part::open(&disk, Path::new(PART), &cache).unwrap();
    let error = opened().within(TimeRange::ALL, 1).unwrap_err();
    assert!(error.to_string().contains("series 1 is unknown"), "{error}");
    let error = read_all(&opened().within(TimeRange::ALL, 9).unwrap()).unwrap_err();
    assert!(matches!(error, PointStoreError::Damaged { .. }), "{error}");
    assert_eq!(
        read_all(&opened().within(TimeRange::ALL, 10).unwrap())
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn values_of_any_bits_are_kept() {
    let (_, disk) = new_disk();
    for byte in 0..8 {
        let Some(kind) = PointKind::from_byte(byte) else {
            continue;
        };
        let bits = [1, u64::MAX, 0x7ff0_0000_0000_0001, 0x3fb9_9999_9999_999a];
        let points = bits.iter().zip(0..).map(|(bits, n)| Point {
            time_ms: START + n,
            kind,
            bits: *bits,
        });
        let content = Content::from([(key(0, 0), points.collect())]);
        let path = format!("/day/{byte}.part");
        write(&disk, &path, &content);
        assert_eq!(
            read_all(&open(&disk, &path).unwrap()).unwrap(),
            content,
            "{kind:?}"
        );
    }
}

#[test]
fn points_that_are_continued_are_joined() {
    let (_, disk) = new_disk();
    let content = agents(1, 3_000);
    let mut writer = PartWriter::create(&*disk, Path::new(PART)).unwrap();
    for (key, columns) in &content {
        for start in (0..3_000).step_by(60) {
            writer.push_range(*key, columns, start..start + 60).unwrap();
        }
    }
    let meta = writer.finish().unwrap();
    assert_eq!((meta.series, meta.blocks), (4, 12));
    assert_eq!(read_all(&open(&disk, PART).unwrap()).unwrap(), content);
}

#[test]
fn rejects_points_out_of_order() {
    let (_, disk) = new_disk();
    let columns = &agents(1, 10)[&key(0, 0)];
    let mut writer = PartWriter::create(&*disk, Path::new(PART)).unwrap();
    writer.push(key(1, 5), columns).unwrap();
    for (key, columns) in [
        (key(1, 5), columns.clone()),
        (key(1, 4), columns.clone()),
        (key(0, 9), columns.clone()),
        (
            key(2, 0),
            columns.points().take(2).chain(columns.points().take(1)).collect(),
        ),
        (
            key(2, 0),
            Columns {
                times_ms: vec![-1],
                kinds: columns.kinds[..1].to_vec(),
                bits: vec![0],
            },
        ),
    ] {
        let rejected = writer.push(key, &columns);
        assert!(
            matches!(rejected, Err(PointStoreError::Invalid(_))),
            "{rejected:?}"
        );
    }
    assert_eq!(writer.finish().unwrap().points, 10);
    assert_eq!(open(&disk, PART).unwrap().meta().points, 10);
}

#[test]
fn an_empty_part_has_no_blocks() {
    let (_, disk) = new_disk();
    let meta = write(&disk, PART, &Content::new());
    let part = open(&disk, PART).unwrap();
    assert_eq!((part.meta().points, *part.meta()), (0, meta));
    part.verify().unwrap();
    assert_eq!(part.iter().count(), 0);
}

#[test]
fn every_flipped_bit_is_detected() {
    let (simulated, disk) = new_disk();
    let content = agents(2, 40);
    let bytes = write(&disk, PART, &content).bytes;
    for bit in 0..bytes * 8 {
        assert!(simulated.flip_bit(Path::new(PART), bit).unwrap());
        let result = open(&disk, PART).and_then(|part| {
            let all = read_all(&part)?;
            assert!(part.verify().is_err(), "verify detects bit {bit}");
            Ok(all)
        });
        assert!(
            matches!(
                result,
                Err(PointStoreError::Damaged { .. } | PointStoreError::Format { .. })
            ),
            "bit {bit}"
        );
        assert!(simulated.flip_bit(Path::new(PART), bit).unwrap());
    }
    assert_eq!(read_all(&open(&disk, PART).unwrap()).unwrap(), content);
}

#[test]
fn damage_of_a_page_does_not_hide_other_pages() {
    let (simulated, disk) = new_disk();
    let content = agents(50, 1_500);
    write(&disk, PART, &content);
    simulated.flip_bit(Path::new(PART), 8 * 100).unwrap();
    let part = open(&disk, PART).unwrap();
    assert!(matches!(part.verify(), Err(PointStoreError::Damaged { .. })));
    let (key, columns) = content.last_key_value().unwrap();
    let mut out = Columns::default();
    part.read(*key, TimeRange::ALL, &mut Decoder::default(), &mut out)
        .unwrap();
    assert_eq!(out, *columns);
}

#[test]
fn cut_files_are_damaged() {
    let (_, disk) = new_disk();
    let bytes = write(&disk, PART, &agents(2, 40)).bytes;
    let mut whole = vec![0; usize::try_from(bytes).unwrap()];
    disk.open(Path::new(PART))
        .unwrap()
        .read_at(&mut whole, 0)
        .unwrap();
    for len in 0..whole.len() {
        let path = format!("/day/{len}.cut");
        disk.create(Path::new(&path))
            .unwrap()
            .write(&whole[..len])
            .unwrap();
        let result = open(&disk, &path);
        assert!(
            matches!(result, Err(PointStoreError::Damaged { .. })),
            "{len}: {result:?}"
        );
    }
}

#[test]
fn pages_leave_the_cache_with_their_part() {
    let (_, disk) = new_disk();
    write(&disk, PART, &agents(10, 1_000));
    let cache = Arc::new(PageCache::new(1 << 20, 1));
    let part = Part::open(&disk, Path::new(PART), &cache).unwrap();
    let other = Part::open(&disk, Path::new(PART), &cache).unwrap();
    read_all(&part).unwrap();
    assert!(cache.byte_len() > 0, "reads are cached");
    drop(part);
    assert_eq!(cache.byte_len(), 0);
    read_all(&other).unwrap();
}

#[test]
fn a_cache_without_capacity_reads_from_the_disk() {
    let (_, disk) = new_disk();
    let content = agents(10, 1_000);
    write(&disk, PART, &content);
    let cache = Arc::new(PageCache::new(0, 0));
    let part = Part::open(&disk, Path::new(PART), &cache).unwrap();
    assert_eq!(read_all(&part).unwrap(), content);
    assert_eq!(cache.byte_len(), 0);
}

fn any_columns() -> impl Strategy<Value = Columns> {
    let step = prop_oneof![Just(10_000_i64), Just(60_000), 1..100_i64, 1..10_000_000_i64];
    let points = prop_oneof![Just(1..4_usize), Just(1..300), Just(1_000..2_500)].prop_flat_map(|count| {
        vec(
            (
                any::<i64>(),
                0..64_u32,
                prop::sample::select(vec![0_u8, 0, 0, 1, 2, 4, 6]),
            ),
            count,
        )
    });
    (step, any::<bool>(), 0..START, points).prop_map(|(step, jitter, start, points)| {
        let mut time_ms = start;
        let points = points.into_iter().map(|(random, shift, kind)| {
            time_ms += step + if jitter { random.rem_euclid(step) } else { 0 };
            Point {
                time_ms,
                kind: PointKind::from_byte(kind).unwrap(),
                bits: (random >> shift).cast_unsigned(),
            }
        });
        points.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_columns_round_trip(
        series in vec(((0..3_u32, 0..50_u32), any_columns()), 1..12),
        copies in vec(any::<bool>(), 100),
    ) {
        let (_, disk) = new_disk();
        let content: Content = series.into_iter().map(|((metric, series), columns)| (key(metric, series), columns)).collect();
        write(&disk, PART, &content);
        let part = open(&disk, PART).unwrap();
        prop_assert_eq!(read_all(&part).unwrap(), content.clone());
        part.verify().unwrap();
        // Copied and decoded blocks in any mix.
        let mut writer = PartWriter::create(&*disk, Path::new("/day/2.part")).unwrap();
        let mut decoder = Decoder::default();
        for (block, copy) in part.iter().zip(copies.iter().cycle()) {
            let block = block.unwrap();
            if *copy {
                writer.push_block(&part, &block).unwrap();
            } else {
                let mut columns = Columns::default();
                part.decode(&block, TimeRange::ALL, &mut decoder, &mut columns).unwrap();
                writer.push(block.head().key, &columns).unwrap();
            }
        }
        writer.finish().unwrap();
        let merged = open(&disk, "/day/2.part").unwrap();
        prop_assert_eq!(read_all(&merged).unwrap(), content);
        merged.verify().unwrap();
    }

    #[test]
    fn ranges_select_their_points(columns in any_columns(), one in 0..2_500_usize, other in 0..2_500_usize) {
        let (_, disk) = new_disk();
        write(&disk, PART, &Content::from([(key(1, 1), columns.clone())]));
        let (one, other) = (one % columns.len(), other % columns.len());
        let (first, last) = (one.min(other), one.max(other));
        let range = TimeRange { first_ms: columns.times_ms[first], last_ms: columns.times_ms[last] };
        let mut out = Columns::default();
        open(&disk, PART).unwrap().read(key(1, 1), range, &mut Decoder::default(), &mut out).unwrap();
        let expected: Columns = columns.points().skip(first).take(last + 1 - first).collect();
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn any_pages_do_not_panic(bytes in vec(any::<u8>(), 0..400), small in vec(0..4_u8, 0..100)) {
        for bytes in [bytes, small] {
            if let Some(page) = BlockPage::parse(bytes.clone().into()) {
                prop_assert!(page.byte_len() <= 16 * bytes.len());
            }
            if let Some(page) = TimesPage::parse(bytes.clone().into()) {
                prop_assert!((0..page.len()).all(|index| page.column(index).is_some()));
            }
            let _ = index::Index::parse(&bytes, 8, 100);
        }
    }

    #[test]
    fn any_files_are_damaged(bytes in vec(any::<u8>(), 0..400), index in vec(0..9_u8, 0..50)) {
        let (_, disk) = new_disk();
        // Valid checksums around any bytes.
        let mut file = [&HEADER[..], &bytes, &index].concat();
        let mut tail = index.clone();
        tail.extend_from_slice(&(8 + bytes.len() as u64).to_be_bytes());
        tail.extend_from_slice(&u32::try_from(index.len()).unwrap().to_be_bytes());
        file.extend_from_slice(&tail[index.len()..]);
        file.extend_from_slice(&crc32fast::hash(&tail).to_be_bytes());
        file.extend_from_slice(&TRAILER_MAGIC);
        disk.create(Path::new(PART)).unwrap().write(&file).unwrap();
        if let Ok(part) = open(&disk, PART) {
            let _ = read_all(&part);
            let _ = part.verify();
        }
    }
}
