//! gRPC's health checks.

use std::time::Duration;

use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::call::Connection;
use crate::{Code, Error};

/// A client of `grpc.health.v1.Health`, which every server offers on its gRPC port.
#[derive(Clone, Debug)]
pub struct HealthClient {
    connection: Connection,
}

/// Whether a service serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Serving,
    /// It does not, for example because it is draining.
    NotServing,
    /// The server does not know.
    Unknown,
    /// The server does not have this service.
    ServiceUnknown,
}

impl HealthClient {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// The same client with a deadline for all calls, `timeout` from now.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            connection: self.connection.with_timeout(timeout),
        }
    }

    /// Returns the health of a service, for example `oxtsdb.data.v1.DataService`; of the server as a whole
    /// for an empty name.
    ///
    /// # Errors
    ///
    /// If the server does not respond.
    pub async fn check(&self, service: &str) -> Result<Health, Error> {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let response: Result<HealthCheckResponse, Error> = self
            .connection
            .call_method("grpc.health.v1.Health/Check", &request)
            .await;
        match response {
            Ok(response) => Ok(match response.status() {
                ServingStatus::Serving => Health::Serving,
                ServingStatus::NotServing => Health::NotServing,
                ServingStatus::Unknown => Health::Unknown,
                ServingStatus::ServiceUnknown => Health::ServiceUnknown,
            }),
            Err(error) if error.code() == Code::NotFound => Ok(Health::ServiceUnknown),
            Err(error) => Err(error),
        }
    }
}
