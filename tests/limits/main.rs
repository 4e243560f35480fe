//! Nothing that a caller does takes the service down.
//!
//! Each test attacks a real server with a memory limit of [`support::LIMIT_MIB`] and asserts that
//!
//! - its resident memory stays under the limit + 20 %,
//! - another client's small requests are served meanwhile within a bound,
//! - the attacker gets a typed refusal or a whole response,
//! - afterwards everything works as before.
//!
//! The tests run one at a time: they assert how long responses take.
//!
//! `OXTSDB_LIMITS_FULL=1` runs `soak` for five minutes with 4,000 connections and 1,000 queries at a
//! time. `OXTSDB_LIMITS_WITHOUT_FLAGS=1` omits the flags that these tests need from the server, to see
//! how one that lacks them does.

mod concurrency;
mod damage;
mod descriptors;
mod dripping;
mod files;
mod protocol;
mod requests;
mod slow_readers;
mod soak;
mod start;
mod support;
mod windows;
mod write_streams;
