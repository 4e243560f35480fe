use oxtsdb_query::QueryError;
use oxtsdb_schema::UidWidth;
use tempfile::TempDir;

use super::*;
use crate::text_search::AnnotationScan;
use crate::text_search::SearchQuery;

fn uid(number: u64) -> Subject {
    Subject::Uid(
        UidKind::Metric,
        Uid::from_number(number, UidWidth::DEFAULT).unwrap(),
    )
}

fn note(series: u8) -> Subject {
    let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, series];
    let tsuid = Tsuid::from_bytes(&tsuid, &UidWidths::default()).unwrap();
    Subject::Annotation(Some(tsuid), 1_000)
}

fn document(subject: Subject, fields: &[(&str, &str)]) -> Document {
    let fields = fields.iter();
    Document {
        subject,
        fields: fields
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect(),
    }
}

fn open(folder: &TempDir, identity: &str) -> Result<(Index, State), SearchError> {
    Index::open(folder.path(), identity, UidWidths::default())
}

fn search(index: &Index, kind: Kind, text: &str, start: usize, limit: usize) -> Result<Found, SearchError> {
    index.search(&Search {
        query: SearchQuery {
            kind,
            text: text.to_owned(),
        },
        start,
        limit,
        stops: Arc::new(|| false),
    })
}

/// The numbers of the UIDs that match, in order.
fn uids(index: &Index, text: &str) -> Vec<u64> {
    let page = search(index, Kind::Uids, text, 0, 100).unwrap();
    let mut numbers: Vec<u64> = page
        .subjects
        .iter()
        .map(|subject| match subject {
            Subject::Uid(_, uid) => uid.number(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(page.total, numbers.len() as u64, "{text}");
    numbers.sort_unstable();
    numbers
}

fn filled(folder: &TempDir) -> Index {
    let (index, state) = open(folder, "a").unwrap();
    assert_eq!(state, State::default());
    let documents = [
        document(
            uid(1),
            &[("name", "sys.cpu.user"), ("description", "Time in user mode")],
        ),
        document(
            uid(2),
            &[
                ("name", "sys.cpu.nice"),
                ("notes", "user, then mode"),
                ("host", "web-01"),
            ],
        ),
        document(
            uid(3),
            &[
                ("name", "df.bytes"),
                ("description", "Disk full?"),
                ("host", "web-02"),
            ],
        ),
        document(note(1), &[("description", "Disk full")]),
    ];
    index.put(&documents, 1).unwrap();
    index.commit(&State::default()).unwrap();
    index
}

#[test]
fn finds_words_patterns_and_phrases() {
    let folder = TempDir::new().unwrap();
    let index = filled(&folder);
    for (text, expected) in [
        ("sys.cpu.user", vec![1]),
        ("CPU", vec![1, 2]),
        ("name:sys.cpu*", vec![1, 2]),
        ("*bytes", vec![3]),
        ("name:*bytes", vec![3]),
        ("name:sys.cpu.????", vec![1, 2]),
        ("host:web-01", vec![2]),
        ("host:web*", vec![2, 3]),
        ("host:*", vec![2, 3]),
        ("name:web-01", vec![]),
        ("user", vec![1, 2]),
        ("description:user", vec![1]),
        ("\"user mode\"", vec![1]),
        ("\"mode user\"", vec![]),
        ("\"user web\"", vec![]),
        ("user AND NOT nice", vec![1]),
        ("cpu -nice", vec![1]),
        ("NOT cpu", vec![3]),
        ("+cpu nice", vec![1, 2]),
        ("name:(df.bytes OR nice)", vec![2, 3]),
        ("cpu AND host:web*", vec![2]),
        ("*", vec![1, 2, 3]),
        ("disk", vec![3]),
        ("(NOT cpu) AND disk", vec![3]),
    ] {
        assert_eq!(uids(&index, text), expected, "{text}");
    }
    let page = search(&index, Kind::Annotations, "disk", 0, 10).unwrap();
    assert_eq!((page.total, page.subjects), (1, vec![note(1)]));
    let best = search(&index, Kind::Uids, "user mode cpu", 0, 1).unwrap();
    assert_eq!((best.total, best.subjects.len()), (2, 1));
    let next = search(&index, Kind::Uids, "user mode cpu", 1, 1).unwrap();
    assert_ne!(best.subjects, next.subjects);
    assert!(
        search(&index, Kind::Uids, "user mode cpu", 2, 1)
            .unwrap()
            .subjects
            .is_empty()
    );
}

#[test]
fn documents_are_replaced_and_removed() {
    let folder = TempDir::new().unwrap();
    let index = filled(&folder);
    index.put(&[document(uid(1), &[("name", "renamed")])], 2).unwrap();
    assert_eq!(uids(&index, "renamed"), Vec::<u64>::new(), "before the commit");
    index.commit(&State::default()).unwrap();
    assert_eq!((uids(&index, "renamed"), uids(&index, "cpu")), (vec![1], vec![2]));
    index.remove(&[uid(2)]).unwrap();
    index.commit(&State::default()).unwrap();
    assert_eq!(uids(&index, "*"), [1, 3]);
    index.remove_before(2).unwrap();
    index.commit(&State::default()).unwrap();
    assert_eq!(uids(&index, "*"), [1]);
    assert_eq!(
        search(&index, Kind::Annotations, "*", 0, 10).unwrap().total,
        1,
        "passes do not read annotations of series"
    );
}

#[test]
fn a_folder_has_one_index_of_one_deployment() {
    let folder = TempDir::new().unwrap();
    let index = filled(&folder);
    let state = State {
        pass: 7,
        has_metadata: true,
        annotations: AnnotationScan::After(vec![1, 2]),
        is_open: false,
    };
    index.commit(&state).unwrap();
    open(&folder, "a").map(drop).unwrap_err();
    drop(index);
    let (index, read) = open(&folder, "a").unwrap();
    assert_eq!((uids(&index, "*"), read), (vec![1, 2, 3], state));
    drop(index);
    let (index, read) = open(&folder, "b").unwrap();
    assert_eq!((uids(&index, "*"), read), (vec![], State::default()));
    drop(index);
    std::fs::write(folder.path().join(FOLDER).join("meta.json"), "damaged").unwrap();
    let (index, read) = open(&folder, "b").unwrap();
    assert_eq!((uids(&index, "*"), read), (vec![], State::default()));
}

#[test]
fn a_search_stops() {
    let folder = TempDir::new().unwrap();
    let index = filled(&folder);
    let stopped = index.search(&Search {
        query: SearchQuery {
            kind: Kind::Uids,
            text: "*u*".to_owned(),
        },
        start: 0,
        limit: 1,
        stops: Arc::new(|| true),
    });
    assert!(
        matches!(stopped, Err(SearchError::Query(QueryError::DeadlineExceeded))),
        "{stopped:?}"
    );
}
