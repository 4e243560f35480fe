//! Sizes of pictures.

use std::fmt;
use std::str::FromStr;

/// Width and height of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    width: u32,
    height: u32,
}

/// Error of a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A side of the picture is too short or too long.
    #[error(
        "size {width}x{height} is out of range, a picture has {min_width}x{min_height} to {max}x{max} pixels",
        min_width = Size::MIN_WIDTH,
        min_height = Size::MIN_HEIGHT,
        max = Size::MAX
    )]
    OutOfRange {
        /// The requested width in pixels.
        width: u32,
        /// The requested height in pixels.
        height: u32,
    },
    /// The text is no `WIDTHxHEIGHT`.
    #[error("`{text}` is not a size, expected for example `800x400`")]
    Syntax {
        /// The rejected text.
        text: String,
    },
}

impl Size {
    /// The smallest width in pixels.
    pub const MIN_WIDTH: u32 = 64;
    /// The smallest height in pixels.
    pub const MIN_HEIGHT: u32 = 48;
    /// The largest width and the largest height in pixels.
    pub const MAX: u32 = 4096;

    /// Returns a size within the limits.
    ///
    /// # Errors
    ///
    /// [`SizeError::OutOfRange`] if a side is out of the limits.
    pub fn new(width: u32, height: u32) -> Result<Self, SizeError> {
        let fits = (Self::MIN_WIDTH..=Self::MAX).contains(&width)
            && (Self::MIN_HEIGHT..=Self::MAX).contains(&height);
        if fits {
            Ok(Self { width, height })
        } else {
            Err(SizeError::OutOfRange { width, height })
        }
    }

    /// Returns the width in pixels.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(self) -> u32 {
        self.height
    }

    /// Returns the number of pixels.
    pub(crate) fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// OpenTSDB's form, `800x400`.
impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let syntax = || SizeError::Syntax {
            text: text.chars().take(40).collect(),
        };
        let (width, height) = text.split_once('x').ok_or_else(syntax)?;
        let width = width.parse().map_err(|_| syntax())?;
        let height = height.parse().map_err(|_| syntax())?;
        Self::new(width, height)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_limits() {
        assert!(Size::new(4096, 4096).is_ok());
        assert_eq!(
            Size::new(4097, 400),
            Err(SizeError::OutOfRange {
                width: 4097,
                height: 400
            })
        );
        assert_eq!(
            Size::new(63, 400),
            Err(SizeError::OutOfRange {
                width: 63,
                height: 400
            })
        );
        assert_eq!("800x400".parse(), Size::new(800, 400));
        assert!(matches!("800".parse::<Size>(), Err(SizeError::Syntax { .. })));
        assert!(matches!("-1x5".parse::<Size>(), Err(SizeError::Syntax { .. })));
        assert!(matches!("0x0".parse::<Size>(), Err(SizeError::OutOfRange { .. })));
    }
}
