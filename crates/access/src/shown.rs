//! Text that a caller chose, for logs, messages and terminals.
//!
//! A line break begins a line that looks like one of the log; U+202E shows the text behind it from right to left.

/// Whether a terminal shows the character itself: it is no control, format, private or unassigned character and no
/// separator but the space. `Debug` has the same rule.
pub fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        // Two characters: a backslash and a quote, which are ASCII. Others are escaped as `\u{…}`.
        _ => !character.is_control() && character.escape_debug().len() == 1,
    }
}

/// The first `max` characters of a text, the rest as `…`. Characters that are not printable are escaped as in Rust.
pub fn shown(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for character in text.chars().take(max) {
        match is_printable(character) {
            true => shown.push(character),
            false => shown.extend(character.escape_debug()),
        }
    }
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_characters_that_hide_or_reorder_text() {
        assert_eq!(shown("a \"b\" \\ é 日本", 100), "a \"b\" \\ é 日本");
        assert_eq!(
            shown("a\n\t\u{1b}[0m\u{202e}\u{2028}\u{200b}\u{e0001}\u{85}", 100),
            "a\\n\\t\\u{1b}[0m\\u{202e}\\u{2028}\\u{200b}\\u{e0001}\\u{85}"
        );
        assert_eq!(shown("abc", 2), "ab…");
        assert_eq!(shown("abc", 3), "abc");
    }
}
