//! Which endpoint a path means.
//!
//! `/api/NAME` and `/api/v1/NAME`, in any case, with or without a slash at the end.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.applyHttpRpc`, `AbstractHttpQuery.getQueryBaseRoute`,
//! `HttpQuery.explodeAPIPath`.

use http::StatusCode;

use crate::http::error::HttpError;

/// An endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/api/put`.
    Put,
    /// `/api/query`.
    Query,
    /// `/api/query/last`.
    QueryLast,
    /// `/api/query/exp`.
    QueryExp,
    /// `/api/query/gexp`.
    QueryGexp,
    /// `/api/suggest`.
    Suggest,
    /// `/api/aggregators`.
    Aggregators,
    /// `/api/config/filters`.
    ConfigFilters,
    /// `/api/version`.
    Version,
    /// `/api/stats`.
    Stats,
    /// `/q`.
    Graph,
    /// No endpoint of the API: the answer is a page for people.
    NoPage,
}

/// The newest version of the API.
const MAX_VERSION: u64 = 1;

/// Finds the endpoint of a path.
///
/// # Errors
///
/// 404 for an unknown endpoint, 501 for a version that is too new, 400 for one that is no number.
pub(crate) fn endpoint(path: &str) -> Result<Endpoint, HttpError> {
    let path = path.to_ascii_lowercase();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match parts.next() {
        Some("api") => {}
        Some("q") if parts.next().is_none() => return Ok(Endpoint::Graph),
        _ => return Ok(Endpoint::NoPage),
    }
    let mut name = parts.next().unwrap_or_default();
    if let Some(version) = name
        .strip_prefix('v')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        check_version(version)?;
        name = parts.next().unwrap_or_default();
    }
    let below: Vec<&str> = parts.collect();
    match (name, below.as_slice()) {
        ("put", []) => Ok(Endpoint::Put),
        ("query", ["last", ..]) => Ok(Endpoint::QueryLast),
        ("query", ["exp", ..]) => Ok(Endpoint::QueryExp),
        ("query", ["gexp", ..]) => Ok(Endpoint::QueryGexp),
        // Whatever else follows, to OpenTSDB it is a query.
        ("query", _) => Ok(Endpoint::Query),
        ("aggregators", _) => Ok(Endpoint::Aggregators),
        ("config", ["filters"]) => Ok(Endpoint::ConfigFilters),
        ("suggest", _) => Ok(Endpoint::Suggest),
        ("version", _) => Ok(Endpoint::Version),
        ("stats", []) => Ok(Endpoint::Stats),
        _ => Err(HttpError::new(StatusCode::NOT_FOUND, "Endpoint not found")),
    }
}

fn check_version(version: &str) -> Result<(), HttpError> {
    let number: u64 = version
        .parse()
        .map_err(|_| HttpError::bad_request("Invalid API version format supplied"))?;
    if number <= MAX_VERSION {
        return Ok(());
    }
    let message = "Requested API version is greater than the max implemented";
    Err(
        HttpError::new(StatusCode::NOT_IMPLEMENTED, message).with_details(format!(
            "API version [{number}] is greater than the max [{MAX_VERSION}]"
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_version_and_last_slash_do_not_matter() {
        for path in ["/api/put", "/API/Put", "/api/put/", "/api/v1/put", "/Api/V1/PUT/"] {
            assert_eq!(endpoint(path), Ok(Endpoint::Put), "{path}");
        }
        assert_eq!(endpoint("/api/config/filters"), Ok(Endpoint::ConfigFilters));
        assert_eq!(endpoint("/api/version"), Ok(Endpoint::Version));
        assert_eq!(endpoint("/q"), Ok(Endpoint::Graph));
        assert_eq!(endpoint("/q/x"), Ok(Endpoint::NoPage));
        assert_eq!(endpoint("/api/query/last"), Ok(Endpoint::QueryLast));
        assert_eq!(endpoint("/api/query/exp"), Ok(Endpoint::QueryExp));
        assert_eq!(endpoint("/api/query/Gexp"), Ok(Endpoint::QueryGexp));
        assert_eq!(endpoint("/api/query/last/x"), Ok(Endpoint::QueryLast));
        assert_eq!(endpoint("/api/query/x/last"), Ok(Endpoint::Query));
        assert_eq!(endpoint("/"), Ok(Endpoint::NoPage));
    }

    #[test]
    fn what_is_not_there_is_told() {
        for path in [
            "/api",
            "/api/",
            "/api/x",
            "/api/v1",
            "/api/v1/x",
            "/api/serializers",
        ] {
            let error = endpoint(path).unwrap_err();
            assert_eq!(
                (error.status.as_u16(), error.message.as_str()),
                (404, "Endpoint not found"),
                "{path}"
            );
        }
        let error = endpoint("/api/v2/put").unwrap_err();
        assert_eq!(error.status.as_u16(), 501);
        assert_eq!(
            error.message,
            "Requested API version is greater than the max implemented"
        );
        assert_eq!(
            error.details.unwrap(),
            "API version [2] is greater than the max [1]"
        );
        for path in ["/api/v1x/put", "/api/v99999999999999999999/put"] {
            let error = endpoint(path).unwrap_err();
            let told = (error.status.as_u16(), error.message.as_str());
            assert_eq!(told, (400, "Invalid API version format supplied"));
        }
    }
}
