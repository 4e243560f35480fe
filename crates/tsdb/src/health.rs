//! `tsdb health`: is a server ready?

use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::cli::DataTarget;

/// Ask a server whether it is ready; for probes of containers
///
/// Prints the status: SERVING, NOT_SERVING, UNKNOWN or SERVICE_UNKNOWN. Exit status: 0 if it is
/// SERVING, else 1.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    target: DataTarget,

    /// One service, for example oxtsdb.data.v1.DataService [default: the server as a whole]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    service: String,

    /// Wait so long for the answer, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,
}

/// Asks once.
///
/// # Errors
///
/// If there is no answer in time.
pub(crate) async fn run(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let target = args.target.open()?;
    let mut client = HealthClient::new(target.channel());
    let request = HealthCheckRequest {
        service: args.service,
    };
    let answer = tokio::time::timeout(Duration::from_secs(args.timeout), client.check(request)).await;
    let status = match answer {
        Ok(Ok(answer)) => answer.into_inner().status(),
        // How the protocol says that a name is unknown to one `Check`.
        Ok(Err(status)) if status.code() == tonic::Code::NotFound => ServingStatus::ServiceUnknown,
        Ok(Err(status)) => return Err(target.error("health check", &status)),
        Err(_elapsed) => {
            return Err(anyhow!(
                "health check at {}: no answer in {} s",
                target.url(),
                args.timeout
            ));
        }
    };
    println!("{}", status.as_str_name());
    Ok(if status == ServingStatus::Serving {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
