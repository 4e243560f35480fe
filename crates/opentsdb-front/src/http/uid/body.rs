//! Edits of documents: the fields of a body or of the query string, and the changes among them.
//!
//! A field is a change if its value differs from the field's value in a new document. `POST` keeps the stored value of
//! all others, `PUT` resets them. Without any change the response is 304.
//!
//! Source: OpenTSDB 2.4, the setters of `UIDMeta` and `TSMeta`, `syncMeta`.

use oxtsdb_schema::document::{self, CustomFields, DocumentError};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::parameters::Parameters;

/// A text; `None`: it is not given. A `null` is an empty text that is a change.
#[derive(Debug, Default, Clone)]
pub(super) struct TextField(Option<(String, bool)>);

impl TextField {
    /// The value of a parameter.
    pub(super) fn from_parameter(value: Option<&str>) -> Self {
        Self(value.map(|value| (value.to_owned(), !value.is_empty())))
    }

    /// The new value, if it is a change.
    pub(super) fn change(&self) -> Option<&str> {
        self.0
            .as_ref()
            .filter(|(_, changes)| *changes)
            .map(|(text, _)| text.as_str())
    }

    /// The text, or an empty one.
    pub(super) fn text(&self) -> &str {
        self.0.as_ref().map_or("", |(text, _)| text)
    }
}

/// The edit of a request: its body, or its query string if it has no body.
pub(super) async fn edit_of<T: Send + 'static>(
    mut request: ApiRequest<'_>,
    of_parameters: fn(&Parameters) -> Result<T, HttpError>,
    of_json: fn(&[u8]) -> Result<T, HttpError>,
) -> Result<T, HttpError> {
    if request.body.bytes.is_empty() {
        return of_parameters(request.parameters);
    }
    let compute = &request.parts.engine.resources().compute;
    parsed(&mut request.body, compute, of_json).await
}

impl<'de> Deserialize<'de> for TextField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (text, changes) = match Value::deserialize(deserializer)? {
            Value::Null => (String::new(), true),
            Value::String(text) => (text.clone(), !text.is_empty()),
            value @ (Value::Bool(_) | Value::Number(_)) => (value.to_string(), true),
            Value::Array(_) | Value::Object(_) => return Err(D::Error::custom("expected a text")),
        };
        Ok(Self(Some((text, changes))))
    }
}

/// A number that may be missing.
///
/// # Errors
///
/// A value that is no integer, or is out of range.
pub(super) fn optional_integer<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64> + Default,
{
    document::integer(deserializer).map(Some)
}

/// A double that may be missing.
///
/// # Errors
///
/// A value that is no number.
pub(super) fn optional_double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    document::double(deserializer).map(Some)
}

/// Parses a body.
///
/// # Errors
///
/// 400 for a body that is no JSON object with such fields.
pub(super) fn read<T: DeserializeOwned>(content: &[u8]) -> Result<T, HttpError> {
    document::read(content).map_err(|DocumentError { detail }| HttpError::unreadable_json(detail))
}

/// The text of a document after an edit.
pub(super) fn merged_text(stored: &mut String, new: &TextField, replaces: bool) {
    match new.change() {
        Some(text) => text.clone_into(stored),
        None if replaces => stored.clear(),
        None => {}
    }
}

/// The `custom` fields of a document after an edit.
pub(super) fn merged_custom(stored: &mut Option<CustomFields>, new: Option<&CustomFields>, replaces: bool) {
    if new.is_some() || replaces {
        *stored = new.cloned();
    }
}

/// The time of creation after an edit: the earlier one that is known.
pub(super) fn merged_created(stored: i64, new: i64) -> i64 {
    if stored > 0 && (stored < new || new == 0) {
        stored
    } else {
        new
    }
}
