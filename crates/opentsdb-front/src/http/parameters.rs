//! The query string: `start=1h-ago&m=sum:sys.cpu.user&ms`.
//!
//! Flags are true by mere presence, even as `ms=false`. Of a repeated parameter the last counts,
//! except for the repeatable ones (`m`, `tsuids`).
//!
//! Source: OpenTSDB 2.4, `AbstractHttpQuery.getQueryString` (Netty's `QueryStringDecoder`).

use std::borrow::Cow;

/// Decoded parameters, in the order of the URI.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    pairs: Vec<(String, String)>,
}

impl Parameters {
    /// Decodes the query string behind the `?`. Invalid escapes stay unchanged, bytes that are no UTF-8
    /// become U+FFFD.
    pub(crate) fn parse(query: Option<&str>) -> Parameters {
        let pairs = query
            .unwrap_or_default()
            .split(['&', ';'])
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (unescape(name).into_owned(), unescape(value).into_owned())
            })
            .collect();
        Parameters { pairs }
    }

    /// The last value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }

    /// All values of a parameter.
    pub(crate) fn all<'s>(&'s self, name: &str) -> impl Iterator<Item = &'s str> {
        self.pairs
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Names and values, in the order of the URI.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a parameter is present, with or without a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// `%41` and `+`.
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = tail;
            }
            (other, _) => bytes.push(*other),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_parameters() {
        let parameters = Parameters::parse(Some("m=sum:a%7bhost=x%7D&m=b+c&ms&start=1h-ago&e=%C3%A9"));
        assert_eq!(parameters.all("m").collect::<Vec<_>>(), ["sum:a{host=x}", "b c"]);
        assert!(parameters.has("ms") && !parameters.has("arrays"));
        assert_eq!(parameters.get("start"), Some("1h-ago"));
        assert_eq!(parameters.get("m"), Some("b c"), "the last counts");
        assert_eq!(parameters.get("e"), Some("é"));
    }

    #[test]
    fn keeps_invalid_escapes() {
        let parameters = Parameters::parse(Some("a=%&b=%4&c=%zz&d=%ff&&=x"));
        assert_eq!(parameters.get("a"), Some("%"));
        assert_eq!(parameters.get("b"), Some("%4"));
        assert_eq!(parameters.get("c"), Some("%zz"));
        assert_eq!(parameters.get("d"), Some("\u{fffd}"));
        assert_eq!(parameters.get(""), Some("x"));
        assert!(Parameters::parse(None).get("a").is_none());
    }
}
