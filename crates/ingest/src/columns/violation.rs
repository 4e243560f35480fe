//! Columns that break the protocol.

/// Error of columns that are rejected as a whole: nothing of them is stored, and a stream ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// New symbols do not continue the symbol table.
    #[error(
        "is {first}, expected {expected}: numbers continue through all frames of a stream; declare each symbol \
         once, first_symbol is the number of symbols declared before"
    )]
    SymbolsOutOfSequence {
        /// The number that the client gives the first new symbol.
        first: u32,
        /// The number of symbols declared before.
        expected: usize,
    },
    /// New series do not continue the series table.
    #[error(
        "is {first}, expected {expected}: numbers continue through all frames of a stream; declare each series \
         once, first_series is the number of series declared before"
    )]
    SeriesOutOfSequence {
        /// The number that the client gives the first new series.
        first: u32,
        /// The number of series declared before.
        expected: usize,
    },
    /// A declaration refers to a symbol that is not declared.
    #[error("refers to symbol {number}, {declared} are declared")]
    UndeclaredSymbol {
        /// The index of the declaration.
        declaration: usize,
        /// The part of the declaration that refers to the symbol.
        symbol_use: SymbolUse,
        /// The number of the symbol.
        number: u32,
        /// The number of declared symbols; valid numbers are smaller.
        declared: usize,
    },
    /// A block refers to a series that is not declared.
    #[error("refers to series {number}, {declared} are declared")]
    UndeclaredSeries {
        /// The index of the block.
        block: usize,
        /// The number of the series.
        number: u32,
        /// The number of declared series; valid numbers are smaller.
        declared: usize,
    },
    /// A declaration has a tag key without a value.
    #[error("has {count} elements, expected pairs of key and value")]
    OddTagSymbols {
        /// The index of the declaration.
        declaration: usize,
        /// The number of tag symbols.
        count: usize,
    },
    /// A stream or request declares more series than it may.
    #[error("declares more than {max} series")]
    TooManySeries {
        /// The limit, over all frames of a stream.
        max: usize,
    },
    /// All symbols of a stream or request together are longer than allowed.
    #[error("declares symbols of more than {max} bytes")]
    TooManySymbolBytes {
        /// The index of the first symbol that does not fit.
        symbol: usize,
        /// The limit in bytes, over all frames of a stream.
        max: usize,
    },
}

/// The use of a symbol in a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolUse {
    /// The metric.
    Metric,
    /// A tag key or a tag value.
    Tag,
}
