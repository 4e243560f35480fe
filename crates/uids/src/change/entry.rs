//! Entries of the log of changes: renames and deletes, each with its progress.
//!
//! An entry is a JSON object, which operators can read in any tool of the store:
//!
//! ```text
//!   {"change":"rename","claims":0,"from":"sys.cpu","kind":"metrics","owner":"5f0c…","state":"pending",
//!    "time_ms":1356998400000,"to":"sys.cpu.user","uid":"000001"}
//! ```
//!
//! `to` is empty for a delete. `state` is `pending`, `done`, or `undone` if the change was not made. `owner` is the
//! replica that takes its steps, and `claims` how often it was taken over since it began.

use oxtsdb_schema::{Name, Uid, UidKind};
use serde_json::{Map, Value, json};

use crate::table::KindUid;

/// A change of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The UID has another name.
    Rename {
        /// The name before.
        from: Name,
        /// The name after.
        to: Name,
    },
    /// The UID has no name any more.
    Delete {
        /// The name before.
        name: Name,
    },
}

impl Change {
    /// The name before.
    pub fn from(&self) -> &Name {
        match self {
            Self::Rename { from, .. } => from,
            Self::Delete { name } => name,
        }
    }

    /// The name after; `None` for a delete.
    pub fn to(&self) -> Option<&Name> {
        match self {
            Self::Rename { to, .. } => Some(to),
            Self::Delete { .. } => None,
        }
    }
}

/// The progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Some of its steps may have been taken.
    Pending,
    /// All steps have been taken.
    Done,
    /// It was not made, and what had been done of it is undone.
    Undone,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The UID of the mapping that changes.
    pub(crate) uid: KindUid,
    pub(crate) change: Change,
    pub(crate) state: State,
    /// When it began, by the clock of the replica that began it; milliseconds since the epoch.
    pub(crate) time_ms: u64,
    /// The replica that takes its steps.
    pub(crate) owner: String,
    /// How often it was taken over.
    pub(crate) claims: u64,
}

impl Entry {
    /// The same entry in another state.
    pub(crate) fn with(&self, state: State) -> Self {
        Self {
            state,
            ..self.clone()
        }
    }

    /// The same entry, taken over by a replica.
    pub(crate) fn claimed_by(&self, owner: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            claims: self.claims.saturating_add(1),
            ..self.clone()
        }
    }

    /// Whether both concern a UID or a name of one kind, so that they exclude each other.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let names = |entry: &Self| [Some(entry.change.from().clone()), entry.change.to().cloned()];
        self.uid.0 == other.uid.0
            && (self.uid.1 == other.uid.1
                || names(self)
                    .iter()
                    .flatten()
                    .any(|name| names(other).iter().flatten().any(|other| name == other)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (change, to) = match &self.change {
            Change::Rename { to, .. } => ("rename", to.to_text()),
            Change::Delete { .. } => ("delete", String::new()),
        };
        let state = match self.state {
            State::Pending => "pending",
            State::Done => "done",
            State::Undone => "undone",
        };
        json!({
            "change": change,
            "kind": self.uid.0.as_str(),
            "uid": self.uid.1.to_string(),
            "from": self.change.from().to_text(),
            "to": to,
            "state": state,
            "time_ms": self.time_ms,
            "owner": self.owner,
            "claims": self.claims,
        })
        .to_string()
        .into_bytes()
    }

    /// Decodes an entry; `None` if it is not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
        let text = |field: &str| fields.get(field)?.as_str();
        let kind: UidKind = text("kind")?.parse().ok()?;
        let uid = Uid::parse(text("uid")?).ok()?;
        let change = match text("change")? {
            "rename" => Change::Rename {
                from: name(text("from")?)?,
                to: name(text("to")?)?,
            },
            "delete" => Change::Delete {
                name: name(text("from")?)?,
            },
            _ => return None,
        };
        let state = match text("state")? {
            "pending" => State::Pending,
            "done" => State::Done,
            "undone" => State::Undone,
            _ => return None,
        };
        Some(Self {
            uid: (kind, uid),
            change,
            state,
            time_ms: fields.get("time_ms")?.as_u64()?,
            owner: text("owner")?.to_owned(),
            claims: fields.get("claims")?.as_u64()?,
        })
    }
}

/// A name from the text that [`Name::to_text`] returned.
fn name(text: &str) -> Option<Name> {
    let latin1: Option<Vec<u8>> = text
        .chars()
        .map(|character| u8::try_from(character).ok())
        .collect();
    Name::from_stored(&latin1?).ok()
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;
    use proptest::prelude::*;

    use super::*;

    fn any_name() -> impl Strategy<Value = Name> {
        prop::collection::vec(any::<u8>(), 1..40).prop_map(|bytes| Name::from_stored(&bytes).unwrap())
    }

    fn entry(number: u64, from: Name, to: Option<Name>, state: State) -> Entry {
        let uid = Uid::from_number(number, UidWidth::DEFAULT).unwrap();
        let change = match to {
            Some(to) => Change::Rename { from, to },
            None => Change::Delete { name: from },
        };
        Entry {
            uid: (UidKind::Tagv, uid),
            change,
            state,
            time_ms: 1_356_998_400_000,
            owner: "5f".to_owned(),
            claims: 0,
        }
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(
            number in 1u64..1 << 24,
            from in any_name(),
            to in prop::option::of(any_name()),
            state in prop::sample::select(vec![State::Pending, State::Done, State::Undone]),
        ) {
            let entry = entry(number, from, to, state);
            prop_assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Entry::decode(&bytes);
        }
    }

    #[test]
    fn entries_are_readable() {
        let name = |text: &str| Name::from_stored(text.as_bytes()).unwrap();
        let rename = entry(1, name("a"), Some(name("b")), State::Pending);
        assert_eq!(
            String::from_utf8(rename.encode()).unwrap(),
            r#"{"change":"rename","claims":0,"from":"a","kind":"tagv","owner":"5f","state":"pending","time_ms":1356998400000,"to":"b","uid":"000001"}"#
        );
        assert_eq!(Entry::decode(br#"{"change":"rename"}"#), None);
    }

    #[test]
    fn changes_of_one_uid_or_one_name_conflict() {
        let name = |text: &str| Name::from_stored(text.as_bytes()).unwrap();
        let rename = |number, from, to| entry(number, name(from), Some(name(to)), State::Pending);
        let delete = |number, from| entry(number, name(from), None, State::Pending);
        let a_to_b = rename(1, "a", "b");
        assert!(a_to_b.conflicts_with(&rename(1, "c", "d")), "one UID");
        assert!(a_to_b.conflicts_with(&rename(2, "c", "b")), "one new name");
        assert!(a_to_b.conflicts_with(&delete(2, "b")));
        assert!(!a_to_b.conflicts_with(&delete(2, "c")));
        let mut other_kind = delete(1, "a");
        other_kind.uid.0 = UidKind::Metric;
        assert!(!a_to_b.conflicts_with(&other_kind));
    }
}
