//! The line that `tsdb uid` prints for a mapping.

use oxtsdb_client::{Uid, UidKind};

pub(super) fn line(kind: UidKind, name: &str, uid: Uid) -> String {
    format!("{kind} {name}: {uid}\n")
}
