//! Typed client of OxTSDB's gRPC services.

mod uid;

pub use uid::{UidClient, UidExport};
