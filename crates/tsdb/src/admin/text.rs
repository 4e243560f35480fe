//! A parser of OpenMetrics text 1.0.
//!
//! ```text
//!   # TYPE oxtsdb_points_added counter
//!   # HELP oxtsdb_points_added Points stored
//!   oxtsdb_points_added_total{protocol="grpc"} 330
//!   # EOF
//! ```
//!
//! It is strict: text that was cut off, or that another format has, is an error with its line, because figures of
//! a part of the metrics would look right. Units, timestamps and exemplars are checked, and dropped.
//!
//! Source: OpenMetrics 1.0, "Text format".

use std::collections::{HashMap, HashSet};

use thiserror::Error;

use super::sample::{LabelSet, Sample};

/// How much of a line an error shows.
const SHOWN_CHARS: usize = 80;

/// A line that is not OpenMetrics.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {reason}: `{text}`")]
pub(crate) struct TextError {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) reason: &'static str,
    /// The beginning of the line.
    pub(crate) text: String,
}

/// The types of metrics, each with the suffixes that its samples have.
const TYPES: [(&str, &[&str]); 8] = [
    ("counter", &["_total", "_created"]),
    ("gauge", &[""]),
    ("histogram", &["_bucket", "_sum", "_count", "_created"]),
    ("gaugehistogram", &["_bucket", "_gsum", "_gcount"]),
    ("summary", &["", "_sum", "_count", "_created"]),
    ("info", &["_info"]),
    ("stateset", &[""]),
    ("unknown", &[""]),
];

/// Parses a text to samples by their names.
///
/// # Errors
///
/// If a line has another form, has a value that its type cannot have, or comes twice, or the end is missing.
pub(super) fn parse(text: &str) -> Result<HashMap<String, Vec<Sample>>, TextError> {
    let mut parser = Parser::default();
    let mut last = (1, "");
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let number = index + 1;
        let failed = |reason| TextError {
            line: number,
            reason,
            text: line.trim_end().chars().take(SHOWN_CHARS).collect(),
        };
        last = (number, line);
        if parser.has_ended {
            return Err(failed("text behind `# EOF`"));
        }
        // The last line may have no line feed.
        let content = line.strip_suffix('\n').unwrap_or(line);
        parser.line(content).map_err(failed)?;
    }
    match parser.has_ended {
        true => Ok(parser.samples),
        false => Err(TextError {
            line: last.0,
            reason: "the text ends without `# EOF`",
            text: last.1.trim_end().chars().take(SHOWN_CHARS).collect(),
        }),
    }
}

