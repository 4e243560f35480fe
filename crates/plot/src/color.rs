//! Colours, themes, and the colours and dashes of series.

use std::fmt;
use std::str::FromStr;

use crate::error::PlotError;

/// An opaque sRGB colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color {
    /// Red, 0 to 255.
    pub red: u8,
    /// Green, 0 to 255.
    pub green: u8,
    /// Blue, 0 to 255.
    pub blue: u8,
}

impl Color {
    /// Returns a colour from its red, green and blue parts.
    pub const fn rgb(red: u8, green: u8, blue: u8) -> Self {
        Self { red, green, blue }
    }

    /// Returns the colour between this one (0.0) and `other` (1.0).
    pub(crate) fn mix(self, other: Self, share: f64) -> Self {
        let part = |from: u8, to: u8| {
            let value = f64::from(from) + (f64::from(to) - f64::from(from)) * share.clamp(0.0, 1.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between two bytes"
            )]
            let byte = value.round() as u8;
            byte
        };
        Self::rgb(
            part(self.red, other.red),
            part(self.green, other.green),
            part(self.blue, other.blue),
        )
    }

    /// Returns WCAG's relative luminance, 0 (black) to 1 (white).
    fn luminance(self) -> f64 {
        let linear = |part: u8| (f64::from(part) / 255.0).powf(2.2);
        0.2126 * linear(self.red) + 0.7152 * linear(self.green) + 0.0722 * linear(self.blue)
    }

    /// Whether light colours stand out from this background.
    fn is_dark(self) -> bool {
        self.luminance() < 0.18
    }
}

/// `#rrggbb`, or OpenTSDB's `xrrggbb`.
impl FromStr for Color {
    type Err = PlotError;

    fn from_str(text: &str) -> Result<Self, PlotError> {
        let rejected = || PlotError::Color {
            text: text.chars().take(40).collect(),
        };
        let digits = text.strip_prefix(['#', 'x']).ok_or_else(rejected)?;
        if digits.len() != 6 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(rejected());
        }
        let [_, red, green, blue] = u32::from_str_radix(digits, 16)
            .map_err(|_| rejected())?
            .to_be_bytes();
        Ok(Self::rgb(red, green, blue))
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}

/// The two colours that all others but the series' are mixed from. A dark background also selects lighter series colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// The colour behind everything.
    pub background: Color,
    /// The colour of texts and axes. Grid lines lie between it and the background.
    pub foreground: Color,
}

impl Theme {
    /// Returns the theme for pages with a white background.
    pub const fn light() -> Self {
        Self {
            background: Color::rgb(255, 255, 255),
            foreground: Color::rgb(0x24, 0x29, 0x2e),
        }
    }

    /// Returns the theme for pages with a dark background.
    pub const fn dark() -> Self {
        Self {
            background: Color::rgb(0x16, 0x1b, 0x22),
            foreground: Color::rgb(0xe1, 0xe4, 0xe8),
        }
    }

    pub(crate) fn grid(&self) -> Color {
        self.background.mix(self.foreground, 0.12)
    }

    pub(crate) fn axis(&self) -> Color {
        self.background.mix(self.foreground, 0.55)
    }

    /// The colour of texts beside the data: numbers at ticks, legends.
    pub(crate) fn quiet_text(&self) -> Color {
        self.background.mix(self.foreground, 0.85)
    }

    /// Returns the colour and the dashes of the series at `index`: each colour once with solid lines, then dashed.
    pub(crate) fn series(&self, index: usize) -> (Color, &'static [f64]) {
        let palette = if self.background.is_dark() {
            ON_DARK
        } else {
            ON_LIGHT
        };
        let color = match palette.get(index % (palette.len() + 1)) {
            Some(color) => *color,
            None => self.foreground,
        };
        (color, DASHES[index / (palette.len() + 1) % DASHES.len()])
    }

