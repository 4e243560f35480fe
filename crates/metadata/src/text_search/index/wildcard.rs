//! Words that match a pattern: `*` is any text, `?` any character.
//!
//! The automaton walks the sorted entries of the index and skips entries with a beginning that cannot match, so `cpu*` is
//! cheap and `*cpu` reads all words of a field. It ends early when the search must stop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tantivy::query::{AutomatonWeight, EnableScoring, Query, Weight};
use tantivy::schema::Field;
use tantivy_fst::Automaton;

use super::super::Stops;

/// The most elements of a pattern: they, and the end, are the bits of a state.
pub(super) const MAX_ELEMENTS: usize = 127;

/// Steps between two checks whether to stop.
const STEPS: u32 = 4096;

/// An element of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Byte(u8),
    /// Any character: a first byte, and those that continue it.
    Character,
    /// Any text.
    Text,
}

/// A pattern behind a prefix.
pub(super) struct Wildcard {
    prefix: Vec<u8>,
    /// At most [`MAX_ELEMENTS`].
    elements: Vec<Element>,
    stops: Stops,
    steps: AtomicU32,
    is_stopped: AtomicBool,
}

/// The state after the text that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// This number of bytes of the prefix.
    Prefix(usize),
    /// The prefix. A set bit is an element that may come next, or behind the last one the end.
    Elements(u128),
}

impl Wildcard {
    pub(super) fn new(prefix: &str, elements: &[Element], stops: Stops) -> Self {
        Self {
            prefix: prefix.as_bytes().to_vec(),
            elements: elements.iter().copied().take(MAX_ELEMENTS).collect(),
            stops,
            steps: AtomicU32::new(0),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Adds an element that may come next. Any text may be empty.
    fn reach(&self, set: u128, element: usize) -> u128 {
        let mut element = element;
        let mut set = set | 1 << element;
        while self.elements.get(element) == Some(&Element::Text) {
            element += 1;
            set |= 1 << element;
        }
        set
    }

    fn step(&self, set: u128, byte: u8) -> u128 {
        let continues = byte & 0xc0 == 0x80;
        let mut next = 0;
        for at in (0..=self.elements.len()).filter(|at| set >> at & 1 == 1) {
            if continues && at > 0 && self.elements.get(at - 1) == Some(&Element::Character) {
                next = self.reach(next, at);
            }
            match self.elements.get(at) {
                Some(Element::Text) => next = self.reach(next, at),
                Some(Element::Character) if !continues => next = self.reach(next, at + 1),
                Some(Element::Byte(expected)) if *expected == byte => next = self.reach(next, at + 1),
                Some(Element::Character | Element::Byte(_)) | None => {}
            }
        }
        next
    }

    fn is_stopped(&self) -> bool {
        if self.steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(STEPS) && (self.stops)() {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        self.is_stopped.load(Ordering::Relaxed)
    }
}

impl Automaton for Wildcard {
    type State = Progress;

    fn start(&self) -> Progress {
        if self.prefix.is_empty() {
            return Progress::Elements(self.reach(0, 0));
        }
        Progress::Prefix(0)
    }

    fn is_match(&self, progress: &Progress) -> bool {
        matches!(progress, Progress::Elements(set) if set >> self.elements.len() & 1 == 1)
    }

    fn can_match(&self, progress: &Progress) -> bool {
        !self.is_stopped() && *progress != Progress::Elements(0)
    }

    fn accept(&self, progress: &Progress, byte: u8) -> Progress {
        match *progress {
            Progress::Elements(set) => Progress::Elements(self.step(set, byte)),
            Progress::Prefix(read) if self.prefix.get(read) != Some(&byte) => Progress::Elements(0),
            Progress::Prefix(read) if read + 1 == self.prefix.len() => Progress::Elements(self.reach(0, 0)),
            Progress::Prefix(read) => Progress::Prefix(read + 1),
        }
    }
}

/// Documents with a word that matches.
#[derive(Clone)]
pub(super) struct WildcardQuery {
    field: Field,
    wildcard: Arc<Wildcard>,
}

impl WildcardQuery {
    pub(super) fn new(field: Field, wildcard: Wildcard) -> Self {
        let wildcard = Arc::new(wildcard);
        Self { field, wildcard }
    }
}

impl fmt::Debug for WildcardQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WildcardQuery")
            .field(&self.wildcard.elements)
            .finish()
    }
}

impl Query for WildcardQuery {
    fn weight(&self, _scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(AutomatonWeight::<Wildcard>::new(
            self.field,
            Arc::clone(&self.wildcard),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(pattern: &str) -> Vec<Element> {
        let element = |byte| match byte {
            b'*' => Element::Text,
            b'?' => Element::Character,
            byte => Element::Byte(byte),
        };
        pattern.bytes().map(element).collect()
    }

    fn matches(pattern: &str, word: &str) -> bool {
        let wildcard = Wildcard::new("f\0", &elements(pattern), Arc::new(|| false));
        let mut progress = wildcard.start();
        for byte in "f\0".bytes().chain(word.bytes()) {
            if !wildcard.can_match(&progress) {
                return false;
            }
            progress = wildcard.accept(&progress, byte);
        }
        wildcard.is_match(&progress)
    }

    #[test]
    fn patterns_match_whole_words() {
        for (pattern, matching, others) in [
            (
                "sys.cpu*",
                vec!["sys.cpu", "sys.cpu.user"],
                vec!["sys.cp", "asys.cpu"],
            ),
            ("*cpu*", vec!["cpu", "sys.cpu.user", "cpucpu"], vec!["sys.cp"]),
            ("w?b", vec!["web", "wéb", "w€b"], vec!["wb", "weeb"]),
            ("??", vec!["ab", "éé"], vec!["a", "é", "abc"]),
            ("?*?", vec!["ab", "aéb", "éa"], vec!["é", "a"]),
            ("*", vec!["", "a"], vec![]),
            ("a**b", vec!["ab", "axb"], vec!["a"]),
        ] {
            for word in matching {
                assert!(matches(pattern, word), "{pattern} matches {word}");
            }
            for word in others {
                assert!(!matches(pattern, word), "{pattern} does not match {word}");
            }
        }
        let longest = "a".repeat(MAX_ELEMENTS);
        assert!(matches(&longest, &longest));
    }

    #[test]
    fn nothing_can_match_after_a_stop() {
        let wildcard = Wildcard::new("", &elements("*"), Arc::new(|| true));
        assert!(!wildcard.can_match(&wildcard.start()));
    }
}
