//! Texts of users: removes characters that must not be drawn, cuts and wraps to a width.

use crate::font;

/// The largest number of characters that are looked at: longer texts are cut in the middle before they are measured.
const MAX_CHARS: usize = 512;

/// The largest number of characters of a text that is wrapped into lines.
const MAX_WRAPPED_CHARS: usize = 8192;

/// Returns a text on one line, of characters that XML 1.0 allows, without characters that reorder text.
pub(crate) fn clean(text: &str) -> String {
    let text = halves(text, MAX_CHARS);
    text.chars().map(allowed).collect::<String>().trim().to_owned()
}

/// Control characters become spaces, other forbidden characters U+FFFD.
fn allowed(character: char) -> char {
    match character {
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => ' ',
        // Marks, embeddings and isolates of writing direction could make a label read as another one.
        '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{fdd0}'..='\u{fdef}' => '\u{fffd}',
        // The last two characters of each plane are no characters.
        _ if u32::from(character) & 0xfffe == 0xfffe => '\u{fffd}',
        _ => character,
    }
}

/// Returns a text with at most `max` characters, with its middle cut out.
fn halves(text: &str, max: usize) -> String {
    if text.len() <= max || text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    let head: String = text.chars().take(max / 2).collect();
    let tail: Vec<char> = text.chars().rev().take(max / 2 - 1).collect();
    head + "…" + &tail.into_iter().rev().collect::<String>()
}

/// Returns a text at most `width` pixels wide. Names of series differ at both ends, so the middle is cut out.
pub(crate) fn cut(text: &str, size: f64, width: f64) -> String {
    if font::width(text, size) <= width {
        return text.to_owned();
    }
    let ellipsis = font::width("…", size);
    let mut left = width - ellipsis;
    if left < 0.0 {
        return String::new();
    }
    let characters: Vec<char> = text.chars().collect();
    let (mut head, mut tail) = (0, characters.len());
    // From both ends in turn, two characters of the head for one of the tail: people read the head first.
    for turn in 0.. {
        let from_head = turn % 3 != 2;
        let index = if from_head { head } else { tail.saturating_sub(1) };
        let Some(character) = characters.get(index).filter(|_| head < tail) else {
            break;
        };
        left -= font::char_width(*character, size);
        if left < 0.0 {
            break;
        }
        if from_head {
            head += 1;
        } else {
            tail -= 1;
        }
    }
    let (head, tail) = (&characters[..head], &characters[tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// Returns the lines of a text, each at most `width` pixels wide, at most `max_lines`; the last ends with `…` if lines
/// are left out.
pub(crate) fn wrap(text: &str, size: f64, width: f64, max_lines: usize) -> Vec<String> {
    let text: String = text.chars().take(MAX_WRAPPED_CHARS).collect();
    let mut lines = Vec::new();
    'text: for paragraph in text.lines() {
        let paragraph: String = paragraph.chars().map(allowed).collect();
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            let spaced = if line.is_empty() {
                word.to_owned()
            } else {
                format!("{line} {word}")
            };
            if font::width(&spaced, size) <= width {
                line = spaced;
                continue;
            }
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            // A word that is wider than the line breaks anywhere.
            for character in word.chars() {
                line.push(character);
                if font::width(&line, size) > width && line.chars().nth(1).is_some() {
                    line.pop();
                    lines.push(std::mem::replace(&mut line, character.to_string()));
                }
                if lines.len() > max_lines {
                    break 'text;
                }
            }
        }
        lines.push(line);
        if lines.len() > max_lines {
            break;
        }
    }
    if lines.len() > max_lines {
        lines.truncate(max_lines);
        if let Some(last) = lines.last_mut() {
            while !last.is_empty() && font::width(&format!("{last}…"), size) > width {
                last.pop();
            }
            last.push('…');
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_characters_are_replaced() {
        assert_eq!(
            clean("a\0b\nc\u{202e}d\u{ffff}e\u{fdd0}"),
            "a b c\u{fffd}d\u{fffd}e\u{fffd}"
        );
        assert_eq!(clean("  ΔT °C café Ж  "), "ΔT °C café Ж");
    }

    #[test]
    fn long_texts_keep_both_ends() {
        let text = "sys.cpu.user{host=web01.example.org,cpu=0,state=idle}";
        let short = cut(text, 11.0, 120.0);
        assert!(font::width(&short, 11.0) <= 120.0);
        assert!(
            short.starts_with("sys.cpu") && short.ends_with("le}") && short.contains('…'),
            "{short}"
        );
        assert_eq!(cut(text, 11.0, 1000.0), text);
        assert_eq!(cut(text, 11.0, 1.0), "");
        assert_eq!(clean(&"x".repeat(1_000_000)).chars().count(), MAX_CHARS);
    }

    #[test]
    fn lines_are_wrapped_and_cut() {
        let lines = wrap(
            "one two three four\nfive aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            11.0,
            60.0,
            10,
        );
        assert_eq!(lines[0], "one two");
        assert!(lines.len() > 3);
        assert!(
            lines.iter().all(|line| font::width(line, 11.0) <= 60.0),
            "{lines:?}"
        );
        let cut = wrap(&"word ".repeat(1000), 11.0, 60.0, 3);
        assert_eq!(cut.len(), 3);
        assert!(cut[2].ends_with('…'));
        assert!(wrap("", 11.0, 0.0, 3).is_empty());
    }
}
