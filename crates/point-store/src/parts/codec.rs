//! Columns of times, kinds and values as few bytes.
//!
//! | Module | Content |
//! |---|---|
//! | [`packing`] | integers from 0 to a greatest one, in fractions of bits |
//! | [`numbers`] | any integers: differences or distances from a line, then packed |
//! | [`values`] | kinds and values of points: integers as they are, decimals scaled to integers |
//!
//! Decoders return `None` for bytes that no encoder writes. They allocate for as many numbers as the caller expects.

pub(super) mod numbers;
mod packing;
pub(super) mod values;
