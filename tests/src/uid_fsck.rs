//! The report of OpenTSDB's `uid fsck` about a UID table.

use anyhow::bail;

/// The report of a read-only run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UidFsck {
    /// Reverse mappings to a name that has another UID: OpenTSDB's word for the kind, and the UID.
    pub orphans: Vec<(String, u64)>,
    /// All other complaints.
    pub others: Vec<String>,
}

impl UidFsck {
    /// True if it found no error.
    pub fn is_clean(&self) -> bool {
        self.orphans.is_empty() && self.others.is_empty()
    }

    /// Parses the log of a run with `--verbose`.
    pub(crate) fn parse(log: &str) -> anyhow::Result<Self> {
        let mut fsck = Self::default();
        let mut is_complete = false;
        for line in log.lines() {
            let Some((level, text)) = line.split_once("UidManager: ") else {
                continue;
            };
            is_complete |= text.ends_with("errors found.");
            // For each kind `metrics: Found 2 errors.`, and at the end `2 errors found.`
            let is_sum = text.ends_with("errors found.") || text.contains(": Found ");
            // `Max ID for tagk is 4 but only 3 entries were found. Maybe 1 IDs were deleted?` Skipped
            // numbers are not an error, to OpenTSDB neither.
            let is_note = text.contains("IDs were deleted?");
            if is_sum || is_note || !(level.contains("ERROR") || level.contains("WARN")) {
                continue;
            }
            match orphan(text) {
                Some(orphan) => fsck.orphans.push(orphan),
                None => fsck.others.push(text.to_owned()),
            }
        }
        if !is_complete {
            bail!("uid fsck did not complete:\n{log}");
        }
        Ok(fsck)
    }
}

/// `Inconsistent reverse metrics mapping 0000F0 -> name vs 0000EF -> name / name -> 0000EF`
fn orphan(text: &str) -> Option<(String, u64)> {
    let rest = text.strip_prefix("Inconsistent reverse ")?;
    let (kind, rest) = rest.split_once(" mapping ")?;
    let (uid, _) = rest.split_once(" -> ")?;
    Some((kind.to_owned(), u64::from_str_radix(uid, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_log() {
        let log = "\
14:02:15.382 INFO  UidManager: Running in log only mode
14:02:15.601 ERROR UidManager: Inconsistent reverse metrics mapping 0000F0 -> race.130 vs 0000EF -> race.130 / race.130 -> 0000EF
14:02:15.601 ERROR UidManager: Forward tagk mapping is missing reverse mapping: a -> 000001
14:02:15.602 WARN  UidManager: Max ID for tagk is 4 but only 3 entries were found.  Maybe 1 IDs were deleted?
14:02:15.668 WARN  UidManager: metrics: Found 1 errors.
14:02:15.670 WARN  UidManager: 2 errors found.
";
        let fsck = UidFsck::parse(log).unwrap();
        assert_eq!(fsck.orphans, [("metrics".to_owned(), 0xf0)]);
        assert_eq!(fsck.others.len(), 1);
        assert!(!fsck.is_clean());
        assert!(
            UidFsck::parse("")
                .unwrap_err()
                .to_string()
                .contains("did not complete")
        );
        assert!(
            UidFsck::parse("1 INFO  UidManager: No errors found.")
                .unwrap()
                .is_clean()
        );
    }
}
