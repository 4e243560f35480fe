//! Series as they were declared, packed: to resolve them, and later to resolve them again.

use hashbrown::HashMap;

/// Declarations, in their order.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    /// Symbols of one series behind those of the other: metric, then key and value of each tag.
    symbols: Vec<u32>,
    ends: Vec<usize>,
    /// Those that are not made of symbols, by their number.
    others: HashMap<u32, Other>,
}

#[derive(Debug)]
enum Other {
    Tsuid(Box<[u8]>),
    TooManyTags(usize),
}

/// A series as it was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared<'a> {
    /// By symbols; tags as keys and values in turn.
    Symbols { metric: u32, tags: &'a [u32] },
    /// By its TSUID.
    Tsuid(&'a [u8]),
    /// With so many tags that they were not even kept.
    TooManyTags(usize),
}

impl Declarations {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in memory, about.
    pub(super) fn byte_len(&self) -> usize {
        self.symbols.len() * size_of::<u32>() + self.ends.len() * size_of::<usize>()
    }

    /// Adds one.
    pub(super) fn push(&mut self, declared: Declared<'_>) {
        let other = match declared {
            Declared::Symbols { metric, tags } => {
                self.symbols.push(metric);
                self.symbols.extend_from_slice(tags);
                None
            }
            Declared::Tsuid(tsuid) => Some(Other::Tsuid(tsuid.into())),
            Declared::TooManyTags(count) => Some(Other::TooManyTags(count)),
        };
        // The limit of series is far below 32 bits.
        if let (Some(other), Ok(number)) = (other, u32::try_from(self.ends.len())) {
            self.others.insert(number, other);
        }
        self.ends.push(self.symbols.len());
    }

    /// The declaration of a number below [`Declarations::len`].
    pub(super) fn get(&self, number: u32) -> Option<Declared<'_>> {
        if let Some(other) = self.others.get(&number) {
            return Some(match other {
                Other::Tsuid(tsuid) => Declared::Tsuid(tsuid),
                Other::TooManyTags(count) => Declared::TooManyTags(*count),
            });
        }
        let range = super::tables::range(&self.ends, number)?;
        let (metric, tags) = self.symbols.get(range)?.split_first()?;
        Some(Declared::Symbols {
            metric: *metric,
            tags,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read_back_in_their_order() {
        let all = [
            Declared::Symbols {
                metric: 7,
                tags: &[1, 2, 3, 4],
            },
            Declared::Tsuid(&[0, 0, 1]),
            Declared::Symbols { metric: 0, tags: &[] },
            Declared::TooManyTags(99),
            Declared::Symbols {
                metric: 7,
                tags: &[1, 2],
            },
        ];
        let mut declarations = Declarations::default();
        all.iter().for_each(|declared| declarations.push(*declared));
        let read: Vec<_> = (0..5).map(|number| declarations.get(number).unwrap()).collect();
        assert_eq!(read, all);
        assert_eq!((declarations.len(), declarations.get(5)), (5, None));
    }
}
