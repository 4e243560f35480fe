//! The report of OpenTSDB's `fsck` about a table of points.

use anyhow::{Context as _, ensure};

/// The report of a read-only run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataFsck {
    /// Valid points; of several for one instant, one.
    pub valid_points: u64,
    /// Errors of all kinds.
    pub errors: u64,
    /// Its complaints, line by line, errors or not.
    pub complaints: Vec<String>,
}

impl DataFsck {
    /// Parses the log of a run.
    pub(crate) fn parse(log: &str) -> anyhow::Result<Self> {
        let lines = || log.lines().filter_map(|line| line.split_once("Fsck: "));
        let count = |what: &str| -> anyhow::Result<u64> {
            let count = lines().find_map(|(_, text)| text.strip_prefix(what)?.strip_prefix(": "));
            Ok(count
                .with_context(|| format!("fsck did not complete:\n{log}"))?
                .parse()?)
        };
        let is_complaint = |level: &str| level.contains("ERROR") || level.contains("WARN");
        let complaints = lines().filter(|(level, _)| is_complaint(level));
        let fsck = Self {
            valid_points: count("Valid Datapoints")?,
            errors: count("Total Errors")?,
            complaints: complaints.map(|(_, text)| text.to_owned()).collect(),
        };
        Ok(fsck)
    }

    /// Checks that it found this number of points and no error.
    ///
    /// # Errors
    ///
    /// If not, with its complaints.
    pub fn check(&self, points: u64) -> anyhow::Result<()> {
        let is_clean = self.valid_points == points && self.errors == 0 && self.complaints.is_empty();
        ensure!(is_clean, "there are {points} points, fsck finds {self:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_log() {
        let log = "\
16:43:26.611 ERROR Fsck: The last byte of a compacted should be 0 or 1. Either this value is corrupted \
or it was written by a future version of OpenTSDB.
16:43:26.719 INFO  Fsck: More than one column had a value for the same timestamp: (1357002032000)
16:43:26.728 INFO  Fsck: Valid Datapoints: 36001
16:43:26.753 INFO  Fsck: Total Errors: 2
16:43:26.753 INFO  Fsck: Total Errors Fixed: 0
";
        let fsck = DataFsck::parse(log).unwrap();
        assert_eq!(
            (fsck.valid_points, fsck.errors, fsck.complaints.len()),
            (36_001, 2, 1)
        );
        assert!(fsck.check(36_001).is_err());
        let error = DataFsck::parse("").unwrap_err().to_string();
        assert!(error.contains("did not complete"), "{error}");
    }
}
