//! Findings of the doctor, and how they are printed.

use std::fmt::Write as _;

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The check found nothing to change.
    Ok,
    /// Worth knowing; the deployment works.
    Note,
    /// It works, and will fail or loses protection under conditions that occur.
    Warning,
    /// Something does not work, or returns wrong results.
    Error,
}

impl Level {
    const ALL: [Self; 4] = [Self::Error, Self::Warning, Self::Note, Self::Ok];

    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The result of one check of one server, or of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// The subject of the check, a word or two.
    pub(crate) check: &'static str,
    /// The server; empty: the deployment.
    pub(crate) server: String,
    /// The result, with figures.
    #[serde(rename = "found")]
    pub(crate) message: String,
    /// Advice; empty if there is nothing to change.
    pub(crate) advice: String,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, server: &str, message: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, server, message, "")
    }

    pub(crate) fn new(
        level: Level,
        check: &'static str,
        server: &str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            level,
            check,
            server: server.to_owned(),
            message: message.into(),
            advice: advice.into(),
        }
    }
}

/// All findings of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings(pub(crate) Vec<Finding>);

impl Findings {
    pub(crate) fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.level == Level::Error)
    }

    /// A line for each finding, the worst first, and a line with their counts. Without `all`, checks that found
    /// nothing are only counted.
    pub(crate) fn to_text(&self, all: bool) -> String {
        let mut text = String::new();
        let mut counts = Vec::new();
        for level in Level::ALL {
            let of_level = self.0.iter().filter(|finding| finding.level == level);
            counts.push(format!("{} {}", of_level.clone().count(), level.name()));
            if level == Level::Ok && !all {
                continue;
            }
            for finding in of_level {
                let server = match finding.server.as_str() {
                    "" => String::new(),
                    server => format!("{server}: "),
                };
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{:<8} {:<12} {server}{}",
                    level.name(),
                    finding.check,
                    finding.message
                );
                if !finding.advice.is_empty() {
                    let _ = writeln!(text, "{:<21} -> {}", "", finding.advice);
                }
            }
        }
        let _ = writeln!(text, "{} checks: {}", self.0.len(), counts.join(", "));
        text
    }

    /// An object for each finding, in a list.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        Findings(vec![
            Finding::ok("versions", "", "2 servers of 0.1.0"),
            Finding::new(Level::Error, "disk", "http://a:4245", "is full", "add disk"),
            Finding::new(Level::Note, "rights", "http://a:4245", "are not used", ""),
        ])
    }

    #[test]
    fn text_has_the_worst_first_with_advice_and_counts() {
        assert_eq!(
            findings().to_text(false),
            "error    disk         http://a:4245: is full\n                      -> add disk\n\
             note     rights       http://a:4245: are not used\n\
             3 checks: 1 error, 0 warning, 1 note, 1 ok\n"
        );
        assert!(
            findings()
                .to_text(true)
                .contains("ok       versions     2 servers of 0.1.0\n")
        );
        assert!(findings().has_errors());
        assert!(!Findings(vec![Finding::ok("a", "", "b")]).has_errors());
    }

    #[test]
    fn json_has_all_findings() {
        let json: serde_json::Value = serde_json::from_str(&findings().to_json().unwrap()).unwrap();
        assert_eq!(json[1]["level"], "error");
        assert_eq!(json[0]["check"], "versions");
        assert_eq!(json.as_array().unwrap().len(), 3);
    }
}
