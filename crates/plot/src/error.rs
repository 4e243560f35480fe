//! Errors of pictures.

use crate::size::SizeError;

/// Error of a picture or of one of its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlotError {
    /// The size of the picture is not valid.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The text is no colour.
    #[error("`{text}` is not a colour, expected for example `#1f77b4`")]
    Color {
        /// The rejected text.
        text: String,
    },
    /// The number format is not supported.
    #[error("`{format}` is not a number format: {reason}")]
    NumberFormat {
        /// The rejected format.
        format: String,
        /// The rule that the format breaks.
        reason: &'static str,
    },
}