#[derive(Default)]
struct Parser {
    /// Types by the names of families.
    types: HashMap<String, &'static str>,
    samples: HashMap<String, Vec<Sample>>,
    /// Names and labels of samples.
    seen: HashSet<(String, LabelSet)>,
    has_ended: bool,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        match line.strip_prefix('#') {
            Some(comment) => self.comment(comment),
            None => self.sample(line),
        }
    }

    fn comment(&mut self, comment: &str) -> Result<(), &'static str> {
        if comment == " EOF" {
            self.has_ended = true;
            return Ok(());
        }
        let mut words = comment.splitn(4, ' ');
        let words = [words.next(), words.next(), words.next(), words.next()];
        match words {
            [Some(""), Some("TYPE"), Some(name), Some(kind)] if is_name(name) => {
                let known = TYPES.iter().find(|(known, _)| *known == kind);
                let (kind, _) = known.ok_or("unknown type of a metric")?;
                match self.types.insert(name.to_owned(), kind) {
                    None => Ok(()),
                    Some(_) => Err("the type comes twice"),
                }
            }
            [Some(""), Some("HELP" | "UNIT"), Some(name), Some(_)] if is_name(name) => Ok(()),
            _ => Err("a comment is `# TYPE`, `# HELP`, `# UNIT` or `# EOF`"),
        }
    }

    fn sample(&mut self, line: &str) -> Result<(), &'static str> {
        let end = line.find(['{', ' ']).ok_or("a sample is `NAME{LABELS} VALUE`")?;
        let (name, rest) = line.split_at(end);
        if !is_name(name) {
            return Err("not a name of a metric");
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let rest = rest
            .strip_prefix(' ')
            .ok_or("expected a space before the value")?;
        let (numbers, exemplar) = match rest.split_once(" # ") {
            Some((numbers, exemplar)) => (numbers, Some(exemplar)),
            None => (rest, None),
        };
        let value = numbers_of(numbers)?;
        if let Some(exemplar) = exemplar {
            let labelled = exemplar
                .strip_prefix('{')
                .ok_or("an exemplar begins with its labels")?;
            let (_, rest) = self::labels(labelled)?;
            numbers_of(rest.strip_prefix(' ').ok_or("an exemplar has a value")?)?;
        }
        self.check_type(name, &labels, value)?;
        if !self.seen.insert((name.to_owned(), labels.clone())) {
            return Err("the sample comes twice");
        }
        let samples = self.samples.entry(name.to_owned()).or_default();
        samples.push(Sample { labels, value });
        Ok(())
    }

    /// A sample belongs to a family with a type and has the suffix of the type, and a count is not negative.
    fn check_type(&self, name: &str, labels: &[(String, String)], value: f64) -> Result<(), &'static str> {
        let of_family = TYPES.iter().find_map(|(kind, suffixes)| {
            let mut suffixes = suffixes.iter();
            let suffix = suffixes.find(|suffix| {
                let family = name.strip_suffix(**suffix);
                family.is_some_and(|family| self.types.get(family) == Some(kind))
            });
            suffix.map(|suffix| (*kind, *suffix))
        });
        let (_, suffix) = of_family.ok_or("no `# TYPE` before the sample, or not with this suffix")?;
        if suffix == "_bucket" {
            let bound = labels.iter().find(|(name, _)| name == "le");
            let (_, bound) = bound.ok_or("a bucket has the label `le`")?;
            number(bound)
                .filter(|bound| !bound.is_nan())
                .ok_or("`le` is not a number")?;
        }
        let counts = matches!(suffix, "_total" | "_bucket" | "_count" | "_gcount");
        match counts && (value < 0.0 || value.is_nan()) {
            true => Err("a count is not negative"),
            false => Ok(()),
        }
    }
}

/// The value of a sample, which a timestamp may follow.
fn numbers_of(text: &str) -> Result<f64, &'static str> {
    let (value, timestamp) = match text.split_once(' ') {
        Some((value, timestamp)) => (value, Some(timestamp)),
        None => (text, None),
    };
    let timestamp = timestamp.map(|timestamp| number(timestamp).filter(|number| number.is_finite()));
    if timestamp == Some(None) {
        return Err("not a timestamp");
    }
    number(value).ok_or("the value is not a number")
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        // Rust's parser knows more words than the format, such as `infinity`.
        _ if text.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')) => None,
        _ => text.parse().ok(),
    }
}

/// Labels up to `}`, in the order of their names, and what follows.
fn labels(mut rest: &str) -> Result<(LabelSet, &str), &'static str> {
    let mut labels = LabelSet::new();
    if let Some(rest) = rest.strip_prefix('}') {
        return Ok((labels, rest));
    }
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label is `NAME=\"VALUE\"`")?;
        if !is_name(name) || name.contains(':') {
            return Err("not a name of a label");
        }
        let (value, after) = label_value(after)?;
        labels.push((name.to_owned(), value));
        if let Some(after) = after.strip_prefix('}') {
            labels.sort();
            return match labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                true => Err("a label comes twice"),
                false => Ok((labels, after)),
            };
        }
        rest = after
            .strip_prefix(',')
            .ok_or("expected `,` or `}` behind a label")?;
    }
}

/// A value up to its closing quote, and what follows.
fn label_value(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                _ => return Err("unknown escape in a label"),
            },
            other => value.push(other),
        }
    }
    Err("a label is `NAME=\"VALUE\"`")
}

fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':');
    let mut bytes = text.bytes();
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = concat!(
        "# HELP a Help with words\n# TYPE a counter\na_total{x=\"1\",y=\"\"} 2\na_total{y=\"q\\\"\\\\\\n\",x=\"1\"} 3.5e1 1.5\n",
        "# TYPE b gauge\n# UNIT b bytes\nb -1.5\n",
        "# TYPE c histogram\nc_bucket{le=\"0.5\"} 1 # {trace=\"x\"} 0.1 1.0\nc_bucket{le=\"+Inf\"} 2\nc_sum 1\nc_count 2\n",
        "# TYPE d info\nd_info{version=\"1\"} 1\n# TYPE e gauge\ne{} NaN\n# EOF\n",
    );

    #[test]
    fn parses_names_labels_and_values() {
        let samples = parse(GOOD).unwrap();
        let a = &samples["a_total"];
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(a[0].labels, [label("x", "1"), label("y", "")]);
        // In the order of names, whatever the order of the text is.
        assert_eq!(a[1].labels, [label("x", "1"), label("y", "q\"\\\n")]);
        assert_eq!((a[0].value, a[1].value), (2.0, 35.0));
        assert_eq!(samples["b"][0].value, -1.5);
        assert_eq!(samples["c_bucket"].len(), 2);
        assert!(samples["e"][0].value.is_nan());
        assert!(parse("# EOF").unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_line_and_the_reason() {
        for (text, line, reason) in [
            ("", 1, "without `# EOF`"),
            ("# TYPE a gauge\na 1\n", 2, "without `# EOF`"),
            ("# EOF\n\n", 2, "behind `# EOF`"),
            ("<html>\n", 1, "NAME{LABELS}"),
            ("{\"error\":1}\n# EOF\n", 1, "not a name of a metric"),
            ("a 1\n# EOF\n", 1, "no `# TYPE`"),
            ("# TYPE a counter\na 1\n# EOF\n", 2, "no `# TYPE`"),
            ("# TYPE a counter\na_total -1\n# EOF\n", 2, "negative"),
            ("# TYPE a gauge\na one\n# EOF\n", 2, "not a number"),
            ("# TYPE a gauge\na infinity\n# EOF\n", 2, "not a number"),
            ("# TYPE a gauge\na 1 x\n# EOF\n", 2, "not a timestamp"),
            ("# TYPE a gauge\na  1\n# EOF\n", 2, "not a number"),
            ("# TYPE a gauge\na{x=\"1} 1\n# EOF\n", 2, "NAME=\"VALUE\""),
            ("# TYPE a gauge\na{x=\"\\t\"} 1\n# EOF\n", 2, "escape"),
            ("# TYPE a gauge\na{x=\"1\" y=\"2\"} 1\n# EOF\n", 2, "expected `,`"),
            (
                "# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n# EOF\n",
                2,
                "label comes twice",
            ),
            ("# TYPE a gauge\na{1=\"1\"} 1\n# EOF\n", 2, "name of a label"),
            ("# TYPE a gauge\na 1\na 1\n# EOF\n", 3, "sample comes twice"),
            ("# TYPE a gauge\n# TYPE a gauge\n# EOF\n", 2, "type comes twice"),
            ("# TYPE a untyped\n# EOF\n", 1, "unknown type"),
            ("# comment\n# EOF\n", 1, "a comment is"),
            ("# TYPE a histogram\na_bucket 1\n# EOF\n", 2, "`le`"),
            ("# TYPE a gauge\r\na 1\r\n# EOF\r\n", 1, "unknown type"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.reason.contains(reason), "{text:?}: {error}");
        }
        let long = format!("{}\n", "x".repeat(1000));
        assert!(parse(&long).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn a_text_cut_anywhere_is_an_error() {
        for end in (0..GOOD.len() - "\n".len()).filter(|end| GOOD.is_char_boundary(*end)) {
            assert!(parse(&GOOD[..end]).is_err(), "{:?}", &GOOD[..end]);
        }
    }
}
