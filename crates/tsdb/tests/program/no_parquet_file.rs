//! `tsdb scan --parquet` of a program that is built without the feature `parquet`.

use crate::harness::Server;

#[test]
fn names_the_feature_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let path = folder.path().join("points.parquet");
    let arguments = ["scan", "--parquet", path.to_str().unwrap(), "--all"];
    let error = server.run(&arguments).failed(1).stderr;
    assert!(
        error.contains("points.parquet: this build has no Parquet; build it with `--features parquet`"),
        "{error}"
    );
    let files: Vec<_> = folder
        .path()
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(files, ["data"]);
}
