//! Writing points continuously: batches, the protocol of `WriteStream`, resending.
//!
//! ```text
//!   send ─► Outbox ─► channel ─► Driver ──► Session ─► frames ─► server
//!           columns,             keeps what is            │
//!           dictionary           not acknowledged ◄─ acks ┘
//! ```
//!
//! [`StreamWriter`] is the caller's half: it numbers the series and fills columns. The driver, a task, owns
//! the batches until they are acknowledged; when a stream breaks or its server drains, it opens another one
//! and sends them again.

mod batch;
mod driver;
mod frame;
mod outbox;
mod outcome;
mod session;
mod writer;

pub use outcome::{Acknowledged, FailedPoint, WriteReport};
pub use writer::{StreamOptions, StreamWriter};
