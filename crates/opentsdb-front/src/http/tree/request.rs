//! Requests: query strings and JSON bodies.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_metadata::tree::edit::{RuleEdit, TreeEdit};
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::tree::TreeId;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::repeated;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::parameters::Parameters;
use crate::http::request_body::RequestBody;

/// A request of `/api/tree`.
#[derive(Debug, Default)]
pub(super) struct TreeRequest {
    /// 0 or less: none.
    pub(super) id: i64,
    pub(super) edit: TreeEdit,
    /// Of a deletion.
    pub(super) with_definition: bool,
    /// Creation time of a new tree.
    pub(super) created: i64,
}

/// A request of `/api/tree/rule`, or an element of `/api/tree/rules`.
#[derive(Debug, Default)]
pub(super) struct RuleRequest {
    pub(super) tree: i64,
    pub(super) edit: RuleEdit,
}

/// A tree and series.
#[derive(Debug, Default)]
pub(super) struct SeriesRequest {
    pub(super) tree: i64,
    pub(super) tsuids: Vec<String>,
}

/// An id that a tree can have.
pub(super) fn valid_id(id: i64) -> Result<TreeId, HttpError> {
    TreeId::new(id).map_err(|_| repeated("Invalid Tree ID"))
}

impl TreeRequest {
    pub(super) fn from_parameters(parameters: &Parameters) -> Result<Self, HttpError> {
        let text = |name| parameters.get(name).map(str::to_owned);
        let flag = |name| parameters.get(name).map(is_true);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            id: tree_id(parameters)?.unwrap_or_default(),
            edit: TreeEdit {
                name: text("name"),
                description: text("description"),
                notes: text("notes"),
                strict_match: flag("strict_match"),
                enabled: flag("enabled"),
                store_failures: flag("store_failures"),
            },
            with_definition: flag("definition").unwrap_or_default(),
            // As OpenTSDB: 0 for a tree that is created with a body.
            created: now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or_default()),
        })
    }

    pub(super) fn from_json(content: &[u8]) -> Result<Self, HttpError> {
        let fields: BTreeMap<Cow<'_, str>, serde_json::Value> = json(content)?;
        let mut request = Self::default();
        for (name, value) in fields {
            let text = match value {
                serde_json::Value::Null => continue,
                serde_json::Value::String(text) => text,
                serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                    return Err(HttpError::unreadable_json(format!("`{name}` is not a text")));
                }
                scalar => scalar.to_string(),
            };
            match name.to_ascii_lowercase().as_str() {
                "treeid" => {
                    let id = text.parse::<i32>();
                    request.id = id
                        .map_err(|_| HttpError::bad_request("Unable to parse 'tree' value"))?
                        .into();
                }
                "name" => request.edit.name = Some(text),
                "description" => request.edit.description = Some(text),
                "notes" => request.edit.notes = Some(text),
                "enabled" => request.edit.enabled = Some(is_true(&text)),
                "strictmatch" => request.edit.strict_match = Some(is_true(&text)),
                "storefailures" => request.edit.store_failures = Some(is_true(&text)),
                "definition" => request.with_definition = is_true(&text),
                _ => {}
            }
        }
        Ok(request)
    }
}

impl RuleRequest {
    pub(super) fn from_parameters(parameters: &Parameters) -> Result<Self, HttpError> {
        let text = |name| parameters.get(name).map(str::to_owned);
        let tree = required_tree_id(parameters)?;
        let rule_type = parameters.get("type").map(|name| {
            let failed = |detail: &str| {
                HttpError::bad_request("Unable to parse the 'type' parameter").with_details(detail)
            };
            match name {
                "" => Err(failed("Rule type was empty")),
                name => name.parse().map_err(|_| failed("Unrecognized rule type")),
            }
        });
        let optional_number = |name: &'static str| {
            let number = parameters.get(name).map(|text| number(name, text));
            number.transpose()
        };
        Ok(Self {
            tree,
            edit: RuleEdit {
                rule_type: rule_type.transpose()?,
                field: text("field"),
                custom_field: text("custom_field"),
                regex: text("regex"),
                separator: text("separator"),
                description: text("description"),
                notes: text("notes"),
                regex_group_idx: optional_number("regex_group_idx")?,
                display_format: text("display_format"),
                level: number("level", required(parameters, "level")?)?,
                order: number("order", required(parameters, "order")?)?,
            },
        })
    }

    pub(super) fn from_json(content: &[u8]) -> Result<Self, HttpError> {
        Ok(object::<RuleBody>(content)?.into_request())
    }

    pub(super) fn list_of_json(content: &[u8]) -> Result<Vec<Self>, HttpError> {
        let bodies: Vec<&RawValue> = json(content)?;
        bodies
            .into_iter()
            .map(|body| Ok(object::<RuleBody>(body.get().as_bytes())?.into_request()))
            .collect()
    }
}

