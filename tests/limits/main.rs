//! No client can stop the service for others.
//!
//! Each test attacks a real server with a memory limit of [`support::LIMIT_MIB`] and asserts that
//!
//! - its resident memory stays under the limit + 20 %,
//! - small requests of another client are served meanwhile within a time limit,
//! - the attacker gets a typed rejection or a whole response,
//! - afterwards everything works as before.
//!
//! The tests run one at a time: they assert how long responses take.
//!
//! `OXTSDB_LIMITS_FULL=1` makes the attacks larger, and runs `soak` for five minutes with 4,000 connections and 1,000 concurrent
//! queries. `OXTSDB_LIMITS_WITHOUT_FLAGS=1` omits the flags that these tests set, to run them against an
//! older server that lacks them.

mod announced;
mod callers;
mod concurrency;
mod damage;
mod descriptors;
mod dripping;
mod files;
mod floods;
mod kinds;
mod large_bodies;
mod protocol;
mod requests;
mod slow_readers;
mod soak;
mod start;
mod support;
mod surfaces;
mod trees;
mod watches;
mod windows;
mod write_streams;
