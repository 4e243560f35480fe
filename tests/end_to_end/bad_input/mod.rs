//! Bad input gets an error that names field, value and rule; the good rest of a batch is stored.

mod grpc;
mod http;
mod names;
mod points;
mod query;
mod telnet;
