//! Cross-origin requests of browsers.
//!
//! A browser names the origin of the page in `Origin`. Without a check, a page of another site could send puts
//! with the network access of its reader: a form or a script needs no permission to send. A foreign origin is
//! therefore rejected unless `--cors-domains` contains it. Clients other than browsers send no `Origin`; pages under
//! the `Host` of this server, or of a proxy in front of it, are not foreign.
//!
//! Links, images and scripts of a page send GET without `Origin`, and GET can change something here (`method_override`,
//! `/api/uid/assign`) or return a script that the page can read (`jsonp`). Browsers name the relation of such a page in
//! `Sec-Fetch-Site`.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.applyCorsHeaders`.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, HOST, HeaderMap,
    ORIGIN, REFERER, VARY,
};
use http::{HeaderValue, Method, Request, StatusCode};

use crate::http::error::HttpError;

/// Where the page of a request comes from, seen from this server: `same-origin`, `same-site`, `cross-site` or `none`.
const FETCH_SITE: &str = "sec-fetch-site";

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");

/// OpenTSDB's default of `tsd.http.request.cors_headers`.
pub(crate) const HEADER_NAMES: &str = "Authorization, Content-Type, Accept, Origin, User-Agent, DNT, \
     Cache-Control, X-Mx-ReqToken, Keep-Alive, X-Requested-With, If-Modified-Since";

const HEADERS: HeaderValue = HeaderValue::from_static(HEADER_NAMES);

/// The origins that are allowed.
#[derive(Clone, Debug)]
pub(crate) struct Cors {
    any: bool,
    /// In lower case.
    domains: Vec<String>,
}

/// The origin of an allowed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No page, or one of this server.
    None,
    /// A page of an allowed origin.
    Allowed(HeaderValue),
    /// A preflight request for a page of an allowed origin.
    Preflight(HeaderValue),
}

impl Origin {
    /// Adds the response headers that allow the request; all of them to each response, as OpenTSDB does.
    pub(crate) fn add_headers(self, headers: &mut HeaderMap) {
        let (Self::Allowed(origin) | Self::Preflight(origin)) = self else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        // Caches must not hand the response to pages of another origin.
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

impl Cors {
    /// Allows a list of origins, separated by commas; `*`: all.
    pub(crate) fn new(setting: &str) -> Self {
        let domains = setting
            .split(',')
            .map(|domain| domain.trim().to_ascii_lowercase());
        Self {
            any: setting.trim() == "*",
            domains: domains.filter(|domain| !domain.is_empty()).collect(),
        }
    }

    /// Checks a request that may change something, or with a response that a page of any origin can read. Its origin,
    /// if it has one, must be allowed already.
    ///
    /// # Errors
    ///
    /// 403 if it has no origin and comes from a page of another site.
    pub(crate) fn check_page(&self, headers: &HeaderMap) -> Result<(), HttpError> {
        let has_origin = headers.get(ORIGIN).is_some_and(|origin| !origin.is_empty());
        let is_cross_site = headers
            .get(FETCH_SITE)
            .is_some_and(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"));
        if self.any || has_origin || !is_cross_site || self.refers_to_allowed(headers) {
            return Ok(());
        }
        let details = "A page of another site is not permitted access (--cors-domains)";
        Err(HttpError::new(StatusCode::FORBIDDEN, "CORS domain not allowed").with_details(details))
    }

    /// Whether `Referer`, which scripts cannot set, names a page of an allowed origin: a script element has no `Origin`.
    fn refers_to_allowed(&self, headers: &HeaderMap) -> bool {
        let referer = headers.get(REFERER).and_then(|referer| referer.to_str().ok());
        referer.is_some_and(|referer| {
            let referer = referer.to_ascii_lowercase();
            let of_domain = |domain: &String| {
                let rest = referer.strip_prefix(domain.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            self.domains.iter().any(of_domain)
        })
    }

    /// The origin of a request.
    ///
    /// # Errors
    ///
    /// 403 for a foreign origin that is not allowed.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<Origin, HttpError> {
        let Some(origin) = request.headers().get(ORIGIN).filter(|origin| !origin.is_empty()) else {
            return Ok(Origin::None);
        };
        let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        if self.any || self.domains.contains(&text) {
            let origin = origin.clone();
            return Ok(match *request.method() {
                Method::OPTIONS => Origin::Preflight(origin),
                _ => Origin::Allowed(origin),
            });
        }
        if is_own(&text, request.headers()) {
            return Ok(Origin::None);
        }
        Err(
            HttpError::new(StatusCode::FORBIDDEN, "CORS domain not allowed").with_details(format!(
                "The domain [{text}] is not permitted access (--cors-domains)"
            )),
        )
    }
}

/// Whether an origin, in lower case, is the host that the request was sent to.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let without_default = |authority: &str| {
        let stripped = authority.strip_suffix(default_port);
        stripped.unwrap_or(authority).to_owned()
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(|host| without_default(&host.to_ascii_lowercase()) == without_default(authority))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(setting: &str, method: Method, origin: &str, host: &str) -> Result<Origin, u16> {
        let request = Request::builder()
            .method(method)
            .header(HOST, host)
            .header(ORIGIN, origin)
            .body(())
            .unwrap();
        let checked = Cors::new(setting).check(&request);
        checked.map_err(|error| error.status.as_u16())
    }

    #[test]
    fn rejects_foreign_origins_unless_they_are_allowed() {
        let allowed = |origin| Ok(Origin::Allowed(HeaderValue::from_static(origin)));
        for (setting, origin, expected) in [
            ("", "http://evil.example", Err(403)),
            ("", "null", Err(403)),
            ("", "http://tsdb:4242", Ok(Origin::None)),
            ("", "HTTP://TSDB:4242", Ok(Origin::None)),
            ("", "http://tsdb", Err(403)),
            ("http://a, http://b", "http://B", allowed("http://B")),
            ("http://a, http://b", "http://c", Err(403)),
            ("*", "null", allowed("null")),
        ] {
            let checked = check(setting, Method::POST, origin, "tsdb:4242");
            assert_eq!(checked, expected, "{setting} {origin}");
        }
        assert_eq!(
            check("", Method::GET, "https://tsdb:443", "tsdb"),
            Ok(Origin::None)
        );
        assert_eq!(
            check("*", Method::OPTIONS, "http://a", "tsdb"),
            Ok(Origin::Preflight(HeaderValue::from_static("http://a")))
        );
        let no_page = Request::new(());
        assert_eq!(Cors::new("").check(&no_page), Ok(Origin::None));
    }
}
