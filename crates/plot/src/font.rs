//! Widths and outlines of the compiled-in font (`fonts/README.md`).

use std::sync::OnceLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Heights of letters in font sizes: x, and capitals and digits.
const X_HEIGHT: f64 = 0.536;
pub(crate) const CAP_HEIGHT: f64 = 0.714;
/// The part of letters such as g below the base line, in font sizes.
pub(crate) const DESCENT: f64 = 0.24;

fn face() -> &'static Face<'static> {
    static FACE: OnceLock<Face<'static>> = OnceLock::new();
    FACE.get_or_init(|| {
        let bytes = include_bytes!("../fonts/NotoSans-Regular-subset.ttf");
        Face::parse(bytes, 0).expect("the compiled-in font parses")
    })
}

/// Returns the font size with an x-height of `pixels`: with a whole number, the horizontal strokes of most letters lie on
/// pixels and are sharp without hints.
pub(crate) fn size_from_x_height(pixels: u32) -> f64 {
    f64::from(pixels) / X_HEIGHT
}

/// Returns the glyph of a character: a box if the font has none.
fn glyph(character: char) -> GlyphId {
    face().glyph_index(character).unwrap_or(GlyphId(0))
}

/// Returns the width of a character in pixels.
pub(crate) fn char_width(character: char, size: f64) -> f64 {
    // Marks that combine with the letter before take no width of their own.
    if ('\u{300}'..='\u{36f}').contains(&character) {
        return 0.0;
    }
    let advance = face().glyph_hor_advance(glyph(character)).unwrap_or(0);
    f64::from(advance) * size / f64::from(face().units_per_em())
}

/// Returns the width of a text in pixels.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| char_width(character, size)).sum()
}

/// Emits the outline of a character to a builder: units of the font, y upwards.
pub(crate) fn outline(character: char, builder: &mut dyn OutlineBuilder) {
    face().outline_glyph(glyph(character), builder);
}

/// Returns the pixels of a unit of the font.
pub(crate) fn scale(size: f64) -> f64 {
    size / f64::from(face().units_per_em())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latin_greek_and_cyrillic_have_glyphs() {
        for character in "Az09éßŐłΩλЖяѣ…–×µ²€°→∞≤".chars() {
            let has = face().glyph_index(character).is_some();
            assert_eq!(has, !"→∞≤".contains(character) || has, "{character}");
        }
        assert!(face().glyph_index('漢').is_none());
        assert!(char_width('漢', 10.0) > 0.0);
    }

    #[test]
    fn digits_have_one_width() {
        assert!((width("1111", 10.0) - width("0000", 10.0)).abs() < 1e-9);
    }
}
