//! Tables of names with planted corruptions, and what a check must find.

use std::collections::BTreeMap;

use oxtsdb_row_store::{RowStore, WriteBatch};
use oxtsdb_schema::UidKind;
use oxtsdb_schema::uid_table::meta_qualifier;
use oxtsdb_uids::fsck::{Finding, FindingType, label};
use oxtsdb_uids::testing::table;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Timestamp of planted cells: long ago.
const PLANTED_MS: i64 = 1_356_998_400_000;

/// Bytes of UIDs.
const WIDTH: usize = 3;

/// The identity of a finding: its type, its kind, and the bytes of its UID, else of its first name, else of its cell.
pub(crate) type Expected = (FindingType, Option<UidKind>, Vec<u8>);

/// The identity of a finding.
pub(crate) fn identity(finding: &Finding) -> Expected {
    let cell = || {
        let repair = finding.repair.iter().chain(&finding.alternatives).next();
        repair.map(|repair| repair.changes[0].cell.row.clone())
    };
    let by_name = matches!(finding.finding, FindingType::WrongWidth | FindingType::EmptyValue);
    let bytes = match (&finding.uid, finding.names.first()) {
        (Some(uid), _) if !by_name => uid.clone(),
        (_, Some(name)) => name.clone(),
        (Some(uid), None) => uid.clone(),
        (None, None) => cell().unwrap_or_default(),
    };
    (finding.finding, finding.kind, bytes)
}

/// Builds a table.
pub(crate) struct Planted {
    random: StdRng,
    batch: WriteBatch,
    next: BTreeMap<UidKind, u64>,
    /// A healthy name and its UID, by kind.
    healthy: BTreeMap<UidKind, (Vec<u8>, Vec<u8>)>,
    pub(crate) expected: BTreeMap<Expected, u64>,
    pub(crate) names: u64,
}

/// A corruption: plants its cells for one kind.
type Corruption = fn(&mut Planted, UidKind);

const CORRUPTIONS: &[Corruption] = &[
    Planted::missing_reverse,
    Planted::leaked,
    Planted::leaked_with_metadata,
    Planted::interrupted_rename,
    Planted::name_of_another,
    Planted::two_names,
    Planted::three_names_unconfirmed,
    Planted::two_names_and_a_third,
    Planted::two_reverse,
    Planted::short_uid,
    Planted::long_uid_of_known_name,
    Planted::two_claims,
    Planted::mapping_of_other_width,
    Planted::wide_reverse,
    Planted::unknown_cells,
    Planted::empty_forward,
    Planted::empty_reverse,
    Planted::empty_reverse_of_name,
    Planted::invalid_name,
    Planted::orphaned_metadata,
    Planted::unreadable_metadata,
    Planted::metadata_of_other_kind,
];

impl Planted {
    /// A table of `healthy` names and `corruptions` corruptions in random order. Counters are wrong if there are
    /// corruptions.
    pub(crate) fn new(seed: u64, healthy: usize, corruptions: usize) -> Self {
        let mut planted = Self {
            random: StdRng::seed_from_u64(seed),
            batch: WriteBatch::new(table()),
            next: BTreeMap::new(),
            healthy: BTreeMap::new(),
            expected: BTreeMap::new(),
            names: 0,
        };
        let mut left = [healthy.max(3), corruptions];
        for kind in UidKind::ALL {
            planted.mapping(kind);
            left[0] -= 1;
        }
        while left.iter().sum::<usize>() > 0 {
            let kind = UidKind::ALL[planted.random.random_range(0..3)];
            let is_healthy = planted.random.random_range(0..left[0] + left[1]) < left[0];
            left[usize::from(!is_healthy)] -= 1;
            if is_healthy {
                planted.mapping(kind);
            } else {
                let corruption = CORRUPTIONS[planted.random.random_range(0..CORRUPTIONS.len())];
                corruption(&mut planted, kind);
            }
        }
        planted.counters(corruptions > 0);
        planted
    }

    pub(crate) async fn write(&self, store: &dyn RowStore) {
        store.write(self.batch.clone()).await.unwrap();
    }

    fn put(&mut self, row: &[u8], family: &str, qualifier: &[u8], value: &[u8]) {
        let family = self.batch.family(family);
        self.batch.row(row).put_at(family, qualifier, PLANTED_MS, value);
    }

    fn expect(&mut self, finding: FindingType, kind: impl Into<Option<UidKind>>, bytes: &[u8]) {
        let identity = (finding, kind.into(), bytes.to_vec());
        *self.expected.entry(identity).or_default() += 1;
    }

    fn uid(&mut self, kind: UidKind) -> Vec<u8> {
        let number = self.next.entry(kind).or_default();
        *number += 1;
        number.to_be_bytes()[8 - WIDTH..].to_vec()
    }

