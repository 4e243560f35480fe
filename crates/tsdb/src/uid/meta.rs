//! `tsdb uid meta`: metadata of a UID.

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use oxtsdb_client::{Uid, UidClient, UidKind, UidMeta};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

/// Print, change or delete the metadata of a UID
///
/// The metadata of series is at /api/uid/tsmeta.
#[derive(Debug, Args)]
pub(super) struct MetaArgs {
    #[command(subcommand)]
    command: MetaCommand,
}

/// Subcommands of `tsdb uid meta`.
#[derive(Debug, Subcommand)]
enum MetaCommand {
    /// Print the metadata of a UID
    Get(Target),
    /// Change fields of the metadata; the others are kept
    Set(SetArgs),
    /// Delete the metadata; the UID stays
    Delete {
        #[command(flatten)]
        target: Target,
        /// The etag that the stored document must have
        #[arg(long)]
        etag: Option<String>,
    },
}

/// A UID.
#[derive(Debug, Args)]
struct Target {
    /// metrics, tagk or tagv
    kind: UidKind,
    /// The name, or the UID as hex; a text that is both is the name
    #[arg(value_name = "NAME|UID")]
    text: String,
}

/// Fields to change.
#[derive(Debug, Args)]
struct SetArgs {
    #[command(flatten)]
    target: Target,
    /// A name to show
    #[arg(long)]
    display_name: Option<String>,
    /// One line
    #[arg(long)]
    description: Option<String>,
    /// Longer text
    #[arg(long)]
    notes: Option<String>,
    /// When the UID was assigned, seconds since 1970; 0: not known
    #[arg(long, value_name = "SECONDS")]
    created: Option<u32>,
    /// A field of your own, may be repeated; replaces all that are stored
    #[arg(long, value_name = "NAME=VALUE", value_parser = custom_field)]
    custom: Vec<(String, String)>,
    /// Remove all fields of your own
    #[arg(long, conflicts_with = "custom")]
    no_custom: bool,
    /// The etag that the stored document must have
    #[arg(long)]
    etag: Option<String>,
}

fn custom_field(text: &str) -> Result<(String, String), String> {
    let field = text.split_once('=');
    let (name, value) = field.ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs `tsdb uid meta`.
///
/// # Errors
///
/// If a call fails, or there is no such name or UID.
pub(super) async fn run(server: &Server<UidClient>, args: &MetaArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        MetaCommand::Get(target) => {
            let uid = uid(server, target).await?;
            let meta = server.client.get_uid_meta(target.kind, uid).await;
            show(&meta.map_err(|error| server.error("uid meta get", &error))?)
        }
        MetaCommand::Set(args) => set(server, args).await,
        MetaCommand::Delete { target, etag } => {
            let uid = uid(server, target).await?;
            let deleted = server
                .client
                .delete_uid_meta(target.kind, uid, etag.as_deref())
                .await;
            deleted.map_err(|error| server.error("uid meta delete", &error))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn set(server: &Server<UidClient>, args: &SetArgs) -> anyhow::Result<ExitCode> {
    let uid = uid(server, &args.target).await?;
    let mut meta = UidMeta::new(args.target.kind, uid);
    meta.etag = args.etag.clone().unwrap_or_default();
    let mut fields = Vec::new();
    for (field, new, value) in [
        ("display_name", &args.display_name, &mut meta.display_name),
        ("description", &args.description, &mut meta.description),
        ("notes", &args.notes, &mut meta.notes),
    ] {
        if let Some(new) = new {
            value.clone_from(new);
            fields.push(field);
        }
    }
    if let Some(seconds) = args.created {
        meta.created = (seconds > 0).then(|| UNIX_EPOCH + Duration::from_secs(seconds.into()));
        fields.push("created");
    }
    if !args.custom.is_empty() || args.no_custom {
        let custom = args.custom.iter().cloned();
        let custom = custom.map(|(name, value)| (name, Some(value)));
        meta.custom = (!args.no_custom).then(|| custom.collect());
        fields.push("custom");
    }
    if fields.is_empty() {
        return Err(anyhow!("nothing to set, for example --notes TEXT"));
    }
    let changed = server.client.update_uid_meta(&meta, Some(&fields)).await;
    show(&changed.map_err(|error| server.error("uid meta set", &error))?)
}

/// The UID that a text names.
async fn uid(server: &Server<UidClient>, target: &Target) -> anyhow::Result<Uid> {
    let Target { kind, text } = target;
    let uids = server.client.lookup_uids(&[(*kind, text)]).await;
    let uid = uids.map_err(|error| server.error("uid meta", &error))?.pop();
    match uid.context("the service returned no result")? {
        Ok(uid) => Ok(uid),
        Err(rejection) => match Uid::parse(text) {
            Ok(uid) => Ok(uid),
            Err(_) => Err(anyhow!("{kind} {text}: {rejection}")),
        },
    }
}

fn show(meta: &UidMeta) -> anyhow::Result<ExitCode> {
    print(&text(meta))?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each field that is not empty.
fn text(meta: &UidMeta) -> String {
    let created = meta.created_seconds();
    let created = created.map_or_else(|| "not known".to_owned(), |seconds| seconds.to_string());
    let mut lines = String::new();
    let mut line = |field: &str, value: &str| {
        if !value.is_empty() {
            lines += &format!("{field:<14}{value}\n");
        }
    };
    line("kind", meta.kind.as_str());
    line("UID", &meta.uid.to_string());
    line("name", &meta.name);
    line("display name", &meta.display_name);
    line("description", &meta.description);
    line("notes", &meta.notes);
    line("created", &created);
    for (name, value) in meta.custom.iter().flatten() {
        line(
            "custom",
            &format!("{name}={}", value.as_deref().unwrap_or("null")),
        );
    }
    line(
        "etag",
        if meta.etag.is_empty() {
            "none stored"
        } else {
            &meta.etag
        },
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_a_line_for_each_field() {
        let mut meta = UidMeta::new(UidKind::Tagk, Uid::from_bytes(&[0, 0, 1]).unwrap());
        assert_eq!(
            text(&meta),
            "kind          tagk\nUID           000001\ncreated       not known\netag          none stored\n"
        );
        meta.display_name = "Host".to_owned();
        meta.created = Some(UNIX_EPOCH + Duration::from_secs(5));
        meta.custom = Some(vec![
            ("a".to_owned(), Some("b".to_owned())),
            ("c".to_owned(), None),
        ]);
        assert!(
            text(&meta)
                .contains("display name  Host\ncreated       5\ncustom        a=b\ncustom        c=null\n")
        );
    }

    #[test]
    fn custom_fields_have_a_name() {
        assert_eq!(custom_field("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        custom_field("a").unwrap_err();
    }
}
