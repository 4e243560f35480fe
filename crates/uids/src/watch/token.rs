//! Resume tokens: the position of a watch, opaque to clients.
//!
//! ```text
//!   version (1) | identity of the table (8) | log (8) | counters of metrics, tagk, tagv (8 each)      as hex
//! ```

use oxtsdb_schema::{PerKind, UidKind};

use super::Position;

const VERSION: u8 = 1;

/// A position in the changes of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Identifies the table.
    pub(crate) identity: u64,
    pub(crate) position: Position,
}

impl Token {
    pub(crate) fn encode(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.identity.to_be_bytes());
        bytes.extend_from_slice(&self.position.log.to_be_bytes());
        for kind in UidKind::ALL {
            bytes.extend_from_slice(&self.position.counters.get(kind).to_be_bytes());
        }
        hex::encode(bytes)
    }

    /// Returns `None` if the text is not a token.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let bytes = hex::decode(text).ok()?;
        let (VERSION, rest) = bytes.split_first().map(|(first, rest)| (*first, rest))? else {
            return None;
        };
        let (numbers, []) = rest.as_chunks::<8>() else {
            return None;
        };
        let [identity, log, metric, tagk, tagv] = *<&[[u8; 8]; 5]>::try_from(numbers).ok()?;
        Some(Self {
            identity: u64::from_be_bytes(identity),
            position: Position {
                log: u64::from_be_bytes(log),
                counters: PerKind {
                    metric: u64::from_be_bytes(metric),
                    tagk: u64::from_be_bytes(tagk),
                    tagv: u64::from_be_bytes(tagv),
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decode_reverses_encode(identity: u64, log: u64, metric: u64, tagk: u64, tagv: u64) {
            let counters = PerKind { metric, tagk, tagv };
            let token = Token { identity, position: Position { log, counters } };
            prop_assert_eq!(Token::decode(&token.encode()), Some(token));
        }

        #[test]
        fn any_text_decodes_or_fails(text in "[0-9a-f]{0,90}") {
            if let Some(token) = Token::decode(&text) {
                prop_assert_eq!(token.encode(), text);
            }
        }
    }
}
