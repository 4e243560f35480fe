//! Fuzz target: any bytes that a telnet client sends.

use oxtsdb_fuzz::run_with;
use oxtsdb_schema::HistogramCodecs;

use super::{Batch, Command};
use crate::telnet::batch::parse;

/// As a session limits them, in characters and points.
const MAX_LINE: usize = 1024;
const MAX_POINTS: usize = 1000;
/// Bytes of a command and its reply, in a vector that grows to twice its length; a line of one byte has one of each.
const REPLY_BYTES: usize = 1024;

#[test]
fn telnet_lines() {
    let codecs = HistogramCodecs::with_simple(42);
    let lines = |input: &[u8]| input.iter().filter(|byte| **byte == b'\n').count();
    run_with(
        "telnet-lines",
        |input| lines(input) * REPLY_BYTES,
        |input| {
            let text = String::from_utf8_lossy(input);
            let end = text.rfind('\n').map_or(0, |end| end + 1);
            let mut rest = &text[..end];
            let (mut counted, mut reply) = (0, None);
            while !rest.is_empty() {
                let Batch {
                    points,
                    others,
                    read,
                    lines,
                    exit,
                    too_long,
                    tags,
                } = parse(rest, MAX_LINE, MAX_POINTS, Some(&codecs));
                assert!(points.iter().all(|point| point.tags.end <= tags.len()));
                assert!(others.iter().all(|other| other.points_before <= points.len()));
                counted += points.len();
                reply = reply.or(others.into_iter().find_map(|other| match other.command {
                    Command::InvalidValue(_, reply) | Command::IllegalArgument(_, reply) => Some(reply),
                    _ => None,
                }));
                if exit || too_long {
                    break;
                }
                assert!(lines > 0 && read > 0, "no line was read of {rest:?}");
                rest = &rest[read..];
            }
            match reply {
                Some(reply) if counted == 0 => Err(reply),
                _ => Ok(counted),
            }
        },
    );
}
