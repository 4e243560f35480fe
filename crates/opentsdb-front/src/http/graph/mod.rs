//! `/q`: a query as a picture, and the forms that OpenTSDB's graphs have beside it.
//!
//! ```text
//!   /q?start=1h-ago&m=sum:sys.cpu.user{host=*}&o=axis+x1y2&wxh=800x400&yrange=[0:]&png
//!
//!   png     the picture
//!   svg     the same picture as SVG (not in OpenTSDB)
//!   json    {"plotted":60,"points":60,"etags":[["host"]],"timing":3}
//!   ascii   a line for each point
//!   html    a page with the picture (not in OpenTSDB)
//!   none    the page at `/` with the same query
//! ```
//!
//! The query string is as for `/api/query`, with a time zone, `tz`. [`settings`] has the parameters of the picture. The
//! error of a request has the form of its response: a picture with the text for `png` and `svg`, which OpenTSDB
//! leaves empty, `{"err":"…"}` for `json`, else a page.
//!
//! Source: OpenTSDB 2.4, `GraphHandler`, `Plot`.

mod age;
mod ascii;
mod cache;
mod draw;
mod settings;
#[cfg(test)]
mod tests;

use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http::header::{AGE, CACHE_CONTROL, HeaderValue};
use jiff::tz::TimeZone;
use oxtsdb_plot::{Message, Theme};
use oxtsdb_query::language::time::{find_zone, now_ms};
use oxtsdb_query::{AnnotationSelection, Number, QueryError, QuerySpec, WholeResult};

use self::age::{MaxAge, max_age};
pub(crate) use self::cache::PictureCache;
use self::cache::key_of;
use self::draw::Drawing;
use self::settings::{GraphSettings, size_of_error};
use super::query::{failure, parse};
use crate::http::api_request::ApiRequest;
use crate::http::body::ReplyBody;
use crate::http::error::HttpError;
use crate::http::html::escaped;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Png,
    Svg,
    Ascii,
    Html,
}

impl Form {
    /// The form that a query string names; of several the first in this order, as in OpenTSDB.
    fn from_parameters(parameters: &Parameters) -> Option<Self> {
        [
            ("ascii", Self::Ascii),
            ("json", Self::Json),
            ("png", Self::Png),
            ("svg", Self::Svg),
            ("html", Self::Html),
        ]
        .into_iter()
        .find_map(|(name, form)| parameters.has(name).then_some(form))
    }
}

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    match Form::from_parameters(request.parameters) {
        Some(Form::Ascii) => Graph::parse(&request)?.points(&request).await.map(Reply::text),
        Some(Form::Json) => Graph::parse(&request)?.figures(&request).await,
        Some(form @ (Form::Png | Form::Svg)) => Graph::parse(&request)?.picture(&request, form).await,
        Some(Form::Html) => {
            let picture = format!(
                "<img alt=\"graph\" src=\"q?{}&amp;png\">",
                escaped(&without_html(request.query))
            );
            Ok(Reply::page(StatusCode::OK, "Graph", &picture))
        }
        None => Ok(Reply::redirect(location(request.query)?)),
    }
}

/// The page at `/` with a query.
fn location(query: &str) -> Result<HeaderValue, HttpError> {
    let location = HeaderValue::try_from(format!("/#{query}"));
    location.map_err(|_| HttpError::bad_request("the query string has characters that are not allowed"))
}

/// The query string of the picture on an HTML page.
fn without_html(query: &str) -> String {
    let pairs: Vec<&str> = query.split('&').filter(|pair| *pair != "html").collect();
    pairs.join("&").replace('"', "%22")
}

/// A request.
struct Graph {
    settings: GraphSettings,
    spec: QuerySpec,
    zone: TimeZone,
    began: Instant,
    began_ms: i64,
}

impl Graph {
    fn parse(request: &ApiRequest<'_>) -> Result<Self, HttpError> {
        let (parts, parameters) = (request.parts, request.parameters);
        let (began, began_ms) = (Instant::now(), now_ms());
        let zone = match parameters.get("tz").filter(|zone| !zone.is_empty()) {
            Some(name) => find_zone(name).map_err(|error| HttpError::bad_request(error.to_string()))?,
            None => TimeZone::UTC,
        };
        let query = parse::from_parameters(parameters, parts.query_rules, &zone, began_ms)?;
        Ok(Self {
            settings: GraphSettings::parse(parameters, query.spec.sub_queries.len())?,
            spec: QuerySpec {
                // Lines lead to the points around the range.
                with_surroundings: true,
                with_infinities: false,
                ..query.spec
            },
            zone,
            began,
            began_ms,
        })
    }

