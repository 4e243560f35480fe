//! Headers with settings of OpenTelemetry's front end.

use http::{HeaderMap, HeaderValue};

use crate::http::error::HttpError;

/// Names the attributes of resources that are tags, in HTTP and in the metadata of a call. SDKs for Go and JavaScript send no query of a
/// URL, and the SDK for Java rejects one.
pub(crate) const RESOURCE: &str = "oxtsdb-resource";

/// Names the form of histograms.
pub(crate) const HISTOGRAMS: &str = "oxtsdb-histograms";

/// The headers of a request that have settings, as they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingHeaders {
    resource: Option<HeaderValue>,
    histograms: Option<HeaderValue>,
}

impl SettingHeaders {
    /// Of all headers of a request.
    pub(crate) fn new(headers: &HeaderMap) -> Self {
        Self {
            resource: headers.get(RESOURCE).cloned(),
            histograms: headers.get(HISTOGRAMS).cloned(),
        }
    }

    /// The attributes of resources that are tags.
    ///
    /// # Errors
    ///
    /// 400 if the header is not ASCII.
    pub(crate) fn resource(&self) -> Result<Option<&str>, HttpError> {
        header_text(RESOURCE, self.resource.as_ref())
    }

    /// The form of histograms.
    ///
    /// # Errors
    ///
    /// 400 if the header is not ASCII.
    pub(crate) fn histograms(&self) -> Result<Option<&str>, HttpError> {
        header_text(HISTOGRAMS, self.histograms.as_ref())
    }
}

fn header_text<'h>(name: &str, header: Option<&'h HeaderValue>) -> Result<Option<&'h str>, HttpError> {
    let text = header.map(HeaderValue::to_str).transpose();
    text.map_err(|_| HttpError::bad_request(format!("header `{name}` is not ASCII")))
}
