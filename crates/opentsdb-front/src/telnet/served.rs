//! The commands of a telnet session: those that the mode of the server and the rights of its caller exclude, and
//! their replies.

use std::collections::BTreeSet;

use oxtsdb_access::operation::TELNET;
use oxtsdb_access::{AccessControl, Identity, MetricScope, Operation, Refusal, Refused};

/// The commands that a session does not serve, with the reason of each.
#[derive(Debug)]
pub(super) struct Served {
    access: AccessControl,
    identity: Identity,
    refused: Vec<(&'static str, Refused)>,
    /// Refused commands that were logged: each is logged once.
    logged: BTreeSet<&'static str>,
    /// The metrics of commands that are granted for some only.
    metrics: Vec<(&'static str, MetricScope)>,
}

/// A line with a command that is not served.
#[derive(Debug)]
pub(super) struct RefusedLine {
    pub(super) reply: String,
    /// Its bytes, with its end.
    pub(super) length: usize,
}

impl Served {
    /// The rights of a connection, for as long as it lasts.
    pub(super) fn new(access: &AccessControl) -> Self {
        let identity = Identity::telnet();
        let (mut refused, mut metrics) = (Vec::new(), Vec::new());
        for operation in TELNET {
            match access.check(&identity, operation) {
                Err(reason) => refused.push((command_of(operation), reason)),
                Ok(granted) => metrics.extend(granted.metrics.map(|scope| (command_of(operation), scope))),
            }
        }
        Self {
            access: access.clone(),
            identity,
            refused,
            logged: BTreeSet::new(),
            metrics,
        }
    }

    /// The metrics that a command may write; `None`: all.
    pub(super) fn metrics(&self, command: &str) -> Option<&MetricScope> {
        let mut limited = self.metrics.iter();
        limited
            .find(|(other, _)| *other == command)
            .map(|(_, scope)| scope)
    }

    /// Whether a command is served.
    pub(super) fn serves(&self, command: &str) -> bool {
        self.refused.iter().all(|(other, _)| *other != command)
    }

    /// Divides lines before the first one that is not served: the bytes of the lines before it, and the line. If there are
    /// commands that are not served, it looks at `most` lines at most.
    pub(super) fn divide(&mut self, text: &str, most: usize) -> (usize, Option<RefusedLine>) {
        if self.refused.is_empty() {
            return (text.len(), None);
        }
        let mut served = 0;
        for line in text.split_inclusive('\n').take(most) {
            if let Some(reply) = self.reply(line) {
                let length = line.len();
                return (served, Some(RefusedLine { reply, length }));
            }
            served += line.len();
        }
        (served, None)
    }

    /// The reply to a line with a command that is not served; `None`: it is served.
    fn reply(&mut self, line: &str) -> Option<String> {
        let line = line.trim_end_matches(['\r', '\n']);
        let word = line.split(' ').next().unwrap_or_default();
        if word == "help" {
            return self.help();
        }
        let (command, refused) = self.refused.iter().find(|(command, _)| *command == word)?;
        // One entry in the log for each command of a connection.
        if self.logged.insert(command) {
            self.access.record(&self.identity, refused);
        }
        Some(match &refused.refusal {
            // As in OpenTSDB: its modes leave these commands out.
            Refusal::Mode { .. } => format!("unknown command: {word}.  Try `help'.\n"),
            refusal => format!("{word}: {refusal}\n"),
        })
    }

    /// The commands, if the mode of the server leaves some out.
    fn help(&self) -> Option<String> {
        let left_out = |command: &str| {
            let mut refused = self.refused.iter();
            refused.any(|(other, reason)| *other == command && matches!(reason.refusal, Refusal::Mode { .. }))
        };
        let all = [
            "stats",
            "dropcaches",
            "version",
            "exit",
            "help",
            "put",
            "rollup",
            "histogram",
        ];
        let served: Vec<&str> = all.into_iter().filter(|command| !left_out(command)).collect();
        (served.len() < all.len()).then(|| format!("available commands: {} \n", served.join(" ")))
    }
}

fn command_of(operation: &Operation) -> &'static str {
    operation.name.strip_prefix("telnet/").unwrap_or(operation.name)
}
