//! Declarations of series, packed. They are kept to resolve the series again later.

use hashbrown::HashMap;

/// The declarations of all series, by number.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    /// The symbols of all series, concatenated: metric, then key and value of each tag.
    symbols: Vec<u32>,
    ends: Vec<usize>,
    /// Declarations without symbols, by number.
    others: HashMap<u32, Other>,
}

#[derive(Debug)]
enum Other {
    Tsuid(Box<[u8]>),
    TooManyTags(usize),
}

/// The declaration of one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declaration<'a> {
    /// By symbols; tags as alternating keys and values.
    Symbols {
        /// The number of the metric's symbol.
        metric: u32,
        /// Numbers of symbols: key and value of each tag.
        tags: &'a [u32],
    },
    /// By TSUID.
    Tsuid(&'a [u8]),
    /// With more tags than are allowed, so that they are not kept.
    TooManyTags(usize),
}

impl Declarations {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in memory, about.
    pub(super) fn byte_len(&self) -> usize {
        self.symbols.len() * size_of::<u32>() + self.ends.len() * size_of::<usize>()
    }

    pub(super) fn push(&mut self, declaration: Declaration<'_>) {
        let other = match declaration {
            Declaration::Symbols { metric, tags } => {
                self.symbols.push(metric);
                self.symbols.extend_from_slice(tags);
                None
            }
            Declaration::Tsuid(tsuid) => Some(Other::Tsuid(tsuid.into())),
            Declaration::TooManyTags(count) => Some(Other::TooManyTags(count)),
        };
        // The limit of series is far below 32 bits.
        if let (Some(other), Ok(number)) = (other, u32::try_from(self.ends.len())) {
            self.others.insert(number, other);
        }
        self.ends.push(self.symbols.len());
    }

    /// The declaration of a number below [`Declarations::len`].
    pub(super) fn get(&self, number: u32) -> Option<Declaration<'_>> {
        if let Some(other) = self.others.get(&number) {
            return Some(match other {
                Other::Tsuid(tsuid) => Declaration::Tsuid(tsuid),
                Other::TooManyTags(count) => Declaration::TooManyTags(*count),
            });
        }
        let range = super::range(&self.ends, number)?;
        let (metric, tags) = self.symbols.get(range)?.split_first()?;
        Some(Declaration::Symbols {
            metric: *metric,
            tags,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_declarations_by_number() {
        let all = [
            Declaration::Symbols {
                metric: 7,
                tags: &[1, 2, 3, 4],
            },
            Declaration::Tsuid(&[0, 0, 1]),
            Declaration::Symbols { metric: 0, tags: &[] },
            Declaration::TooManyTags(99),
            Declaration::Symbols {
                metric: 7,
                tags: &[1, 2],
            },
        ];
        let mut declarations = Declarations::default();
        all.iter().for_each(|declaration| declarations.push(*declaration));
        let read: Vec<_> = (0..5).map(|number| declarations.get(number).unwrap()).collect();
        assert_eq!(read, all);
        assert_eq!((declarations.len(), declarations.get(5)), (5, None));
    }
}
