//! Where a build goes on.
//!
//! ```text
//!   version 1 | fingerprint of the request 8 | end of the range 4 | chunk 4 | width 1 | metric UID | TSUID or nothing
//! ```

use std::hash::{Hash as _, Hasher as _};

use oxtsdb_schema::MetricUid;
use rustc_hash::FxHasher;

use super::BuildRequest;

const VERSION: u8 = 1;

/// A position in a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Of the request.
    pub(super) fingerprint: u64,
    /// The end of its range, in seconds; of a range without an end, the clock.
    pub(super) stop: u32,
    /// The metric.
    pub(super) metric: MetricUid,
    /// The start of the chunk, in seconds.
    pub(super) chunk: u32,
    /// The last series of the chunk that is done.
    pub(super) after: Option<Vec<u8>>,
}

/// Why a position cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// Other bytes.
    #[error("is not a token of this service")]
    Unknown,
    /// Of another request.
    #[error("is the token of a request with another metric, range or other intervals")]
    OtherRequest,
}

/// A hash of the request's content, without its end, which may be the clock.
pub(super) fn fingerprint(request: &BuildRequest) -> u64 {
    let mut hasher = FxHasher::default();
    (&request.metric, request.range_ms.0, &request.intervals).hash(&mut hasher);
    hasher.finish()
}

impl Position {
    /// Whether it is of a request.
    pub(super) fn check(&self, request: &BuildRequest) -> Result<(), PositionError> {
        match self.fingerprint == fingerprint(request) {
            true => Ok(()),
            false => Err(PositionError::OtherRequest),
        }
    }

    /// The bytes of the position, in the layout of the module; clients send them back as an opaque token.
    pub fn encode(&self) -> Vec<u8> {
        let metric = self.metric.as_bytes();
        let width = u8::try_from(metric.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.fingerprint.to_be_bytes());
        bytes.extend_from_slice(&self.stop.to_be_bytes());
        bytes.extend_from_slice(&self.chunk.to_be_bytes());
        bytes.push(width);
        bytes.extend_from_slice(metric);
        bytes.extend_from_slice(self.after.as_deref().unwrap_or_default());
        bytes
    }

    /// Decodes a token of [`Position::encode`].
    ///
    /// # Errors
    ///
    /// [`PositionError::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PositionError> {
        Self::read(bytes).ok_or(PositionError::Unknown)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(&[VERSION])?;
        let (fingerprint, bytes) = bytes.split_first_chunk()?;
        let (stop, bytes) = bytes.split_first_chunk()?;
        let (chunk, bytes) = bytes.split_first_chunk()?;
        let (width, bytes) = bytes.split_first()?;
        let (metric, after) = bytes.split_at_checked(usize::from(*width))?;
        Some(Self {
            fingerprint: u64::from_be_bytes(*fingerprint),
            stop: u32::from_be_bytes(*stop),
            chunk: u32::from_be_bytes(*chunk),
            metric: MetricUid::from_bytes(metric).ok()?,
            after: (!after.is_empty()).then(|| after.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_back() {
        for after in [None, Some(vec![1, 2, 3])] {
            let position = Position {
                fingerprint: 0xfedc_ba98_7654_3210,
                stop: 7,
                metric: MetricUid::from_bytes(&[0, 0, 9]).unwrap(),
                chunk: 86_400,
                after,
            };
            let bytes = position.encode();
            assert_eq!(Position::decode(&bytes), Ok(position));
            for length in 0..20 {
                assert_eq!(
                    Position::decode(&bytes[..length]),
                    Err(PositionError::Unknown),
                    "{length}"
                );
            }
        }
        assert_eq!(Position::decode(&[9; 40]), Err(PositionError::Unknown));
    }
}