    /// Returns the colour of a share of the largest count of a heat map, from just above 0.0 to 1.0.
    pub(crate) fn heat(&self, share: f64) -> Color {
        let share = share.clamp(0.0, 1.0);
        // Cells with few counts fade into the background: viridis begins dark, so on light backgrounds it runs in reverse.
        let along = if self.background.is_dark() {
            share
        } else {
            1.0 - share
        };
        let at = along * 8.0;
        let stop = (0..8).rev().find(|stop| at >= f64::from(*stop)).unwrap_or(0);
        let (low, high) = (VIRIDIS[stop as usize], VIRIDIS[stop as usize + 1]);
        low.mix(high, at - f64::from(stop))
    }
}

impl Default for Theme {
    fn default() -> Self {
        Self::light()
    }
}

/// Okabe and Ito's colours, which people with any colour blindness tell apart ("Color Universal Design", 2008), but for
/// yellow, which is illegible on white. Their black is the theme's foreground and comes last.
static ON_LIGHT: &[Color] = &[
    Color::rgb(0x00, 0x72, 0xb2),
    Color::rgb(0xd5, 0x5e, 0x00),
    Color::rgb(0x00, 0x9e, 0x73),
    Color::rgb(0xcc, 0x79, 0xa7),
    Color::rgb(0xe6, 0x9f, 0x00),
    Color::rgb(0x56, 0xb4, 0xe9),
];

/// Okabe and Ito's colours but for blue, which is illegible on black.
static ON_DARK: &[Color] = &[
    Color::rgb(0x56, 0xb4, 0xe9),
    Color::rgb(0xe6, 0x9f, 0x00),
    Color::rgb(0x00, 0x9e, 0x73),
    Color::rgb(0xf0, 0xe4, 0x42),
    Color::rgb(0xcc, 0x79, 0xa7),
    Color::rgb(0xd5, 0x5e, 0x00),
];

/// Lengths of dashes and spaces in line widths. Empty: a solid line.
static DASHES: &[&[f64]] = &[
    &[],
    &[5.0, 2.5],
    &[1.5, 2.0],
    &[7.0, 2.0, 1.5, 2.0],
    &[9.0, 2.5],
    &[3.0, 1.5, 1.5, 1.5, 1.5, 1.5],
];

/// Nine stops of matplotlib's viridis (CC0). Its lightness grows evenly.
static VIRIDIS: [Color; 9] = [
    Color::rgb(0x44, 0x01, 0x54),
    Color::rgb(0x47, 0x2d, 0x7b),
    Color::rgb(0x3b, 0x52, 0x8b),
    Color::rgb(0x2c, 0x72, 0x8e),
    Color::rgb(0x21, 0x91, 0x8c),
    Color::rgb(0x28, 0xae, 0x80),
    Color::rgb(0x5e, 0xc9, 0x62),
    Color::rgb(0xad, 0xdc, 0x30),
    Color::rgb(0xfd, 0xe7, 0x25),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_parse_and_print() {
        assert_eq!("#0072b2".parse(), Ok(Color::rgb(0, 0x72, 0xb2)));
        assert_eq!("x0072B2".parse(), Ok(Color::rgb(0, 0x72, 0xb2)));
        assert_eq!(Color::rgb(0, 0x72, 0xb2).to_string(), "#0072b2");
        for text in ["", "#", "#12345", "#1234567", "#+12345", "red", "#ggffff", "é"] {
            assert!(text.parse::<Color>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_forty_series_differ() {
        for theme in [Theme::light(), Theme::dark()] {
            let looks: Vec<_> = (0..40).map(|index| theme.series(index)).collect();
            for (index, look) in looks.iter().enumerate() {
                assert!(!looks[..index].contains(look), "{index}");
            }
        }
    }

    #[test]
    fn heat_has_both_ends() {
        assert_eq!(Theme::dark().heat(0.0), VIRIDIS[0]);
        assert_eq!(Theme::dark().heat(1.0), VIRIDIS[8]);
        assert_eq!(Theme::light().heat(1.0), VIRIDIS[0]);
    }
}
