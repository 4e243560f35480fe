//! The gRPC ports of both services.

use std::time::Duration;

use oxtsdb_client::{Health, UidKind};
use oxtsdb_server::admin::deployment::WidthFacts;

use super::agreement::widths;
use super::finding::{Finding, Level};
use super::server::Server;
use crate::target::{DataTarget, UidTarget};

/// The service that a data port has to serve.
const DATA_SERVICE: &str = "oxtsdb.data.v1.DataService";

/// Calls both services.
///
/// # Errors
///
/// A URL or a file of credentials is not valid.
pub(super) async fn check(
    data: &DataTarget,
    uid: &UidTarget,
    timeout: Duration,
    servers: &[Server],
) -> anyhow::Result<Vec<Finding>> {
    Ok(vec![
        data_health(data, timeout).await?,
        uid_layout(uid, timeout, servers).await?,
    ])
}

async fn data_health(target: &DataTarget, timeout: Duration) -> anyhow::Result<Finding> {
    let server = target.health()?;
    let health = server.client.with_timeout(timeout).check(DATA_SERVICE).await;
    let error = |found, advice: &str| Finding::new(Level::Error, "gRPC", server.url(), found, advice);
    Ok(match health {
        Ok(Health::Serving) => Finding::ok("gRPC", server.url(), "the data service serves"),
        Ok(Health::NotServing) => error(
            "the data service is NOT_SERVING".to_owned(),
            "it drains or its store cannot be used: see its log",
        ),
        Ok(Health::Unknown | Health::ServiceUnknown) => error(
            "there is no data service at this port".to_owned(),
            "correct --target: the URL of --data-listen",
        ),
        Err(failed) => error(
            failed.to_string(),
            "correct --target, or the options of TLS and tokens",
        ),
    })
}

async fn uid_layout(target: &UidTarget, timeout: Duration, servers: &[Server]) -> anyhow::Result<Finding> {
    let server = target.uid()?;
    let layout = tokio::time::timeout(timeout, server.client.get_uid_layout()).await;
    let error = |found, advice: &str| Finding::new(Level::Error, "gRPC", server.url(), found, advice);
    let layout = match layout {
        Ok(Ok(layout)) => layout,
        Ok(Err(failed)) => {
            return Ok(error(
                failed.to_string(),
                "correct --uid-target, or the options of TLS and tokens (--uid-tls-ca, --uid-token-file)",
            ));
        }
        Err(_) => {
            let found = format!("no response within {} s", timeout.as_secs());
            return Ok(error(found, "see the log of the UID service"));
        }
    };
    let width = |kind| layout.kind(kind).map_or(0, |kind| kind.width);
    let found = WidthFacts {
        metric: width(UidKind::Metric),
        tagk: width(UidKind::Tagk),
        tagv: width(UidKind::Tagv),
    };
    let differs = |server: &&Server| server.facts.uid_widths.is_some_and(|widths| widths != found);
    Ok(match servers.iter().find(differs) {
        Some(other) => error(
            format!(
                "the UID service has the widths {}, {} has {}",
                widths(found),
                other.url,
                other.facts.uid_widths.map(widths).unwrap_or_default()
            ),
            "correct --uid-target, or --uid-endpoint of the data services: they belong to different deployments",
        ),
        None => Finding::ok(
            "gRPC",
            server.url(),
            format!("the UID service responds, UIDs have {} bytes", widths(found)),
        ),
    })
}
