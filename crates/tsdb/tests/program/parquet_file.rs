//! `tsdb scan --parquet`, with a Parquet reader.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::SerializedFileReader;
use parquet::record::Field;

use crate::harness::Server;

/// The points of a file as lines of `tsdb scan --import`: in milliseconds, values with their type.
fn points(path: &Path) -> Vec<String> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows = reader.into_iter().map(|row| row.unwrap().into_columns());
    let mut lines: Vec<String> = rows
        .map(|row| {
            let names: Vec<&str> = row.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["metric", "timestamp", "value", "integer", "tags"]);
            let fields: Vec<Field> = row.into_iter().map(|(_, field)| field).collect();
            let [
                Field::Str(metric),
                Field::TimestampMillis(time),
                Field::Double(value),
                integer,
                Field::MapInternal(tags),
            ] = &fields[..]
            else {
                panic!("{fields:?}");
            };
            let value = match integer {
                Field::Long(integer) => integer.to_string(),
                Field::Null => format!("{value:?}"),
                other => panic!("{other:?}"),
            };
            let tags: Vec<String> = tags
                .entries()
                .iter()
                .map(|(key, value)| match (key, value) {
                    (Field::Str(key), Field::Str(value)) => format!("{key}={value}"),
                    other => panic!("{other:?}"),
                })
                .collect();
            format!("{metric} {time} {value} {}", tags.join(" "))
        })
        .collect();
    lines.sort_unstable();
    lines
}

#[test]
fn writes_the_points_of_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let mut expected = vec![
        "f 1346846400250 0.5 host=a".to_owned(),
        "f 1346846401000 42.0 host=a".to_owned(),
        format!("f 1346846402000 {} host=a", i64::MAX),
    ];
    for n in 0..500_i64 {
        for host in ["a", "b"] {
            let time = 1_346_846_400_000 + n * 60_000;
            expected.push(format!("m {time} {} host={host} site=s", n - 250));
        }
    }
    expected.sort_unstable();
    let text = expected.join("\n") + "\n";
    server.run_with(&["import", "-"], &text).ok();
    let path = |name: &str| folder.path().join(name);
    let scan = |name: &str, words: &[&str]| {
        let mut arguments = vec!["scan".to_owned(), "--parquet".to_owned()];
        arguments.push(path(name).display().to_string());
        arguments.extend(words.iter().map(|word| (*word).to_owned()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        server.run(&arguments)
    };

    assert_eq!(scan("all.parquet", &["--all"]).ok(), "");
    assert_eq!(points(&path("all.parquet")), expected);
    // The hours of a range, of one series.
    scan("some.parquet", &["1346850000", "1346853599", "m", "host=b"]).ok();
    let some = expected
        .iter()
        .filter(|line| line.starts_with("m ") && line.contains("host=b"));
    let some: Vec<&String> = some
        .filter(|line| ("m 1346850000000".."m 1346853600000").contains(&line.as_str()))
        .collect();
    assert_eq!(some.len(), 60);
    assert_eq!(points(&path("some.parquet")).iter().collect::<Vec<_>>(), some);
    // A file is not overwritten, and a failed scan leaves none.
    let error = scan("some.parquet", &["--all"]).failed(1).stderr;
    assert!(error.contains("some.parquet` exists"), "{error}");
    assert_eq!(points(&path("some.parquet")).len(), 60);
    let error = scan("none.parquet", &["missing"]).failed(1).stderr;
    assert!(error.contains("NOT_FOUND"), "{error}");
    assert!(!path("none.parquet").exists());
}