    async fn result(&self, request: &ApiRequest<'_>) -> Result<WholeResult, HttpError> {
        let result = request
            .parts
            .engine
            .collect(self.spec.clone(), request.context)
            .await;
        result.map_err(|error| failure::query_error(&error))
    }

    /// The points, a line for each.
    async fn points(mut self, request: &ApiRequest<'_>) -> Result<ReplyBody, HttpError> {
        self.spec.annotations = AnnotationSelection::default();
        let result = self.result(request).await?;
        compute(request, move || ascii::render(&result)).await
    }

    async fn picture(self, request: &ApiRequest<'_>, form: Form) -> Result<Reply, HttpError> {
        let (parts, parameters) = (request.parts, request.parameters);
        let range_ms = (self.spec.start_ms, self.spec.end_ms);
        let max_age = max_age(parameters, range_ms, self.began_ms);
        let key = key_of(parameters, form == Form::Svg);
        if !parameters.has("nocache")
            && let Some((picture, age)) = parts.pictures.get(&key, max_age)
        {
            return Ok(reply(form, picture, max_age).with_header(AGE, age));
        }
        let result = self.result(request).await?;
        let drawing = Drawing {
            settings: self.settings,
            range_ms,
            zone: self.zone,
            result,
        };
        let picture = compute(request, move || drawing.draw(form == Form::Svg)).await?;
        parts.pictures.insert(key, &picture, self.began_ms);
        Ok(reply(form, picture, max_age))
    }

    /// The numbers of points that a picture shows and that its query reads, without the picture.
    async fn figures(self, request: &ApiRequest<'_>) -> Result<Reply, HttpError> {
        let result = self.result(request).await?;
        let range_ms = self.spec.start_ms..=self.spec.end_ms;
        let mut tags = vec![None; self.spec.sub_queries.len()];
        // As in OpenTSDB: the first sub-query without a series has an empty list, any other has null.
        if let Some(first) = tags.first_mut() {
            *first = Some(&[][..]);
        }
        let mut plotted = 0;
        for group in &result.groups {
            let is_plotted =
                |(time_ms, value): &(i64, Number)| range_ms.contains(time_ms) && value.as_f64().is_finite();
            plotted += group.points.iter().filter(is_plotted).count();
            // OpenTSDB keeps the tags of a sub-query's last group.
            if let Some(of_query) = tags.get_mut(group.query) {
                *of_query = Some(&group.aggregate_tags[..]);
            }
        }
        let mut body = Vec::new();
        body.extend_from_slice(b"{\"plotted\":");
        json::write_integer(&mut body, plotted);
        body.extend_from_slice(b",\"points\":");
        json::write_integer(&mut body, result.statistics.points);
        body.extend_from_slice(b",\"etags\":[");
        for (index, tags) in tags.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            match tags {
                Some(tags) => json::write_strings(&mut body, *tags),
                None => body.extend_from_slice(b"null"),
            }
        }
        body.extend_from_slice(b"],\"timing\":");
        json::write_integer(&mut body, self.began.elapsed().as_millis());
        body.push(b'}');
        Ok(Reply::page_json(StatusCode::OK, body))
    }
}

/// Runs a job on the computation threads, as the client of the request.
async fn compute<T: Send + 'static>(
    request: &ApiRequest<'_>,
    job: impl FnOnce() -> Result<T, QueryError> + Send + 'static,
) -> Result<T, HttpError> {
    let pool = &request.parts.engine.resources().compute;
    let ran = pool.for_client(request.context.client).run(job).await;
    let computed = ran.map_err(QueryError::from).flatten();
    computed.map_err(|error| failure::query_error(&error))
}

fn reply(form: Form, picture: Bytes, max_age: MaxAge) -> Reply {
    let reply = match form {
        Form::Svg => Reply::svg(StatusCode::OK, picture),
        _ => Reply::png(StatusCode::OK, picture),
    };
    // Of a caller with rights of its own.
    let value = format!("private, max-age={}", max_age.seconds());
    match HeaderValue::try_from(value) {
        Ok(value) => reply.with_header(CACHE_CONTROL, value),
        Err(_) => reply,
    }
}

/// The response to a request that failed, if its form is a picture.
pub(crate) fn error(error: &HttpError, parameters: &Parameters) -> Option<Reply> {
    let form = Form::from_parameters(parameters).filter(|form| matches!(form, Form::Png | Form::Svg))?;
    let details = error.details.iter().filter(|details| **details != error.message);
    let details = details.map(|details| format!("\n{details}"));
    let message = Message {
        size: size_of_error(parameters)?,
        theme: Theme::light(),
        title: error.status.to_string(),
        text: std::iter::once(error.message.clone()).chain(details).collect(),
    };
    Some(match form {
        Form::Svg => Reply::svg(error.status, message.svg().into_bytes()),
        _ => Reply::png(error.status, message.png()),
    })
}
