//! Columns that break the protocol.

/// Why columns are rejected as a whole: nothing of them is stored, and a stream ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolViolation {
    /// New symbols do not continue the symbol table.
    #[error(
        "is {first}, expected {expected}: numbers continue through all frames of a stream; declare each symbol \
         once, first_symbol is the number of symbols declared before"
    )]
    SymbolsOutOfSequence { first: u32, expected: usize },
    /// New series do not continue the series table.
    #[error(
        "is {first}, expected {expected}: numbers continue through all frames of a stream; declare each series \
         once, first_series is the number of series declared before"
    )]
    SeriesOutOfSequence { first: u32, expected: usize },
    /// A declaration refers to a symbol that is not declared.
    #[error("refers to symbol {number}, {declared} are declared")]
    UndeclaredSymbol {
        /// The index of the declaration.
        declaration: usize,
        symbol_use: SymbolUse,
        number: u32,
        declared: usize,
    },
    /// A block refers to a series that is not declared.
    #[error("refers to series {number}, {declared} are declared")]
    UndeclaredSeries {
        /// The index of the block.
        block: usize,
        number: u32,
        declared: usize,
    },
    /// A declaration has a tag key without a value.
    #[error("has {count} elements, expected pairs of key and value")]
    OddTagSymbols {
        /// The index of the declaration.
        declaration: usize,
        count: usize,
    },
    #[error("declares more than {max} series")]
    TooManySeries { max: usize },
    #[error("declares symbols of more than {max} bytes")]
    TooManySymbolBytes {
        /// The index of the first symbol that does not fit.
        symbol: usize,
        max: usize,
    },
}

/// What a declaration uses a symbol for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolUse {
    Metric,
    Tag,
}
