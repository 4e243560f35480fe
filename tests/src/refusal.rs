//! Requirements of a rejection: a code, a reason, the figure and the setting, and whether to retry.

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::reason_of;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::raw_http::RawResponse;

/// Checks that a status is a typed rejection: of a request that is too large, or of any request during
/// overload.
///
/// # Errors
///
/// The first missing part.
pub fn check_status(status: &Status) -> anyhow::Result<()> {
    let reason = reason_of(status).with_context(|| format!("no reason: {status:?}"))?;
    let has_retry = status
        .get_details_retry_info()
        .is_some_and(|info| info.retry_delay.is_some());
    match status.code() {
        Code::Unavailable => {
            ensure!(has_retry, "UNAVAILABLE without RetryInfo: {status:?}");
            check_message(status.message())
        }
        Code::ResourceExhausted if reason == ErrorReason::Overloaded => {
            ensure!(has_retry, "OVERLOADED without RetryInfo: {status:?}");
            check_message(status.message())
        }
        Code::ResourceExhausted | Code::InvalidArgument | Code::OutOfRange => {
            ensure!(!has_retry, "a retry cannot help: {status:?}");
            ensure!(has_figure(status.message()), "no figure: {status:?}");
            Ok(())
        }
        Code::DeadlineExceeded => Ok(()),
        _ => bail!("not a rejection: {status:?}"),
    }
}

/// Checks that a response is a typed rejection: OpenTSDB's envelope with the figure, and for 503 a
/// `Retry-After` and the setting.
///
/// # Errors
///
/// The first missing part.
pub fn check_response(answer: &RawResponse) -> anyhow::Result<()> {
    let json = answer.json()?;
    ensure!(
        json["error"]["code"] == answer.status,
        "status {} with `{json}`",
        answer.status
    );
    let text = json["error"].to_string();
    let message = json["error"]["message"].as_str().context("error.message")?;
    match answer.status {
        503 => {
            let retry = answer
                .header("retry-after")
                .with_context(|| format!("503 without Retry-After: {text}"))?;
            let seconds: u64 = retry.parse().with_context(|| format!("Retry-After: {retry}"))?;
            ensure!((1..=60).contains(&seconds), "Retry-After: {retry}");
            check_message(&text)
        }
        400 | 413 | 504 => {
            ensure!(
                has_figure(message) || has_figure(&json["error"]["details"].to_string()),
                "no figure: {text}"
            );
            Ok(())
        }
        _ => bail!("not a rejection: {} {text}", answer.status),
    }
}

/// Checks that a message has a figure and a setting.
fn check_message(message: &str) -> anyhow::Result<()> {
    ensure!(has_figure(message), "no figure: {message}");
    ensure!(message.contains("--"), "no setting: {message}");
    Ok(())
}

fn has_figure(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit())
}
