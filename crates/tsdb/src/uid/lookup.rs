//! `tsdb uid lookup`: names to UIDs, and UIDs to names.

use std::process::ExitCode;

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::uid::v1::{UidName, UidValue, lookup_names_response, lookup_uids_response};
use oxtsdb_schema::{Uid, UidKind};
use tonic::Status;

use super::{item_error, line, proto_kind, uid_name};
use crate::query::print;
use crate::remote::Target;

/// Prints the mappings of each text, in the order of texts, then names before UIDs, then of kinds.
///
/// # Errors
///
/// If a call fails as a whole.
pub(super) async fn lookup(target: &Target, kinds: &[UidKind], texts: &[String]) -> anyhow::Result<ExitCode> {
    let client = target.uids();
    let failed = |status: Status| target.error("uid lookup", &status);
    let each = || {
        texts
            .iter()
            .flat_map(|text| kinds.iter().map(move |kind| (text, *kind)))
    };

    let names: Vec<UidName> = each().map(|(text, kind)| uid_name(kind, text)).collect();
    let uids_of_names = client.lookup_uids(names, None).await.map_err(failed)?;
    let layout = client.get_uid_layout(None).await.map_err(failed)?;
    // Only hex of the kind's width can be a UID.
    let width = |kind: UidKind| {
        let kinds = layout.kinds.iter();
        kinds
            .filter(|layout| layout.kind() == proto_kind(kind))
            .find_map(|layout| usize::try_from(layout.width).ok())
    };
    let as_uid = |text: &str, kind: UidKind| {
        Uid::parse(text)
            .ok()
            .filter(|uid| Some(uid.width().bytes()) == width(kind))
    };
    let uids: Vec<(UidKind, Uid)> = each()
        .filter_map(|(text, kind)| Some((kind, as_uid(text, kind)?)))
        .collect();
    let values = uids.iter().map(|(kind, uid)| UidValue {
        kind: proto_kind(*kind) as i32,
        uid: uid.as_bytes().to_vec().into(),
    });
    let names_of_uids = client
        .lookup_names(values.collect(), None)
        .await
        .map_err(failed)?;

    let mut by_name = uids_of_names.into_iter();
    let mut by_uid = uids.iter().zip(names_of_uids);
    let mut output = String::new();
    let mut code = ExitCode::SUCCESS;
    for text in texts {
        let mut lines = String::new();
        let mut errors = Vec::new();
        for (kind, result) in kinds.iter().zip(by_name.by_ref()) {
            match result.outcome {
                Some(lookup_uids_response::result::Outcome::Uid(uid)) => lines += &line(*kind, text, &uid),
                Some(lookup_uids_response::result::Outcome::Error(error)) => errors.push((*kind, error)),
                None => {}
            }
        }
        let count = kinds.iter().filter(|kind| as_uid(text, **kind).is_some()).count();
        for ((kind, uid), result) in by_uid.by_ref().take(count) {
            match result.outcome {
                Some(lookup_names_response::result::Outcome::Name(name)) => {
                    lines += &line(*kind, &name, uid.as_bytes());
                }
                Some(lookup_names_response::result::Outcome::Error(error)) => errors.push((*kind, error)),
                None => {}
            }
        }
        // An unknown UID says nothing about a text that is a known name, but damage always matters.
        let not_found = [
            ErrorReason::NameNotFound,
            ErrorReason::UidNotFound,
            ErrorReason::InvalidName,
        ];
        errors.retain(|(_, error)| !not_found.contains(&error.reason()));
        for (kind, error) in &errors {
            eprintln!("{kind} {text}: {}", item_error(error));
        }
        if lines.is_empty() && errors.is_empty() {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            eprintln!("{text}: no such name or UID in {}", kinds.join(", "));
        }
        if lines.is_empty() || !errors.is_empty() {
            code = ExitCode::FAILURE;
        }
        output += &lines;
    }
    print(&output)?;
    Ok(code)
}
