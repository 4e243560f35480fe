//! Endpoints: a path, its methods, and their handlers.
//!
//! Paths are matched as OpenTSDB does: `/api/NAME` and `/api/v1/NAME`, in any case, with or without a slash at
//! the end.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.applyHttpRpc`, `AbstractHttpQuery.getQueryBaseRoute`,
//! `HttpQuery.explodeAPIPath`.

use futures::future::BoxFuture;
use http::{Method, StatusCode};
use oxtsdb_access::operation::{self, HttpEndpoint};

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::error_form::ErrorForm;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;

/// Handles a request of an endpoint. [`handler!`] makes one of an `async fn`.
pub(crate) type Handler = for<'a> fn(ApiRequest<'a>) -> BoxFuture<'a, Result<Reply, HttpError>>;

/// The [`Handler`] that calls an `async fn(ApiRequest<'_>) -> Result<Reply, HttpError>`.
macro_rules! handler {
    ($function:path) => {
        |request| Box::pin($function(request))
    };
}
pub(crate) use handler;

/// A path and its operations.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// In lower case, without a version.
    path: &'static str,
    /// Whether paths below it are the same endpoint.
    with_paths_below: bool,
    /// Whether GET with `method_override=` counts as another method.
    overrides_method: bool,
    /// Whether GET changes something too.
    changes_by_get: bool,
    /// How errors are rendered; `None`: as OpenTSDB does for the path.
    errors: Option<ErrorForm>,
    operations: &'static [Operation],
}

/// An operation of an endpoint, for some methods.
#[derive(Debug)]
pub(crate) struct Operation {
    methods: &'static [&'static str],
    pub(crate) body: BodyUse,
    /// Whether requests count as queries in the statistics.
    pub(crate) is_query: bool,
    pub(crate) handler: Handler,
}

/// The use of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyUse {
    /// It is not read.
    Ignored,
    /// It is read, and charged to the memory for points.
    Ingest,
    /// It is read, and charged to the memory for queries.
    Query,
}

/// The endpoint of exactly this path.
pub(crate) const fn at(path: &'static str, operations: &'static [Operation]) -> Endpoint {
    Endpoint {
        path,
        with_paths_below: false,
        overrides_method: false,
        changes_by_get: false,
        errors: None,
        operations,
    }
}

/// The endpoint of this path and of all paths below it.
pub(crate) const fn at_and_below(path: &'static str, operations: &'static [Operation]) -> Endpoint {
    Endpoint {
        path,
        with_paths_below: true,
        overrides_method: false,
        changes_by_get: false,
        errors: None,
        operations,
    }
}

/// GET.
pub(crate) const fn get(handler: Handler) -> Operation {
    operation(&["GET"], BodyUse::Ignored, handler)
}

/// GET with a body.
pub(crate) const fn get_with(body: BodyUse, handler: Handler) -> Operation {
    operation(&["GET"], body, handler)
}

/// POST with a body.
pub(crate) const fn post(body: BodyUse, handler: Handler) -> Operation {
    operation(&["POST"], body, handler)
}

/// GET, and POST with a body that is ignored.
pub(crate) const fn get_or_post(handler: Handler) -> Operation {
    operation(&["GET", "POST"], BodyUse::Ignored, handler)
}

/// DELETE.
pub(crate) const fn delete(handler: Handler) -> Operation {
    operation(&["DELETE"], BodyUse::Ignored, handler)
}

/// PUT with a body.
pub(crate) const fn put(body: BodyUse, handler: Handler) -> Operation {
    operation(&["PUT"], body, handler)
}

/// DELETE with a body.
pub(crate) const fn delete_with(body: BodyUse, handler: Handler) -> Operation {
    operation(&["DELETE"], body, handler)
}

/// Every method, with a body.
pub(crate) const fn any(body: BodyUse, handler: Handler) -> Operation {
    operation(
        &["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "TRACE"],
        body,
        handler,
    )
}

/// GET of a query.
pub(crate) const fn get_query(handler: Handler) -> Operation {
    Operation {
        is_query: true,
        ..get(handler)
    }
}

/// POST of a query.
pub(crate) const fn post_query(handler: Handler) -> Operation {
    Operation {
        is_query: true,
        ..post(BodyUse::Query, handler)
    }
}

const fn operation(methods: &'static [&'static str], body: BodyUse, handler: Handler) -> Operation {
    Operation {
        methods,
        body,
        is_query: false,
        handler,
    }
}

