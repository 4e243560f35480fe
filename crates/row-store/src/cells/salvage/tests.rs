use super::*;

/// A table file of one row for each key, as the engine writes it.
fn write_file(path: &Path, keys: &[&[u8]]) {
    let mut writer = Writer::new(path.to_owned(), 1, 0)
        .unwrap()
        .use_data_block_compression(CompressionType::Lz4);
    for key in keys {
        let item = InternalValue::from_components(*key, [7; 100].as_slice(), 0, ValueType::Value);
        writer.write(item).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn neighbours_bound_the_loss_of_an_unreadable_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (1..=4).map(|id| folder.path().join(id.to_string())).collect();
    let keys: [[&[u8]; 2]; 4] = [
        [b"\0\x01a", b"\0\x01b"],
        [b"\0\x01f", b"\0\x01g"],
        [b"\0\x01k", b"\0\x01l"],
        [b"\0\x02a", b"\0\x02b"],
    ];
    for (path, keys) in paths.iter().zip(&keys) {
        write_file(path, keys);
    }
    let gaps = |index: usize| -> Vec<(Vec<u8>, Vec<u8>)> {
        let file = TableFile {
            id: 1,
            path: paths[index].clone(),
            keys: None,
            run: paths.as_slice().into(),
        };
        let damage = inspect(&file).unwrap();
        let gaps = damage.map_or_else(Vec::new, |damage| damage.gaps);
        gaps.into_iter().map(|gap| (gap.start, gap.stop)).collect()
    };
    assert_eq!(gaps(1), []);

    std::fs::remove_file(&paths[1]).unwrap();
    assert_eq!(gaps(1), [(b"\0\x01b\0".to_vec(), b"\0\x01k".to_vec())]);
    // A neighbour is lost as well.
    std::fs::write(&paths[2], []).unwrap();
    assert_eq!(gaps(1), [(b"\0\x01b\0".to_vec(), b"\0\x02a".to_vec())]);
    assert_eq!(gaps(2), [(b"\0\x01b\0".to_vec(), b"\0\x02a".to_vec())]);
    // No file of the run is left at either end.
    std::fs::remove_file(&paths[0]).unwrap();
    std::fs::remove_file(&paths[3]).unwrap();
    assert_eq!(gaps(0), [(Vec::new(), Vec::new())]);
}

#[test]
fn truncated_file_loses_all_keys_after_its_last_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1");
    write_file(&path, &[b"\0\x01a", b"\0\x01b"]);
    let bytes = std::fs::read(&path).unwrap();
    let (_, first_block) = header(&bytes).unwrap();
    std::fs::write(&path, &bytes[..first_block]).unwrap();
    let mut file = TableFile {
        id: 1,
        path,
        keys: None,
        run: Arc::default(),
    };
    let damage = inspect(&file).unwrap().unwrap();
    let [gap] = &damage.gaps[..] else {
        panic!("{damage:?}")
    };
    assert_eq!(
        (gap.start.as_slice(), gap.stop.as_slice()),
        (b"\0\x01b\0".as_slice(), b"".as_slice())
    );
    // A known last key proves that no row is missing.
    file.keys = Some((b"\0\x01a".to_vec(), b"\0\x01b".to_vec()));
    let damage = inspect(&file).unwrap().unwrap();
    assert!(damage.gaps.is_empty() && damage.structure.is_some(), "{damage:?}");
}