    /// A name that no other call returned.
    fn name(&mut self, kind: UidKind) -> Vec<u8> {
        self.names += 1;
        let mut name = format!("{}.{kind}.{}", self.random.random_range(0..100), self.names);
        if self.random.random_ratio(1, 20) {
            name.extend(std::iter::repeat_n('x', 200));
        }
        name.into_bytes()
    }

    fn forward(&mut self, kind: UidKind, name: &[u8], uid: &[u8]) {
        self.put(name, "id", kind.qualifier(), uid);
    }

    fn reverse(&mut self, kind: UidKind, uid: &[u8], name: &[u8]) {
        self.put(uid, "name", kind.qualifier(), name);
    }

    fn metadata(&mut self, kind: UidKind, uid: &[u8], json: &str) {
        self.put(uid, "name", meta_qualifier(kind), json.as_bytes());
    }

    fn document(kind: UidKind) -> String {
        let kind = match kind {
            UidKind::Metric => "METRIC",
            UidKind::Tagk => "TAGK",
            UidKind::Tagv => "TAGV",
        };
        format!(
            r#"{{"type":"{kind}","displayName":"","description":"","notes":"","created":1356998400,"custom":null}}"#
        )
    }

    /// A healthy name; one in four has metadata.
    fn mapping(&mut self, kind: UidKind) -> (Vec<u8>, Vec<u8>) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        self.forward(kind, &name, &uid);
        self.reverse(kind, &uid, &name);
        if self.random.random_ratio(1, 4) {
            self.metadata(kind, &uid, &Self::document(kind));
        }
        self.healthy.insert(kind, (name.clone(), uid.clone()));
        (name, uid)
    }

    fn missing_reverse(&mut self, kind: UidKind) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        self.forward(kind, &name, &uid);
        self.expect(FindingType::MissingReverse, kind, &uid);
        if self.random.random_ratio(1, 4) {
            self.metadata(kind, &uid, "{");
            self.expect(FindingType::UnreadableMetadata, kind, &uid);
        }
    }

    fn leaked(&mut self, kind: UidKind) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        self.reverse(kind, &uid, &name);
        self.expect(FindingType::MissingForward, kind, &uid);
    }

    fn leaked_with_metadata(&mut self, kind: UidKind) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        self.reverse(kind, &uid, &name);
        self.metadata(kind, &uid, "neither JSON");
        self.expect(FindingType::MissingForward, kind, &uid);
    }

    fn interrupted_rename(&mut self, kind: UidKind) {
        let (old, new, uid) = (self.name(kind), self.name(kind), self.uid(kind));
        self.forward(kind, &old, &uid);
        self.reverse(kind, &uid, &new);
        self.expect(FindingType::MismatchedReverse, kind, &uid);
    }

    fn name_of_another(&mut self, kind: UidKind) {
        let other = self.healthy[&kind].0.clone();
        let (name, uid) = (self.name(kind), self.uid(kind));
        self.forward(kind, &name, &uid);
        self.reverse(kind, &uid, &other);
        self.expect(FindingType::MismatchedReverse, kind, &uid);
    }

    fn two_names(&mut self, kind: UidKind) {
        let (a, b, uid) = (self.name(kind), self.name(kind), self.uid(kind));
        self.forward(kind, &a, &uid);
        self.forward(kind, &b, &uid);
        let confirmed = if self.random.random() { a } else { b };
        self.reverse(kind, &uid, &confirmed);
        self.expect(FindingType::DuplicateUid, kind, &uid);
    }

    fn three_names_unconfirmed(&mut self, kind: UidKind) {
        let uid = self.uid(kind);
        for _ in 0..3 {
            let name = self.name(kind);
            self.forward(kind, &name, &uid);
        }
        self.expect(FindingType::DuplicateUid, kind, &uid);
    }

    fn two_names_and_a_third(&mut self, kind: UidKind) {
        let uid = self.uid(kind);
        for _ in 0..2 {
            let name = self.name(kind);
            self.forward(kind, &name, &uid);
        }
        let third = self.name(kind);
        self.reverse(kind, &uid, &third);
        self.expect(FindingType::DuplicateUid, kind, &uid);
    }

    fn two_reverse(&mut self, kind: UidKind) {
        let name = self.healthy[&kind].0.clone();
        let uid = self.uid(kind);
        self.reverse(kind, &uid, &name);
        self.metadata(kind, &uid, &Self::document(kind));
        self.expect(FindingType::DuplicateReverse, kind, &uid);
    }

    fn short_uid(&mut self, kind: UidKind) {
        let name = self.name(kind);
        self.forward(kind, &name, &[0, 7]);
        self.expect(FindingType::WrongWidth, kind, &name);
    }

    fn long_uid_of_known_name(&mut self, kind: UidKind) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        self.forward(kind, &name, &[&[0], uid.as_slice()].concat());
        self.reverse(kind, &uid, &name);
        self.expect(FindingType::WrongWidth, kind, &name);
    }

    fn two_claims(&mut self, kind: UidKind) {
        let name = self.name(kind);
        self.forward(kind, &name, &[1; 9]);
        let kept = self.uid(kind);
        let other = self.uid(kind);
        for uid in [&kept, &other] {
            self.reverse(kind, uid, &name);
            self.metadata(kind, uid, "no JSON");
        }
        self.expect(FindingType::UnreadableMetadata, kind, &kept);
        self.expect(FindingType::WrongWidth, kind, &name);
    }

    fn mapping_of_other_width(&mut self, kind: UidKind) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        let wide = [&[0], uid.as_slice()].concat();
        self.forward(kind, &name, &wide);
        self.reverse(kind, &wide, &name);
        self.expect(FindingType::WrongWidth, kind, &name);
    }

    fn wide_reverse(&mut self, kind: UidKind) {
        let uid = [b"wide", self.uid(kind).as_slice()].concat();
        let name = if self.random.random() {
            self.healthy[&kind].0.clone()
        } else {
            self.name(kind)
        };
        self.reverse(kind, &uid, &name);
        self.expect(FindingType::WrongWidth, kind, &name);
    }

    fn unknown_cells(&mut self, kind: UidKind) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        // OpenTSDB's `uid assign metric x`.
        self.put(&name, "id", b"metric", &uid);
        self.expect(FindingType::UnknownCell, None, &name);
        if self.random.random() {
            self.put(&uid, "name", format!("{kind}_x").as_bytes(), &name);
            self.expect(FindingType::UnknownCell, None, &uid);
        }
        // Not unknown to OpenTSDB's tools.
        self.put(&uid, "name", b"ts_ctr", &[0; 8]);
    }

    fn empty_forward(&mut self, kind: UidKind) {
        let name = self.name(kind);
        self.forward(kind, &name, b"");
        self.expect(FindingType::EmptyValue, kind, &name);
    }

    fn empty_reverse(&mut self, kind: UidKind) {
        let uid = self.uid(kind);
        self.reverse(kind, &uid, b"");
        self.expect(FindingType::EmptyValue, kind, &uid);
    }

    fn empty_reverse_of_name(&mut self, kind: UidKind) {
        let (name, uid) = (self.name(kind), self.uid(kind));
        self.forward(kind, &name, &uid);
        self.reverse(kind, &uid, b"");
        self.expect(FindingType::EmptyValue, kind, &name);
    }

    fn invalid_name(&mut self, kind: UidKind) {
        let (mut name, uid) = (self.name(kind), self.uid(kind));
        name.extend_from_slice(if self.random.random() { b" ?!" } else { b"??" });
        self.forward(kind, &name, &uid);
        self.reverse(kind, &uid, &name);
        self.expect(FindingType::InvalidName, kind, &uid);
    }

    fn orphaned_metadata(&mut self, kind: UidKind) {
        let uid = self.uid(kind);
        self.metadata(kind, &uid, &Self::document(kind));
        self.expect(FindingType::OrphanedMetadata, kind, &uid);
    }

    fn unreadable_metadata(&mut self, kind: UidKind) {
        let (_, uid) = self.mapping(kind);
        self.metadata(kind, &uid, "[]");
        self.expect(FindingType::UnreadableMetadata, kind, &uid);
    }

    fn metadata_of_other_kind(&mut self, kind: UidKind) {
        let (_, uid) = self.mapping(kind);
        let other = if kind == UidKind::Tagk {
            UidKind::Tagv
        } else {
            UidKind::Tagk
        };
        self.metadata(kind, &uid, &Self::document(other));
        self.expect(FindingType::MetadataType, kind, &uid);
    }

    /// The counters; wrong ones are behind, absent and too short.
    fn counters(&mut self, wrong: bool) {
        for kind in UidKind::ALL {
            let number = self.next[&kind];
            match kind {
                UidKind::Metric if wrong => {
                    self.put(&[0], "id", kind.qualifier(), &3_u64.to_be_bytes());
                    self.expect(FindingType::CounterBehind, kind, &[0]);
                }
                UidKind::Tagk if wrong => self.expect(FindingType::CounterMissing, kind, &[0]),
                UidKind::Tagv if wrong => {
                    self.put(&[0], "id", kind.qualifier(), &[1, 2, 3]);
                    self.expect(FindingType::CounterUnreadable, kind, &[0]);
                }
                UidKind::Metric | UidKind::Tagk | UidKind::Tagv => {
                    self.put(&[0], "id", kind.qualifier(), &number.to_be_bytes());
                }
            }
        }
    }
}

/// Labels of the alternatives that are taken where a finding has no default repair.
pub(crate) const CHOSEN: &[&str] = &[
    label::DELETE_UNKNOWN,
    label::REMOVE_OTHER_WIDTH,
    label::REPLACE_CHARACTERS,
];
