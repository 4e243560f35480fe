//! Read-only and write-only servers, as OpenTSDB's `tsd.mode`.

use std::fmt;
use std::str::FromStr;

/// The mode of a server: the kinds of requests that it serves, for all callers alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Reads and writes.
    #[default]
    ReadWrite,
    /// Rejects everything that changes points, names or metadata.
    ReadOnly,
    /// Rejects queries and searches.
    WriteOnly,
}

/// Which modes serve an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modes {
    /// All of them.
    All,
    /// All but [`Mode::ReadOnly`].
    Writing,
    /// All but [`Mode::WriteOnly`].
    Reading,
    /// Only [`Mode::ReadWrite`].
    Both,
}

impl Mode {
    /// OpenTSDB's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
            Self::WriteOnly => "wo",
        }
    }

    /// Whether servers of this mode serve such an operation.
    pub const fn serves(self, modes: Modes) -> bool {
        match self {
            Self::ReadWrite => true,
            Self::ReadOnly => matches!(modes, Modes::All | Modes::Reading),
            Self::WriteOnly => matches!(modes, Modes::All | Modes::Writing),
        }
    }

    /// As a word of a message.
    pub const fn adjective(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::WriteOnly => "write-only",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let modes = [Self::ReadWrite, Self::ReadOnly, Self::WriteOnly];
        let mode = modes
            .into_iter()
            .find(|mode| mode.as_str().eq_ignore_ascii_case(text));
        mode.ok_or_else(|| format!("`{text}` is not a mode, expected rw, ro or wo"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_opentsdbs_names() {
        assert_eq!("ro".parse(), Ok(Mode::ReadOnly));
        assert_eq!("WO".parse(), Ok(Mode::WriteOnly));
        let error = "r".parse::<Mode>().unwrap_err();
        assert_eq!(error, "`r` is not a mode, expected rw, ro or wo");
    }

    #[test]
    fn serves_what_its_name_says() {
        let serves = |mode: Mode| {
            [Modes::All, Modes::Writing, Modes::Reading, Modes::Both].map(|modes| mode.serves(modes))
        };
        assert_eq!(serves(Mode::ReadWrite), [true; 4]);
        assert_eq!(serves(Mode::ReadOnly), [true, false, true, false]);
        assert_eq!(serves(Mode::WriteOnly), [true, true, false, false]);
    }
}