/// A rule as JSON; other fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct RuleBody {
    #[serde(rename = "type")]
    rule_type: Option<oxtsdb_schema::tree::RuleType>,
    field: Option<String>,
    regex: Option<String>,
    separator: Option<String>,
    description: Option<String>,
    notes: Option<String>,
    level: i32,
    order: i32,
    tree_id: i32,
    custom_field: Option<String>,
    regex_group_idx: Option<i32>,
    display_format: Option<String>,
}

impl RuleBody {
    fn into_request(self) -> RuleRequest {
        RuleRequest {
            tree: self.tree_id.into(),
            edit: RuleEdit {
                level: self.level,
                order: self.order,
                rule_type: self.rule_type,
                field: self.field,
                regex: self.regex,
                separator: self.separator,
                description: self.description,
                notes: self.notes,
                custom_field: self.custom_field,
                regex_group_idx: self.regex_group_idx,
                display_format: self.display_format,
            },
        }
    }
}

impl SeriesRequest {
    /// Of the body, or of the query string if the body is empty.
    pub(super) async fn read(
        parameters: &Parameters,
        body: &mut RequestBody,
        compute: &ComputePool,
    ) -> Result<Self, HttpError> {
        if body.bytes.is_empty() {
            Self::from_parameters(parameters)
        } else {
            parsed(body, compute, Self::from_json).await
        }
    }

    fn from_parameters(parameters: &Parameters) -> Result<Self, HttpError> {
        Ok(Self {
            tree: required_tree_id(parameters)?,
            tsuids: parameters
                .get("tsuids")
                .map(|tsuids| tsuids.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
        })
    }

    fn from_json(content: &[u8]) -> Result<Self, HttpError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Body {
            tree_id: Option<i32>,
            #[serde(default)]
            tsuids: Option<Vec<String>>,
        }

        let body: Body = object(content)?;
        let tree = body
            .tree_id
            .ok_or_else(|| HttpError::bad_request("Missing or invalid Tree ID"))?;
        Ok(Self {
            tree: tree.into(),
            tsuids: body.tsuids.unwrap_or_default(),
        })
    }
}

/// The parameter `treeid`; `None` without it.
pub(super) fn tree_id(parameters: &Parameters) -> Result<Option<i64>, HttpError> {
    parameters.get("treeid").map(parse_tree_id).transpose()
}

fn required_tree_id(parameters: &Parameters) -> Result<i64, HttpError> {
    parse_tree_id(required(parameters, "treeid")?)
}

fn parse_tree_id(text: &str) -> Result<i64, HttpError> {
    let id = text.parse::<i32>();
    id.map(i64::from)
        .map_err(|_| HttpError::bad_request("Unable to parse 'tree' value").with_details(not_a_number(text)))
}

fn required<'p>(parameters: &'p Parameters, name: &str) -> Result<&'p str, HttpError> {
    parameters
        .get(name)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| HttpError::bad_request(format!("Missing parameter <code>{name}</code>")))
}

fn number(name: &str, text: &str) -> Result<i32, HttpError> {
    text.parse().map_err(|_| {
        HttpError::bad_request(format!("Unable to parse the '{name}' parameter"))
            .with_details(not_a_number(text))
    })
}

/// Java's message of a text that is no number.
fn not_a_number(text: &str) -> String {
    format!("For input string: \"{text}\"")
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

fn json<'de, T: Deserialize<'de>>(content: &'de [u8]) -> Result<T, HttpError> {
    serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))
}

/// As [`json`], without arrays, which serde would accept as the fields in their order.
fn object<'de, T: Deserialize<'de>>(content: &'de [u8]) -> Result<T, HttpError> {
    if content.trim_ascii_start().starts_with(b"[") {
        return Err(HttpError::unreadable_json("an array in place of an object"));
    }
    json(content)
}
