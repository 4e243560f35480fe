//! Page tokens: the query, its range, and where the page ended, as hexadecimal text.
//!
//! ```text
//!   hash of tsuid and range as sent, 8 | first and last instant in ms, 8 each | hour, 4 | begin in ms, 8 | qualifier
//! ```
//!
//! Begin and qualifier are absent behind all of an hour.

use oxtsdb_metadata::annotation::Position;
use oxtsdb_proto::data::v1::ListAnnotationsRequest;
use oxtsdb_schema::{BaseTime, stored_json};
use prost::Message as _;

/// A decoded token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageToken {
    /// The query: [`query_of`].
    pub(super) query: u64,
    /// First and last instant of the first page.
    pub(super) range_ms: (i64, i64),
    pub(super) position: Position,
}

/// A number that identifies the series and the range of a request, the same in every process.
pub(super) fn query_of(request: &ListAnnotationsRequest) -> u64 {
    let mut bytes = request.tsuid.to_vec();
    bytes.push(0);
    if let Some(range) = &request.range {
        // A vector grows.
        let _ = range.encode(&mut bytes);
    }
    stored_json::hash(&bytes)
}

impl PageToken {
    pub(super) fn encode(&self) -> String {
        let mut bytes = Vec::with_capacity(48);
        bytes.extend_from_slice(&self.query.to_be_bytes());
        bytes.extend_from_slice(&self.range_ms.0.to_be_bytes());
        bytes.extend_from_slice(&self.range_ms.1.to_be_bytes());
        bytes.extend_from_slice(&self.position.hour.seconds().to_be_bytes());
        if let Some((begins_ms, qualifier)) = &self.position.cell {
            bytes.extend_from_slice(&begins_ms.to_be_bytes());
            bytes.extend_from_slice(qualifier);
        }
        hex::encode(bytes)
    }

    /// `None` if the text is no token.
    pub(super) fn decode(text: &str) -> Option<PageToken> {
        let bytes = hex::decode(text).ok()?;
        let (query, rest) = bytes.split_first_chunk()?;
        let (start_ms, rest) = rest.split_first_chunk()?;
        let (end_ms, rest) = rest.split_first_chunk()?;
        let (hour, rest) = rest.split_first_chunk()?;
        let cell = match rest.split_first_chunk() {
            None if rest.is_empty() => None,
            None => return None,
            Some((begins_ms, qualifier)) => Some((i64::from_be_bytes(*begins_ms), qualifier.to_vec())),
        };
        Some(PageToken {
            query: u64::from_be_bytes(*query),
            range_ms: (i64::from_be_bytes(*start_ms), i64::from_be_bytes(*end_ms)),
            position: Position {
                hour: BaseTime::from_seconds_exact(u32::from_be_bytes(*hour)).ok()?,
                cell,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for cell in [
            None,
            Some((-1, vec![])),
            Some((1_356_998_400_500, vec![1, 0, 0, 1, 0xf4])),
        ] {
            let token = PageToken {
                query: u64::MAX,
                range_ms: (0, i64::MAX),
                position: Position {
                    hour: BaseTime::from_seconds(1_356_998_400),
                    cell,
                },
            };
            assert_eq!(PageToken::decode(&token.encode()), Some(token));
        }
        for text in ["", "zz", "00", &"0".repeat(58), &format!("{}00", "0".repeat(56))] {
            assert_eq!(PageToken::decode(text), None, "{text}");
        }
    }
}
