//! The encoding of the record of damage.

use super::Gap;

pub(super) const LABEL: &str = "oxtsdb damage, format 2";

/// A damaged range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) gap: Gap,
    pub(super) file: String,
}

/// Encodes the record.
pub(super) fn encode(entries: &[Entry]) -> String {
    let digits = |key: &[u8]| match key {
        [] => "-".to_owned(),
        key => hex::encode(key),
    };
    let line = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    let mut text = format!("{LABEL}\n");
    for Entry { gap, file } in entries {
        let (start, stop) = (digits(&gap.start), digits(&gap.stop));
        let (file, detail) = (line(file), line(&gap.detail));
        text += &format!("{start}\t{stop}\t{file}\t{detail}\n");
    }
    text
}

/// Decodes the record; `None` if it is invalid.
pub(super) fn decode(text: &str) -> Option<Vec<Entry>> {
    let key = |digits: &str| {
        if digits == "-" {
            return Some(Vec::new());
        }
        hex::decode(digits).ok()
    };
    let mut lines = text.lines();
    if lines.next() != Some(LABEL) {
        return None;
    }
    lines
        .map(|line| {
            let mut fields = line.split('\t');
            let (start, stop) = (key(fields.next()?)?, key(fields.next()?)?);
            let file = fields.next()?.to_owned();
            let detail = fields.next()?.to_owned();
            let gap = Gap { start, stop, detail };
            Some(Entry { gap, file })
        })
        .collect()
}
