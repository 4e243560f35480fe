//! `/debug/rejections`: the last rejected points by reason and caller.

use serde::Deserialize;

/// The rejected points of a data service.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Rejections {
    /// The latest first.
    pub(crate) rejections: Vec<Rejection>,
}

/// Points of a caller that were rejected for one kind of reason.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Rejection {
    pub(crate) kind: String,
    pub(crate) protocol: String,
    pub(crate) caller: String,
    pub(crate) points: u64,
    /// When the last one was rejected, milliseconds since the epoch.
    pub(crate) last_ms: u64,
    /// Of the example.
    pub(crate) reason: String,
    /// The example.
    pub(crate) point: String,
}
