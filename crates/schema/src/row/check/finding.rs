//! Types of findings.

/// A fault of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowFindingType {
    /// The row key is shorter than salt, metric and base time, or ends within a tag.
    BadKey,
    /// The row key of a metric has no tags. OpenTSDB's `fsck` terminates at such a row.
    NoTags,
    /// The base time is not the start of an hour. OpenTSDB's `fsck` does not look at it.
    BaseTime,
    /// The tags do not ascend by tag key, or a tag key occurs twice: the key belongs to another series than its tags.
    /// OpenTSDB's `fsck` does not look at it.
    TagOrder,
    /// The salt does not match the series: a read by key does not find the row. OpenTSDB's `fsck` does not look at it.
    WrongSalt,
    /// A UID of the row key has no name.
    UnknownUid,
    /// A qualifier of a length that no cell has.
    UnknownCell,
    /// A qualifier of 3 or 5 bytes of no known meaning.
    FutureCell,
    /// A value has a length that its type does not have.
    ValueLength,
    /// A single point with a 2-byte qualifier has a readable value of another length than its flags say. OpenTSDB's `fsck`
    /// removes it, although its readers return it.
    WrongFlags,
    /// A 4-byte float is stored in 8 bytes.
    FloatLength,
    /// The qualifiers of a compacted cell announce another number of bytes than its value has.
    CompactedLength,
    /// The last byte of a compacted cell is neither 0 nor 1.
    MetaByte,
    /// The last byte of a compacted cell is missing, or contradicts the resolutions of its points. No reader minds.
    MetaByteMismatch,
    /// The points of a compacted cell do not ascend.
    CompactedOrder,
    /// An appended cell ends within a point.
    AppendedCutOff,
    /// An instant is not of the row's hour. OpenTSDB's `fsck` does not look at it.
    BeyondHour,
    /// An instant has several different values.
    Duplicate,
    /// An instant has a value several times, as after an interrupted compaction. An error to OpenTSDB's `fsck`, though
    /// not to its readers.
    Redundant,
    /// An integer takes 8 bytes and fits into fewer.
    LongInteger,
    /// An annotation that is not the JSON that OpenTSDB reads.
    UnreadableAnnotation,
    /// A histogram without data.
    UnreadableHistogram,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingSeverity {
    /// Queries fail, or return what was not written.
    Error,
    /// Harmless to queries.
    Warning,
    /// Not a fault.
    Note,
}

impl RowFindingType {
    /// All types.
    pub const ALL: [RowFindingType; 22] = [
        Self::BadKey,
        Self::NoTags,
        Self::BaseTime,
        Self::TagOrder,
        Self::WrongSalt,
        Self::UnknownUid,
        Self::UnknownCell,
        Self::FutureCell,
        Self::ValueLength,
        Self::WrongFlags,
        Self::FloatLength,
        Self::CompactedLength,
        Self::MetaByte,
        Self::MetaByteMismatch,
        Self::CompactedOrder,
        Self::AppendedCutOff,
        Self::BeyondHour,
        Self::Duplicate,
        Self::Redundant,
        Self::LongInteger,
        Self::UnreadableAnnotation,
        Self::UnreadableHistogram,
    ];

    /// How bad it is.
    pub const fn severity(self) -> FindingSeverity {
        match self {
            Self::BadKey
            | Self::NoTags
            | Self::BaseTime
            | Self::TagOrder
            | Self::UnknownUid
            | Self::UnknownCell
            | Self::ValueLength
            | Self::WrongFlags
            | Self::FloatLength
            | Self::CompactedLength
            | Self::MetaByte
            | Self::CompactedOrder
            | Self::AppendedCutOff
            | Self::BeyondHour
            | Self::Duplicate
            | Self::UnreadableAnnotation
            | Self::UnreadableHistogram => FindingSeverity::Error,
            Self::WrongSalt | Self::MetaByteMismatch | Self::Redundant => FindingSeverity::Warning,
            Self::FutureCell | Self::LongInteger => FindingSeverity::Note,
        }
    }

    /// Whether it is repaired unless the rules say otherwise.
    ///
    /// Findings that may have their cause elsewhere are not repaired: the names of a row may be lost in table `tsdb-uid`, which
    /// another check restores, and the points of a row with another key may be needed.
    pub const fn is_repaired(self) -> bool {
        match self {
            Self::BadKey
            | Self::NoTags
            | Self::BaseTime
            | Self::UnknownCell
            | Self::ValueLength
            | Self::WrongFlags
            | Self::FloatLength
            | Self::CompactedLength
            | Self::MetaByte
            | Self::CompactedOrder
            | Self::AppendedCutOff
            | Self::BeyondHour
            | Self::Duplicate
            | Self::Redundant
            | Self::UnreadableAnnotation
            | Self::UnreadableHistogram => true,
            Self::TagOrder
            | Self::WrongSalt
            | Self::UnknownUid
            | Self::FutureCell
            | Self::MetaByteMismatch
            | Self::LongInteger => false,
        }
    }

    /// Whether it concerns the row key, so that its repair removes the whole row.
    pub const fn is_of_key(self) -> bool {
        matches!(
            self,
            Self::BadKey
                | Self::NoTags
                | Self::BaseTime
                | Self::TagOrder
                | Self::WrongSalt
                | Self::UnknownUid
        )
    }
}

/// Findings of one type in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFinding {
    /// The type.
    pub finding: RowFindingType,
    /// How often.
    pub count: u64,
    /// The qualifier of the first cell; empty for findings of the row key.
    pub qualifier: Vec<u8>,
    /// The first finding's fault, for people.
    pub message: String,
}
