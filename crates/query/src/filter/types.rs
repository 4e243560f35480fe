//! The filter types.
//!
//! A row of the table defines a type completely: its name in OpenTSDB's languages and in the contract
//! (`FILTER_TYPE_` and the name in upper case), the form of its argument, how it matches, how it resolves to UIDs,
//! and what `/api/config/filters` returns about it. The languages, the front ends and the command line read the table.
//!
//! | argument | case | resolves to |
//! |---|---|---|
//! | alternatives | exact | the UIDs of the names |
//! | alternatives | ignored | a test of each name |
//! | pattern | exact or ignored | a test of each name, or none if it matches all |

use std::sync::Arc;

use super::error::FilterError;
use super::glob::Glob;
use super::pattern::Pattern;
use super::regexp::Regexp;

/// A type of tag filter.
#[derive(Debug)]
pub struct FilterType {
    name: &'static str,
    argument: Argument,
    /// Names are compared in lower case.
    pub(super) ignores_case: bool,
    /// Matches the values that the argument does not match.
    pub(super) excludes: bool,
    example: &'static str,
    description: &'static str,
}

/// The form of a filter type's argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    /// Names separated by pipes; in the contract a list.
    Alternatives,
    /// A text that this function parses.
    Pattern(fn(&str) -> Result<Arc<dyn Pattern>, FilterError>),
}

const GLOB: Argument = Argument::Pattern(|text| match Glob::parse(text) {
    Some(glob) => Ok(Arc::new(glob)),
    None => Err(FilterError::NoAsterisk),
});

const REGEXP: Argument = Argument::Pattern(|text| {
    if text.is_empty() {
        return Err(FilterError::EmptyFilter);
    }
    match Regexp::parse(text) {
        Ok(regexp) => Ok(Arc::new(regexp)),
        Err(reason) => Err(FilterError::Regexp {
            text: text.to_owned(),
            reason,
        }),
    }
});

static FILTER_TYPES: &[FilterType] = &[
    FilterType {
        name: "iliteral_or",
        argument: Argument::Alternatives,
        ignores_case: true,
        excludes: false,
        example: "WEB01|web02",
        description: "One of the values, in upper or lower case.",
    },
    FilterType {
        name: "iwildcard",
        argument: GLOB,
        ignores_case: true,
        excludes: false,
        example: "Web*",
        description: "As wildcard, in upper or lower case.",
    },
    FilterType {
        name: "literal_or",
        argument: Argument::Alternatives,
        ignores_case: false,
        excludes: false,
        example: "web01|web02",
        description: "One of the values, which must all be known.",
    },
    FilterType {
        name: "not_iliteral_or",
        argument: Argument::Alternatives,
        ignores_case: true,
        excludes: true,
        example: "WEB01",
        description: "Any value but these, in upper or lower case. The tag must be there.",
    },
    FilterType {
        name: "not_literal_or",
        argument: Argument::Alternatives,
        ignores_case: false,
        excludes: true,
        example: "web01",
        description: "Any value but these. The tag must be there.",
    },
    FilterType {
        name: "regexp",
        argument: REGEXP,
        ignores_case: false,
        excludes: false,
        example: "^web0[1-3]",
        description: "Values that contain a match of the regular expression.",
    },
    FilterType {
        name: "wildcard",
        argument: GLOB,
        ignores_case: false,
        excludes: false,
        example: "web*",
        description: "Values that match the pattern; * stands for any text.",
    },
];

impl FilterType {
    /// All types, by name.
    pub fn all() -> &'static [Self] {
        FILTER_TYPES
    }

    /// Finds a type by its name.
    ///
    /// # Errors
    ///
    /// [`FilterError::EmptyType`] and [`FilterError::UnknownType`].
    pub fn named(name: &str) -> Result<&'static Self, FilterError> {
        if name.is_empty() {
            return Err(FilterError::EmptyType);
        }
        let filter_type = FILTER_TYPES.iter().find(|filter_type| filter_type.name == name);
        filter_type.ok_or_else(|| FilterError::UnknownType {
            name: name.to_owned(),
        })
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether its argument is a list of names; otherwise it is a pattern.
    pub const fn takes_alternatives(&self) -> bool {
        matches!(self.argument, Argument::Alternatives)
    }

    /// An argument, as an example.
    pub const fn example(&self) -> &'static str {
        self.example
    }

    /// A description of the matching values, in a sentence.
    pub const fn description(&self) -> &'static str {
        self.description
    }

    pub(super) const fn argument(&self) -> Argument {
        self.argument
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_sorted_by_name() {
        assert!(FILTER_TYPES.is_sorted_by(|a, b| a.name < b.name));
    }
}
