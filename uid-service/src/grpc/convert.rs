//! Conversions between messages and names or UIDs.

use std::sync::LazyLock;

use bytes::Bytes;
use oxtsdb_proto::common::v1::{self as common, ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, invalid_item, item_error};
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid_kind;
pub(super) use oxtsdb_proto::uid_kind_name as kind_name;
use oxtsdb_schema::name::excerpt;
use oxtsdb_schema::{Name, NameRules, Uid, UidKind, UidWidth};
use oxtsdb_uids::suggest::Mapping;
use oxtsdb_uids::table::{KindName, KindUid};
use tonic::{Code, Status};

/// Maximum count of names, UIDs or mappings of a batch.
pub(super) const MAX_BATCH: usize = 4096;

/// The rules of names in look-ups: the table may hold names that today's rules reject. Names that it cannot
/// hold are rejected.
static ANY_STORED: LazyLock<NameRules> = LazyLock::new(|| NameRules {
    extra_characters: ('\u{0}'..='\u{ff}').collect(),
    ..NameRules::default()
});

pub(super) fn any_stored() -> &'static NameRules {
    &ANY_STORED
}

/// Rejects an empty or too large batch.
pub(super) fn check_batch(field: &str, items: usize, limit: usize) -> Result<(), Status> {
    if (1..=limit).contains(&items) {
        return Ok(());
    }
    let description = format!("has {items} items, 1 to {limit} are allowed");
    Err(invalid_field_because(
        field,
        ErrorReason::BatchTooLarge,
        description,
    ))
}

pub(super) fn kind_of(field: &str, number: i32) -> Result<UidKind, Status> {
    uid_kind(number).ok_or_else(|| invalid_field(field, no_kind(number)))
}

/// The kinds of a request without repetitions, in their order; all if there are none.
pub(super) fn kinds(field: &str, numbers: &[i32]) -> Result<Vec<UidKind>, Status> {
    let mut kinds = Vec::with_capacity(UidKind::ALL.len());
    for (index, number) in numbers.iter().enumerate() {
        let kind = kind_of(&format!("{field}[{index}]"), *number)?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    if kinds.is_empty() {
        kinds = UidKind::ALL.to_vec();
    }
    kinds.sort_unstable();
    Ok(kinds)
}

fn no_kind(number: i32) -> String {
    format!("{number} is not a kind of UID, expected METRIC, TAG_KEY or TAG_VALUE")
}

pub(super) fn kind_number(kind: UidKind) -> i32 {
    common::UidKind::from(kind).into()
}

pub(super) fn name(index: usize, name: &pb::UidName, rules: &NameRules) -> Result<KindName, Box<ItemError>> {
    let kind = item_kind("names", index, name.kind)?;
    let parsed = Name::parse(&name.name, rules).map_err(|error| {
        let message = format!("names[{index}]: {error}");
        let metadata = [("kind", kind_name(kind)), ("name", &excerpt(&name.name))];
        item_error(
            Code::InvalidArgument,
            ErrorReason::InvalidName,
            message,
            &metadata,
        )
    })?;
    Ok((kind, parsed))
}

/// The tag key that a tag value is assigned for.
pub(super) fn tag_key(name: &pb::UidName) -> Option<String> {
    let is_value = name.kind == kind_number(UidKind::Tagv);
    Some(name.tag_key.clone()).filter(|tag_key| is_value && !tag_key.is_empty())
}

pub(super) fn uid(
    index: usize,
    uid: &pb::UidValue,
    width: impl Fn(UidKind) -> UidWidth,
) -> Result<KindUid, Box<ItemError>> {
    let kind = item_kind("uids", index, uid.kind)?;
    let expected = width(kind);
    match Uid::from_bytes(&uid.uid) {
        Ok(uid) if uid.width() == expected => Ok((kind, uid)),
        _ => {
            let bytes = uid.uid.len();
            let message = format!("uids[{index}]: UID of `{kind}` has {bytes} bytes, expected {expected}");
            let metadata = [
                ("kind", kind_name(kind)),
                ("expected_width", &expected.to_string()),
            ];
            Err(item_error(
                Code::InvalidArgument,
                ErrorReason::InvalidUidWidth,
                message,
                &metadata,
            )
            .into())
        }
    }
}

/// A mapping that may be stored already: any name and UID that the table can hold.
pub(super) fn stored_mapping(
    index: usize,
    mapping: &pb::UidMapping,
    width: impl Fn(UidKind) -> UidWidth,
) -> Result<Mapping, Box<ItemError>> {
    let of_name = pb::UidName {
        kind: mapping.kind,
        name: mapping.name.clone(),
        tag_key: String::new(),
    };
    let of_uid = pb::UidValue {
        kind: mapping.kind,
        uid: mapping.uid.clone(),
    };
    let (kind, name) = name(index, &of_name, any_stored())?;
    let (_, uid) = uid(index, &of_uid, width)?;
    Ok(Mapping { kind, name, uid })
}

fn item_kind(field: &str, index: usize, number: i32) -> Result<UidKind, Box<ItemError>> {
    uid_kind(number).ok_or_else(|| {
        let field = format!("{field}[{index}].kind");
        invalid_item(&field, no_kind(number)).into()
    })
}

pub(super) fn uid_bytes(uid: Uid) -> Bytes {
    Bytes::copy_from_slice(uid.as_bytes())
}

pub(super) fn mapping(mapping: &Mapping) -> pb::UidMapping {
    pb::UidMapping {
        kind: kind_number(mapping.kind),
        name: mapping.name.to_text(),
        uid: uid_bytes(mapping.uid),
    }
}

/// Encodes a text as ISO-8859-1; `None` if it has other characters.
pub(super) fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars()
        .map(|character| u8::try_from(character).ok())
        .collect()
}

/// The cursor after a page of names: opaque to clients.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageToken {
    pub(super) kind: UidKind,
    pub(super) last: Vec<u8>,
}

const TOKEN_VERSION: u8 = 1;

impl PageToken {
    pub(super) fn encode(&self) -> String {
        let kind = u8::try_from(kind_number(self.kind)).unwrap_or_default();
        hex::encode([&[TOKEN_VERSION, kind], self.last.as_slice()].concat())
    }

    /// Returns `None` if the text is not a token.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let bytes = hex::decode(text).ok()?;
        let (TOKEN_VERSION, [number, last @ ..]) = (*bytes.first()?, bytes.get(1..)?) else {
            return None;
        };
        Some(Self {
            kind: uid_kind(i32::from(*number))?,
            last: last.to_vec(),
        })
    }
}
