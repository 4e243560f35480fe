//! `tsdb uid lookup`: names to UIDs, and UIDs to names.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::{Error, ErrorReason, Rejection, Uid, UidClient, UidKind};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::line::line;
use super::words::kinds_and_rest;

/// Look up names, or UIDs as hex
///
/// A text that can be both is looked up as both. Without a kind, all three are searched. Prints a
/// line for each mapping found. Exit status: 1 if a text was not found.
#[derive(Debug, Args)]
pub(super) struct LookupArgs {
    /// [KIND], then names or UIDs
    #[arg(required = true, value_name = "[KIND] NAME|UID")]
    words: Vec<String>,
}

/// Prints the mappings of each text, in the order of texts, then names before UIDs, then of kinds.
///
/// # Errors
///
/// If a call fails as a whole.
pub(super) async fn run(server: &Server<UidClient>, args: &LookupArgs) -> anyhow::Result<ExitCode> {
    let (kinds, texts) = kinds_and_rest(&args.words);
    let failed = |error: Error| server.error("uid lookup", &error);
    let client = &server.client;
    let each = || {
        texts
            .iter()
            .flat_map(|text| kinds.iter().map(move |kind| (*kind, text)))
    };

    let names: Vec<(UidKind, &String)> = each().collect();
    let uids_of_names = client.lookup_uids(&names).await.map_err(failed)?;
    let layout = client.get_uid_layout().await.map_err(failed)?;
    // Only hex of the kind's width can be a UID.
    let as_uid = |text: &str, kind: UidKind| {
        let width = layout.kind(kind).map(|layout| layout.width);
        Uid::parse(text)
            .ok()
            .filter(|uid| Some(uid.width().bytes()) == width)
    };
    let uids: Vec<(UidKind, Uid)> = each()
        .filter_map(|(kind, text)| Some((kind, as_uid(text, kind)?)))
        .collect();
    let names_of_uids = client.lookup_names(&uids).await.map_err(failed)?;

    let mut by_name = uids_of_names.into_iter();
    let mut by_uid = uids.iter().zip(names_of_uids);
    let mut output = String::new();
    let mut code = ExitCode::SUCCESS;
    for text in texts {
        let mut lines = String::new();
        let mut errors = Vec::new();
        for (kind, result) in kinds.iter().zip(by_name.by_ref()) {
            match result {
                Ok(uid) => lines += &line(*kind, text, uid),
                Err(rejection) => errors.push((*kind, rejection)),
            }
        }
        let count = kinds.iter().filter(|kind| as_uid(text, **kind).is_some()).count();
        for ((kind, uid), result) in by_uid.by_ref().take(count) {
            match result {
                Ok(name) => lines += &line(*kind, &name, *uid),
                Err(rejection) => errors.push((*kind, rejection)),
            }
        }
        // An unknown UID says nothing about a text that is a known name, but damage always matters.
        errors.retain(|(_, rejection)| !is_not_found(rejection));
        for (kind, rejection) in &errors {
            eprintln!("{kind} {text}: {rejection}");
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

fn is_not_found(rejection: &Rejection) -> bool {
    matches!(
        rejection.reason,
        Some(ErrorReason::NameNotFound | ErrorReason::UidNotFound | ErrorReason::InvalidName)
    )
}
