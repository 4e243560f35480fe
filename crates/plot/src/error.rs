//! Errors of pictures.

use crate::size::Size;

/// Error of a picture or of one of its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlotError {
    /// A side of the picture is too short or too long.
    #[error(
        "size {width}x{height} is out of range, a picture has {min_width}x{min_height} to {max}x{max} pixels",
        min_width = Size::MIN_WIDTH,
        min_height = Size::MIN_HEIGHT,
        max = Size::MAX
    )]
    Size {
        /// The requested width in pixels.
        width: u32,
        /// The requested height in pixels.
        height: u32,
    },
    /// The text is no `WIDTHxHEIGHT`.
    #[error("`{text}` is not a size, expected for example `800x400`")]
    SizeSyntax {
        /// The rejected text.
        text: String,
    },
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
