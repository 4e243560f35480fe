//! `tsdb health`: the health of a server.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use oxtsdb_client::Health;
use oxtsdb_command::target::DataTarget;

/// Check the health of a server, for container probes
///
/// Prints the status: SERVING, NOT_SERVING, UNKNOWN or SERVICE_UNKNOWN. The contract of health has no reason: `/readyz` of
/// the admin listener and `tsdb doctor` have it. Exit status: 0 if it is SERVING, else 1.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    target: DataTarget,

    /// One service, for example oxtsdb.data.v1.DataService [default: the server as a whole]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    service: String,

    /// Time-out of the check, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,
}

/// Checks once.
///
/// # Errors
///
/// If the server does not respond in time.
pub(crate) async fn run(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.health()?;
    let client = server.client.with_timeout(Duration::from_secs(args.timeout));
    let health = client.check(&args.service).await;
    let health = health.map_err(|error| server.error("health check", &error))?;
    let name = match health {
        Health::Serving => "SERVING",
        Health::NotServing => "NOT_SERVING",
        Health::Unknown => "UNKNOWN",
        Health::ServiceUnknown => "SERVICE_UNKNOWN",
    };
    println!("{name}");
    Ok(if health == Health::Serving {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
