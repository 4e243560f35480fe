//! Errors of filters. The texts are OpenTSDB's.

use super::limits::MAX_REGEXPS;

/// Error of a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// No type.
    #[error("The filter type cannot be null or empty")]
    EmptyType,
    /// An unknown type.
    #[error("Could not find a tag value filter of the type: {name}")]
    UnknownType {
        /// The name.
        name: String,
    },
    /// No tag key.
    #[error("The tagk cannot be null or empty")]
    EmptyKey,
    /// An empty filter argument.
    #[error("Filter cannot be null or empty")]
    EmptyFilter,
    /// A wildcard without a star.
    #[error("Filter must contain an asterisk")]
    NoAsterisk,
    /// Alternatives without a value.
    #[error("Filter must contain more than just a pipe")]
    OnlyPipe,
    /// Two pipes without a value between them, where values are looked up.
    #[error("Missing UID name")]
    EmptyAlternative,
    /// A regular expression that is none, or none that this server can match.
    #[error("Invalid regexp filter '{text}': {reason}")]
    Regexp {
        /// The expression.
        text: String,
        /// The reason, in words that follow the expression.
        reason: String,
    },
    /// More regular expressions than a query may have.
    #[error("query has {count} regexp filters, at most {MAX_REGEXPS} are allowed")]
    TooManyRegexps {
        /// How many.
        count: usize,
    },
    /// A parenthesis that is not closed.
    #[error("Filter must end with a ')': {text}")]
    Unclosed {
        /// The text.
        text: String,
    },
}
