//! The symbol table.

use super::range;

/// Bytes that a symbol costs beside its text.
pub(super) const SYMBOL_BYTES: usize = size_of::<usize>();

/// Texts, concatenated.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    text: String,
    ends: Vec<usize>,
}

impl Symbols {
    pub(super) fn push(&mut self, symbol: &str) {
        self.text.push_str(symbol);
        self.ends.push(self.text.len());
    }

    pub(super) fn get(&self, number: u32) -> Option<&str> {
        self.text.get(range(&self.ends, number)?)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in memory.
    pub(super) fn byte_len(&self) -> usize {
        self.text.len() + self.ends.len() * SYMBOL_BYTES
    }
}
