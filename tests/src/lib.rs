//! Harness of the end-to-end tests: the real programs on free ports and in folders of their own,
//! and clients for every front end.
//!
//! ```text
//!   Tsdb::start ─► program    finds the binary (and builds it, if it is missing or stale)
//!               ─► process    runs it, keeps its log, ends it in Drop
//!               ─► wait       until every service says SERVING
//!   Tsdb::{data, uids, http, telnet} ─► the front ends
//!   sample                  one point in the form of each front end
//!   read_back               stored points, read by query and by scan
//! ```
//!
//! For what must hold under load and attack (`tests/limits`):
//!
//! ```text
//!   load                    millions of points of a metric
//!   raw_http, raw_grpc      clients that send or read slowly, or not at all; crowd: thousands of idle ones
//!   bystander               another client; its small requests have to be served meanwhile
//!   memory                  the server's memory, sampled; a server that takes too much is killed
//!   refusal                 what a typed refusal must have
//! ```
//!
//! For storage that fails:
//!
//! ```text
//!   faults                  a preloaded library: syncs that fail, files that cannot be changed
//!   disks                   small file systems, mounted for a test
//!   ledger                  names and points that were acknowledged, compared with what is stored
//! ```
//!
//! Without OpenTSDB, against what it responded once:
//!
//! ```text
//!   recorded                sends recorded requests, and compares responses and stored cells
//! ```
//!
//! For the order of the code:
//!
//! ```text
//!   circles                 source files that use each other
//! ```
//!
//! For names that change while they are used:
//!
//! ```text
//!   uid_histories           whether a recorded history of operations is one that the service may produce
//! ```
//!
//! For checks of table `tsdb`:
//!
//! ```text
//!   corruptions             healthy rows, and rows with corruptions of all kinds
//! ```
//!
//! With a real Envoy before the services:
//!
//! ```text
//!   envoy                   runs deploy/envoy before replicas; envoy_load: clients of each kind, meanwhile
//! ```
//!
//! With a real HBase and a real OpenTSDB beside it (`tests/hbase/rig.sh`):
//!
//! ```text
//!   rig ─► Part, OpenTsdb     started for a test, killed, paused; ended in Drop
//!   tables                    names that no other test has
//!   stored, uid_table         what is in them, cell for cell
//!   data_fsck, uid_fsck       what OpenTSDB's own checks say about them
//!   proxy, traffic            a network that stalls, loses, cuts, refuses; clients that write meanwhile
//!   random_points ─► writers ─► comparison    all that a row can hold: sent, and looked for
//!   format                    salt, widths of UIDs, forms of points: as settings of OpenTSDB and as our flags
//!   differential              random queries to both, and a comparison of the results
//! ```

pub mod bystander;
pub mod circles;
pub mod collector;
pub mod comparison;
pub mod corruptions;
pub mod crowd;
pub mod data_fsck;
pub mod differential;
pub mod disks;
pub mod envoy;
pub mod envoy_load;
pub mod examples;
pub mod faults;
pub mod format;
pub mod health;
pub mod http;
pub mod ledger;
pub mod linked_lists;
pub mod load;
pub mod memory;
pub mod metrics;
pub mod opentsdb;
pub mod paths;
mod ports;
pub mod process;
mod program;
pub mod proxy;
pub mod random;
pub mod random_points;
pub mod raw_grpc;
pub mod raw_http;
pub mod read_back;
pub mod recorded;
pub mod refusal;
pub mod rig;
pub mod sample;
pub mod sizes;
mod skip;
pub mod stored;
pub mod stream;
pub mod tables;
mod telnet;
pub mod terminal;
pub mod tokens;
pub mod traffic;
mod tsdb;
mod two_programs;
pub mod uid_fsck;
pub mod uid_histories;
pub mod uid_table;
mod wait;
pub mod write_requests;
pub mod writers;

pub use oxtsdb_tls::testing as certificates;
pub use program::path as program_path;
pub use skip::skip;
pub use telnet::Telnet;
pub use tsdb::{Options, Tsdb};
pub use two_programs::{DataProgram, UidProgram};
pub use wait::{PATIENCE, until};
