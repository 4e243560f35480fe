//! Health of the services, as a balancer asks for it.

use anyhow::ensure;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Name of the UID service in health checks.
pub const UID_SERVICE: &str = "oxtsdb.uid.v1.UidService";
/// Name of the data service in health checks.
pub const DATA_SERVICE: &str = "oxtsdb.data.v1.DataService";

/// The health of one service.
///
/// # Errors
///
/// NOT_FOUND for a name that the server does not have, and when it cannot be asked.
pub async fn check(channel: Channel, service: &str) -> Result<ServingStatus, tonic::Status> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = HealthClient::new(channel).check(request).await?;
    Ok(answer.into_inner().status())
}

/// Fails unless a service is SERVING.
///
/// # Errors
///
/// As said.
pub async fn check_serving(channel: Channel, service: &str) -> anyhow::Result<()> {
    let status = check(channel, service).await?;
    ensure!(status == ServingStatus::Serving, "`{service}` is {status:?}");
    Ok(())
}
