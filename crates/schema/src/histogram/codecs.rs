//! Which codec ids a deployment has.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Histogram, HistogramError};

/// OpenTSDB's class of the simple format.
const SIMPLE: &str = "net.opentsdb.core.SimpleHistogramDecoder";

/// The codec ids of a deployment: OpenTSDB's setting `tsd.core.histograms.config`, a JSON object from the class name of
/// a decoder to its id. The simple format is the only one that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramCodecs {
    simple: u8,
}

/// Why a configuration is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HistogramCodecsError {
    /// Not a JSON object of integers.
    #[error("expected a JSON object from decoder classes to ids such as {{\"{SIMPLE}\":0}}: {reason}")]
    Json {
        /// The error of the parser.
        reason: String,
    },
    /// No decoder.
    #[error("has no decoder, expected {{\"{SIMPLE}\":ID}}")]
    NoDecoder,
    /// An id beyond a byte.
    #[error("ID for codec '{class}' must be from 0 to 255, found {id}")]
    Id {
        /// The decoder.
        class: String,
        /// Its id.
        id: i64,
    },
    /// A decoder other than OpenTSDB's own.
    #[error("unable to find a decoder named '{class}', expected {SIMPLE}")]
    UnknownDecoder {
        /// The name.
        class: String,
    },
}

impl HistogramCodecs {
    /// With an id for the simple format.
    pub const fn with_simple(id: u8) -> HistogramCodecs {
        HistogramCodecs { simple: id }
    }

    /// Parses OpenTSDB's JSON.
    ///
    /// # Errors
    ///
    /// [`HistogramCodecsError`].
    pub fn parse(json: &str) -> Result<HistogramCodecs, HistogramCodecsError> {
        let ids: BTreeMap<String, i64> =
            serde_json::from_str(json).map_err(|error| HistogramCodecsError::Json {
                reason: error.to_string(),
            })?;
        let mut simple = None;
        for (class, id) in ids {
            if class != SIMPLE {
                return Err(HistogramCodecsError::UnknownDecoder { class });
            }
            simple = Some(u8::try_from(id).map_err(|_| HistogramCodecsError::Id { class, id })?);
        }
        let simple = simple.ok_or(HistogramCodecsError::NoDecoder)?;
        Ok(HistogramCodecs { simple })
    }

    /// The id of the simple format.
    pub const fn simple(&self) -> u8 {
        self.simple
    }

    /// Decodes a histogram of a client, which is given without its codec id.
    ///
    /// # Errors
    ///
    /// [`HistogramError::UnknownCodec`], and errors of the format.
    pub fn decode(&self, id: u8, bytes: &[u8]) -> Result<Histogram, HistogramError> {
        if id != self.simple {
            return Err(HistogramError::UnknownCodec { id });
        }
        Histogram::read(bytes)
    }

    /// Decodes the value of a cell.
    ///
    /// # Errors
    ///
    /// As [`HistogramCodecs::decode`].
    pub fn decode_cell(&self, value: &[u8]) -> Result<Histogram, HistogramError> {
        let (id, bytes) = value.split_first().ok_or(HistogramError::Empty)?;
        self.decode(*id, bytes)
    }

    /// The value of a cell.
    ///
    /// # Errors
    ///
    /// As [`Histogram::write_to`].
    pub fn encode_cell(&self, histogram: &Histogram) -> Result<Vec<u8>, HistogramError> {
        let mut value = vec![self.simple];
        histogram.write_to(&mut value)?;
        Ok(value)
    }
}
