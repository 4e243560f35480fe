//! Health checks of the services, as a load balancer sends them.

use anyhow::ensure;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Name of the UID service in health checks.
pub const UID_SERVICE: &str = "oxtsdb.uid.v1.UidService";
/// Name of the data service in health checks.
pub const DATA_SERVICE: &str = "oxtsdb.data.v1.DataService";

/// Returns the health of one service.
///
/// # Errors
///
/// NOT_FOUND for a name that the server does not serve; the status of a call that fails.
pub async fn check(channel: Channel, service: &str) -> Result<ServingStatus, tonic::Status> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = HealthClient::new(channel).check(request).await?;
    Ok(answer.into_inner().status())
}

/// Checks that a service is SERVING.
///
/// # Errors
///
/// If it is not, or the call fails.
pub async fn check_serving(channel: Channel, service: &str) -> anyhow::Result<()> {
    let status = check(channel, service).await?;
    ensure!(status == ServingStatus::Serving, "`{service}` is {status:?}");
    Ok(())
}
