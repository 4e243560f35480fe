//! Names of metrics, tag keys and tag values.
//!
//! Names are text in APIs and bytes in storage: OpenTSDB encodes them as ISO-8859-1, one byte per character, so
//! `é` is `E9` rather than UTF-8's `C3 A9`. The bytes are a row key (family `id`) and a cell value (family
//! `name`) of table `tsdb-uid`.
//!
//! Names consist of `a-z A-Z 0-9 - _ . /`, all letters of ISO-8859-1, and the deployment's extra characters
//! (`tsd.core.tag.allow_specialchars`). OpenTSDB also accepts letters beyond U+00FF but stores each of them as
//! `?`, so that `日本` and `中国` become one name; this crate rejects them.
//!
//! Source: OpenTSDB 2.4, `Tags.validateString`, `UniqueId.toBytes`.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// A name that table `tsdb-uid` can hold: one or more ISO-8859-1 characters.
///
/// Ordered by bytes, as HBase orders rows. Clones share their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

/// The characters and the length that new names may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRules {
    /// Characters allowed in addition to the standard ones, in any order; empty by default. Characters above U+00FF
    /// cannot be stored and have no effect.
    pub extra_characters: String,
    /// The maximum length in bytes, which is also the number of characters.
    ///
    /// The default is 32766: HBase's row keys have at most 32767 bytes, and one is reserved for the zero byte
    /// that turns a key into its successor in a scan.
    pub max_length: usize,
}

/// The default of [`NameRules::max_length`].
pub const MAX_LENGTH_DEFAULT: usize = 32_766;

impl NameRules {
    /// Whether names may have a character, by its code point up to U+00FF.
    pub fn allows(&self, character: u8) -> bool {
        is_allowed(character, self)
    }
}

impl Default for NameRules {
    fn default() -> NameRules {
        NameRules {
            extra_characters: String::new(),
            max_length: MAX_LENGTH_DEFAULT,
        }
    }
}

/// The most characters of a rejected name that an error repeats.
const EXCERPT: usize = 256;

/// `text` for an error message, truncated with `…`. Otherwise a client that sends a megabyte as a name, or one
/// name for a thousand series, would get it back a thousand times.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name has no characters.
    #[error("name is empty")]
    Empty,
    /// A character that no name may contain.
    #[error(
        "name `{name}` has the illegal character `{character}` at position {position}, \
         allowed are letters, digits, `-`, `_`, `.`, `/` and what --extra-name-characters of the UID service adds"
    )]
    IllegalCharacter {
        /// The first illegal character.
        character: char,
        /// Its place, in characters, from 0.
        position: usize,
        /// The name, or its [`excerpt`].
        name: String,
    },
    /// A character above U+00FF, which one byte cannot represent.
    #[error(
        "name `{name}` has the character `{character}`, which is not in ISO-8859-1 \
         and cannot be stored"
    )]
    NotLatin1 {
        /// The first such character.
        character: char,
        /// The name, or its [`excerpt`].
        name: String,
    },
    /// More characters than a row key can have.
    #[error("name has {length} characters, at most {max} are allowed")]
    TooLong {
        /// Its length in characters.
        length: usize,
        /// [`NameRules::max_length`].
        max: usize,
    },
}

impl Name {
    /// Validates and encodes a name.
    ///
    /// # Errors
    ///
    /// [`NameError`] identifies the first invalid character. Permanent.
    pub fn parse(text: &str, rules: &NameRules) -> Result<Name, NameError> {
        // Nearly all names are ASCII, which is the same in UTF-8 and ISO-8859-1.
        if text.bytes().all(is_plain) {
            return Name::from_checked(text.as_bytes(), rules);
        }
        let mut bytes = Vec::with_capacity(text.len());
        for (position, character) in text.chars().enumerate() {
            let Ok(byte) = u8::try_from(u32::from(character)) else {
                return Err(NameError::NotLatin1 {
                    character,
                    name: excerpt(text),
                });
            };
            if !is_allowed(byte, rules) {
                let name = excerpt(text);
                return Err(NameError::IllegalCharacter {
                    character,
                    position,
                    name,
                });
            }
            bytes.push(byte);
        }
        Name::from_checked(&bytes, rules)
    }

    /// Validates a name encoded as ISO-8859-1, as in telnet lines, where each byte is a character.
    ///
    /// # Errors
    ///
    /// As [`Name::parse`], except [`NameError::NotLatin1`].
    pub fn parse_latin1(bytes: &[u8], rules: &NameRules) -> Result<Name, NameError> {
        if let Some(position) = bytes.iter().position(|byte| !is_allowed(*byte, rules)) {
            let character = bytes.get(position).map_or('\0', |byte| char::from(*byte));
            let name = excerpt(&latin1_text(bytes));
            return Err(NameError::IllegalCharacter {
                character,
                position,
                name,
            });
        }
        Name::from_checked(bytes, rules)
    }

    /// Accepts stored bytes without checking characters: OpenTSDB's command line stores any characters, and other
    /// deployments may allow more.
    ///
    /// # Errors
    ///
    /// [`NameError::Empty`] if there are no bytes.
    pub fn from_stored(bytes: &[u8]) -> Result<Name, NameError> {
        if bytes.is_empty() {
            Err(NameError::Empty)
        } else {
            Ok(Name(bytes.into()))
        }
    }

    /// The stored bytes: ISO-8859-1.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as text. The inverse of [`Name::parse`].
    pub fn to_text(&self) -> String {
        latin1_text(&self.0)
    }

    fn from_checked(bytes: &[u8], rules: &NameRules) -> Result<Name, NameError> {
        if bytes.len() > rules.max_length {
            return Err(NameError::TooLong {
                length: bytes.len(),
                max: rules.max_length,
            });
        }
        Name::from_stored(bytes)
    }
}

/// Allowed under all rules, and the same byte in ASCII, UTF-8 and ISO-8859-1.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/')
}

fn is_allowed(byte: u8, rules: &NameRules) -> bool {
    is_plain(byte) || is_latin1_letter(byte) || rules.extra_characters.contains(char::from(byte))
}

/// The letters of U+0080 to U+00FF: Java's `Character.isLetter`, Unicode categories L*. `×` (D7) and `÷` (F7)
/// are not letters.
fn is_latin1_letter(byte: u8) -> bool {
    matches!(byte, 0xaa | 0xb5 | 0xba | 0xc0..=0xd6 | 0xd8..=0xf6 | 0xf8..=0xff)
}

fn latin1_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_ascii() {
            return f.pad(&String::from_utf8_lossy(&self.0));
        }
        f.pad(&self.to_text())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({:?})", self.to_text())
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Allows looking up maps keyed by names by bytes.
impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(test)]
mod tests;