impl Endpoint {
    /// This endpoint, where GET with `method_override=post|put|delete` counts as that method.
    pub(crate) const fn with_method_override(self) -> Endpoint {
        Endpoint {
            overrides_method: true,
            ..self
        }
    }

    /// This endpoint, where GET changes something too.
    pub(crate) const fn changed_by_get(self) -> Endpoint {
        Endpoint {
            changes_by_get: true,
            ..self
        }
    }

    /// This endpoint, with errors in another form than OpenTSDB's.
    pub(crate) const fn with_errors(self, form: ErrorForm) -> Endpoint {
        Endpoint {
            errors: Some(form),
            ..self
        }
    }

    /// Its name in the metrics: clients can make up paths.
    pub(crate) const fn label(&self) -> &'static str {
        self.path
    }

    /// How its errors are rendered; `None`: as OpenTSDB does.
    pub(crate) const fn errors(&self) -> Option<ErrorForm> {
        self.errors
    }

    /// Whether its path has a version, which then is no version of OpenTSDB's API.
    fn has_version(&self) -> bool {
        segments_of(self.path)
            .nth(1)
            .is_some_and(|segment| version_of(segment).is_some())
    }

    /// Its row in the table of rights; `None`: it cannot be called.
    pub(crate) fn rights(&self) -> Option<&'static HttpEndpoint> {
        operation::by_http_path(self.path)
    }

    /// Whether a request may change something; the method is that after `method_override`.
    pub(crate) fn may_change(&self, method: &Method) -> bool {
        self.changes_by_get || !matches!(*method, Method::GET | Method::HEAD)
    }

    /// The method of a request, after `method_override`. Only GET can be overridden.
    ///
    /// # Errors
    ///
    /// 405 for an override that is not `post`, `put` or `delete`.
    pub(crate) fn method(&self, method: &Method, parameters: &Parameters) -> Result<Method, HttpError> {
        let Some(name) = parameters.get("method_override") else {
            return Ok(method.clone());
        };
        if !self.overrides_method || method != Method::GET {
            return Ok(method.clone());
        }
        if name.is_empty() {
            let message = "Missing method override value";
            return Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        [Method::POST, Method::PUT, Method::DELETE]
            .into_iter()
            .find(|other| other.as_str().eq_ignore_ascii_case(name))
            .ok_or_else(|| {
                HttpError::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "Unknown or unsupported method override value",
                )
            })
    }

    /// The operation for a method.
    ///
    /// # Errors
    ///
    /// 405 if there is none.
    pub(crate) fn operation(&self, method: &Method) -> Result<&'static Operation, HttpError> {
        self.operations
            .iter()
            .find(|operation| operation.methods.contains(&method.as_str()))
            .ok_or_else(|| HttpError::method_not_allowed(method))
    }

    fn matches(&self, segments: &[&str]) -> bool {
        let mut rest = segments.iter();
        let is_prefix = segments_of(self.path).all(|expected| {
            rest.next()
                .is_some_and(|segment| segment.eq_ignore_ascii_case(expected))
        });
        is_prefix && (self.with_paths_below || rest.next().is_none())
    }
}

/// The newest version of the API.
const MAX_VERSION: u64 = 1;

/// The first endpoint that matches a path; `None` if the path is outside of the API.
///
/// # Errors
///
/// Below `/api`: 404 for an unknown endpoint, 501 for a version that is too new, 400 for one that is no number.
pub(crate) fn find<'e>(endpoints: &'e [Endpoint], path: &str) -> Result<Option<&'e Endpoint>, HttpError> {
    let mut segments: Vec<&str> = segments_of(path).collect();
    let is_api = is_api(path);
    if let Some(version) = segments.get(1).and_then(|segment| version_of(segment)) {
        let mut versioned = endpoints.iter().filter(|endpoint| endpoint.has_version());
        if let Some(endpoint) = versioned.find(|endpoint| endpoint.matches(&segments)) {
            return Ok(Some(endpoint));
        }
        if is_api {
            check_version(version)?;
            segments.remove(1);
        }
    }
    let endpoint = endpoints.iter().find(|endpoint| endpoint.matches(&segments));
    if endpoint.is_none() && is_api {
        return Err(HttpError::new(StatusCode::NOT_FOUND, "Endpoint not found"));
    }
    Ok(endpoint)
}

