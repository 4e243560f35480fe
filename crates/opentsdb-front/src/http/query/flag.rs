//! Booleans in request bodies.

use serde::Deserialize;
use serde::de::Deserializer;

/// A boolean as OpenTSDB's parser accepts it: also a string, a number (0 is false) or `null`.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::http) struct Flag(pub(in crate::http) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Flag, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Truth(bool),
            Number(i64),
            Text(String),
            Null(()),
        }
        match Form::deserialize(deserializer) {
            Ok(Form::Truth(truth)) => Ok(Flag(truth)),
            Ok(Form::Number(number)) => Ok(Flag(number != 0)),
            Ok(Form::Text(text)) => match text.trim() {
                "true" | "True" | "TRUE" => Ok(Flag(true)),
                "false" | "False" | "FALSE" | "" => Ok(Flag(false)),
                _ => Err(serde::de::Error::custom(format!(
                    "`{text}` is neither true nor false"
                ))),
            },
            Ok(Form::Null(())) => Ok(Flag(false)),
            Err(_) => Err(serde::de::Error::custom("expected true or false")),
        }
    }
}
