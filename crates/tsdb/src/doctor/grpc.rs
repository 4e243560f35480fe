//! The gRPC ports of both services, each replica alone.

use std::time::Duration;

use futures::future::join_all;
use oxtsdb_client::{Error, Health, UidKind};
use oxtsdb_command::target::{DataTarget, UidTarget};
use oxtsdb_server::admin::deployment::WidthFacts;

use super::agreement::widths;
use super::finding::{Finding, Level};
use super::server::Server;

/// The service that a data port has to serve.
const DATA_SERVICE: &str = "oxtsdb.data.v1.DataService";

/// Calls both services.
pub(super) async fn check(
    data: &DataTarget,
    uid: &UidTarget,
    timeout: Duration,
    servers: &[Server],
) -> Vec<Finding> {
    let data: Vec<DataTarget> = data.replicas().collect();
    let uid: Vec<UidTarget> = uid.replicas().collect();
    let data = join_all(data.iter().map(|target| data_health(target, timeout)));
    let uid = join_all(uid.iter().map(|target| uid_layout(target, timeout, servers)));
    let (mut data, mut uid) = tokio::join!(data, uid);
    // On the machine of one service the other one may not run.
    let is_elsewhere = |finding: &Finding| finding.message.contains("refused") && is_local(&finding.server);
    if !servers.is_empty() && !servers.iter().any(Server::has_data_service) {
        data.retain(|finding| !is_elsewhere(finding));
    }
    if !servers.is_empty() && !servers.iter().any(Server::has_uid_service) {
        uid.retain(|finding| !is_elsewhere(finding));
    }
    data.append(&mut uid);
    data
}

fn is_local(url: &str) -> bool {
    ["//127.0.0.1:", "//localhost:", "//[::1]:"]
        .iter()
        .any(|host| url.contains(host))
}

async fn data_health(target: &DataTarget, timeout: Duration) -> Finding {
    let error = |message, advice: &str| Finding::new(Level::Error, "gRPC", target.url(), message, advice);
    let server = match target.health() {
        Ok(server) => server,
        Err(wrong) => return error(format!("{wrong:#}"), "correct --target and its options"),
    };
    let health = server.client.with_timeout(timeout).check(DATA_SERVICE).await;
    match health {
        Ok(Health::Serving) => Finding::ok("gRPC", target.url(), "the data service serves"),
        Ok(Health::NotServing) => error(
            "the data service is NOT_SERVING".to_owned(),
            "it drains or its store cannot be used: see its log",
        ),
        Ok(Health::Unknown | Health::ServiceUnknown) => error(
            "there is no data service at this port".to_owned(),
            "correct --target: the URL of --data-listen",
        ),
        Err(failed) => error(
            server.reason(&failed),
            &advice(&failed, "--target", "--tls-ca, --token-file"),
        ),
    }
}

async fn uid_layout(target: &UidTarget, timeout: Duration, servers: &[Server]) -> Finding {
    let error = |message, advice: &str| Finding::new(Level::Error, "gRPC", target.url(), message, advice);
    let server = match target.uid() {
        Ok(server) => server,
        Err(wrong) => return error(format!("{wrong:#}"), "correct --uid-target and its options"),
    };
    let layout = tokio::time::timeout(timeout, server.client.get_uid_layout()).await;
    let layout = match layout {
        Ok(Ok(layout)) => layout,
        Ok(Err(failed)) => {
            let options = "--uid-tls-ca, --uid-token-file";
            return error(server.reason(&failed), &advice(&failed, "--uid-target", options));
        }
        Err(_) => {
            let message = format!("no response within {} s", timeout.as_secs());
            return error(message, "see the log of the UID service");
        }
    };
    let width = |kind| layout.kind(kind).map_or(0, |kind| kind.width);
    let service_widths = WidthFacts {
        metric: width(UidKind::Metric),
        tagk: width(UidKind::Tagk),
        tagv: width(UidKind::Tagv),
    };
    let differs = |server: &&Server| {
        server
            .facts
            .uid_widths
            .is_some_and(|widths| widths != service_widths)
    };
    match servers.iter().find(differs) {
        Some(other) => error(
            format!(
                "the UID service has the widths {}, {} has {}",
                widths(service_widths),
                other.url,
                other.facts.uid_widths.map(widths).unwrap_or_default()
            ),
            "correct --uid-target, or --uid-endpoint of the data services: they belong to different deployments",
        ),
        None => Finding::ok(
            "gRPC",
            target.url(),
            format!(
                "the UID service responds, UIDs have {} bytes",
                widths(service_widths)
            ),
        ),
    }
}

/// Advice after a call that failed.
fn advice(error: &Error, setting: &str, options: &str) -> String {
    match error {
        Error::Connection { message, .. } if message.contains("refused") => {
            format!("start the server, or correct {setting}")
        }
        Error::Connection { .. } | Error::DeadlineExceeded => format!(
            "correct {setting}: https:// for ports with TLS (with {options}), http:// for others, a gRPC port"
        ),
        _ => format!("correct {setting}, or the options of credentials ({options})"),
    }
}