/// Whether a path is below `/api`.
pub(crate) fn is_api(path: &str) -> bool {
    segments_of(path)
        .next()
        .is_some_and(|first| first.eq_ignore_ascii_case("api"))
}

fn segments_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// The version behind the `v` of a path's segment.
fn version_of(segment: &str) -> Option<&str> {
    let version = segment.strip_prefix(['v', 'V'])?;
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then_some(version)
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
    use crate::http::ENDPOINTS;

    /// The path in the table that a path leads to.
    fn found(path: &str) -> Option<&'static str> {
        find(ENDPOINTS, path).unwrap().map(|endpoint| endpoint.path)
    }

    #[test]
    fn matches_paths_in_any_case_and_version() {
        for path in ["/api/put", "/API/Put", "/api/put/", "/api/v1/put", "/Api/V1/PUT/"] {
            assert_eq!(found(path), Some("/api/put"), "{path}");
        }
        for (path, expected) in [
            ("/api/config/filters", "/api/config/filters"),
            ("/api/config", "/api/config"),
            ("/api/config/x", "/api/config"),
            ("/api/stats/jvm", "/api/stats"),
            ("/api/version", "/api/version"),
            ("/version", "/version"),
            ("/", "/"),
            ("/q", "/q"),
            ("/api/query/last", "/api/query/last"),
            ("/api/query/exp", "/api/query/exp"),
            ("/api/query/Gexp", "/api/query/gexp"),
            ("/api/query/last/x", "/api/query/last"),
            ("/api/query/x/last", "/api/query"),
            ("/api/v2/write", "/api/v2/write"),
            ("/api/v1/write", "/api/write"),
            ("/api/v1/read", "/api/read"),
            ("/write", "/write"),
        ] {
            assert_eq!(found(path), Some(expected), "{path}");
        }
        assert_eq!(found("/q/x"), None);
        assert_eq!(found("/dropcaches"), None);
    }

    #[test]
    fn every_endpoint_has_a_row_in_the_table_of_rights() {
        for endpoint in ENDPOINTS {
            assert!(endpoint.rights().is_some(), "{}", endpoint.path);
        }
        for row in operation::HTTP {
            let endpoint = find(ENDPOINTS, row.path).unwrap().unwrap();
            assert_eq!(endpoint.path, row.path);
        }
    }

    #[test]
    fn rejects_unknown_endpoints_and_versions() {
        for path in [
            "/api",
            "/api/",
            "/api/x",
            "/api/put/x",
            "/api/v1",
            "/api/v1/x",
            "/api/v1/v1/put",
        ] {
            let error = find(ENDPOINTS, path).unwrap_err();
            assert_eq!(
                (error.status.as_u16(), error.message.as_str()),
                (404, "Endpoint not found"),
                "{path}"
            );
        }
        let error = find(ENDPOINTS, "/api/v2/put").unwrap_err();
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
            let error = find(ENDPOINTS, path).unwrap_err();
            let reported = (error.status.as_u16(), error.message.as_str());
            assert_eq!(reported, (400, "Invalid API version format supplied"));
        }
    }

    #[test]
    fn rejects_methods_that_an_endpoint_does_not_have() {
        let status = |method, path| {
            let endpoint = find(ENDPOINTS, path).unwrap().unwrap();
            endpoint
                .operation(&method)
                .err()
                .map(|error| error.status.as_u16())
        };
        assert_eq!(status(Method::POST, "/api/put"), None);
        for (method, path) in [
            (Method::GET, "/api/put"),
            (Method::HEAD, "/api/query"),
            (Method::PUT, "/api/query/last"),
            (Method::PUT, "/api/suggest"),
            (Method::POST, "/q"),
        ] {
            assert_eq!(status(method.clone(), path), Some(405), "{method} {path}");
        }
    }
}
