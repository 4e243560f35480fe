//! The words of a text.

/// The longest word that is indexed, in bytes.
const MAX_WORD_BYTES: usize = 255;

/// Separates the name of a field from a word.
const SEPARATOR: char = '\0';

/// The entry of a word in the index; an empty field stands for any.
pub(super) fn entry(field: &str, word: &str) -> String {
    format!("{field}{SEPARATOR}{word}")
}

/// The words of a text with their positions from `at`, ascending, and the next position. A part between white space
/// is a word, without the punctuation around it, and so are its alphanumeric parts.
pub(super) fn split_words(text: &str, at: usize) -> (Vec<(usize, String)>, usize) {
    let (mut words, mut at) = (Vec::new(), at);
    for part in text.split_whitespace() {
        let part = whole(part);
        let pieces = pieces(&part);
        if pieces.as_slice() != [part.as_str()] {
            add(&mut words, at, &part);
        }
        for piece in &pieces {
            add(&mut words, at, piece);
            at += 1;
        }
    }
    (words, at)
}

fn add(words: &mut Vec<(usize, String)>, at: usize, word: &str) {
    if !word.is_empty() && word.len() <= MAX_WORD_BYTES {
        words.push((at, word.to_owned()));
    }
}

/// A part between white space as a word.
pub(super) fn whole(part: &str) -> String {
    let part = part.trim_matches(|char: char| char.is_ascii_punctuation() || char == SEPARATOR);
    part.replace(SEPARATOR, "").to_lowercase()
}

/// The alphanumeric parts of a text in lower case.
pub(super) fn pieces(lower_case: &str) -> Vec<&str> {
    let pieces = lower_case.split(|char: char| !char.is_alphanumeric());
    pieces.filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_and_in_parts() {
        let (words, next) = split_words("Disk full, on (web-01)\tsys.cpu.0 ---", 5);
        let words: Vec<_> = words.iter().map(|(at, word)| (*at, word.as_str())).collect();
        assert_eq!(
            words,
            [
                (5, "disk"),
                (6, "full"),
                (7, "on"),
                (8, "web-01"),
                (8, "web"),
                (9, "01"),
                (10, "sys.cpu.0"),
                (10, "sys"),
                (11, "cpu"),
                (12, "0"),
            ]
        );
        assert_eq!(next, 13);
        assert_eq!(split_words(&"a".repeat(256), 0), (Vec::new(), 1));
    }
}
