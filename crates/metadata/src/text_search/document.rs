//! A document in the index: fields and their text.
//!
//! Fields are named as in OpenTSDB's JSON, without regard to case and `_`: `displayName`, `custom.owner`. A series has
//! its names as `metric` and `metric.name`, its tags as `tags.name` (keys and values), and the value of each tag as a
//! field with the name of its key: `host:web01`.

use oxtsdb_schema::ts_meta::TsMeta;
use oxtsdb_schema::{Annotation, Tsuid, UidMeta, uid_meta};

use super::Record;
use crate::lookup::SeriesNames;
use crate::meta::changes::Subject;

/// The most bytes of text of a document that are indexed.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// A document of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) subject: Subject,
    /// Field and text, at most [`MAX_TEXT_BYTES`] together.
    pub(super) fields: Vec<(String, String)>,
}

impl Document {
    /// The document of a record.
    pub(super) fn from_record(subject: Subject, record: &Record) -> Self {
        let mut fields = Fields::default();
        match record {
            Record::Uid(meta) => fields.uid(meta),
            Record::Series { tsuid, names, meta } => {
                fields.names(tsuid, names);
                if let Some(document) = &meta.document {
                    fields.series(document);
                }
            }
            Record::Annotation(stored) => fields.annotation(&stored.annotation),
        }
        Self {
            subject,
            fields: fields.0,
        }
    }
}

/// The name of a field as the index has it.
pub(super) fn field_name(name: &str) -> String {
    name.chars()
        .filter(|char| *char != '_')
        .flat_map(char::to_lowercase)
        .collect()
}

#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl Fields {
    fn add(&mut self, name: &str, text: &str) {
        let used: usize = self.0.iter().map(|(name, text)| name.len() + text.len()).sum();
        let most = MAX_TEXT_BYTES.saturating_sub(used + name.len());
        let end = (0..=most.min(text.len())).rfind(|end| text.is_char_boundary(*end));
        let text = end.and_then(|end| text.get(..end)).unwrap_or_default();
        if !text.is_empty() {
            self.0.push((field_name(name), text.to_owned()));
        }
    }

    fn custom<'f>(&mut self, fields: impl Iterator<Item = (&'f str, Option<&'f str>)>) {
        for (name, value) in fields {
            self.add(&format!("custom.{name}"), value.unwrap_or_default());
        }
    }

    fn uid(&mut self, meta: &UidMeta) {
        self.add("uid", &meta.uid.to_string());
        self.add("type", uid_meta::kind_name(meta.kind));
        self.add("name", &meta.name);
        self.add("displayName", &meta.display_name);
        self.add("description", &meta.description);
        self.add("notes", &meta.notes);
        let custom = meta.custom.iter().flatten();
        self.custom(custom.map(|(name, value)| (name.as_str(), value.as_deref())));
    }

    fn names(&mut self, tsuid: &Tsuid, names: &SeriesNames) {
        self.add("tsuid", &tsuid.to_string());
        self.add("metric", &names.metric);
        self.add("metric.name", &names.metric);
        for (key, value) in &names.tags {
            self.add("tags.name", key);
            self.add("tags.name", value);
            self.add(key, value);
        }
    }

    fn series(&mut self, document: &TsMeta) {
        self.add("displayName", &document.display_name);
        self.add("description", &document.description);
        self.add("notes", &document.notes);
        self.add("units", &document.units);
        self.add("dataType", &document.data_type);
        self.custom(document.custom.iter().flat_map(|custom| custom.iter()));
    }

    fn annotation(&mut self, annotation: &Annotation) {
        self.add("tsuid", &annotation.tsuid);
        self.add("startTime", &annotation.start_time.to_string());
        self.add("endTime", &annotation.end_time.to_string());
        self.add(
            "description",
            annotation.description.as_deref().unwrap_or_default(),
        );
        self.add("notes", annotation.notes.as_deref().unwrap_or_default());
        let custom = annotation.custom.iter().flatten();
        self.custom(custom.map(|(name, value)| (name.as_str(), value.as_deref())));
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::annotation::Custom;

    use super::*;
    use crate::annotation::StoredAnnotation;

    #[test]
    fn an_annotation_has_its_fields_up_to_the_limit() {
        let annotation = Annotation {
            start_time: 1_369_141_261,
            description: Some("Disk_full".to_owned()),
            notes: Some("é".repeat(MAX_TEXT_BYTES)),
            custom: Some(Custom::from([("Owner_Team".to_owned(), Some("ops".to_owned()))])),
            ..Annotation::default()
        };
        let etag = String::new();
        let record = Record::Annotation(StoredAnnotation { annotation, etag });
        let document = Document::from_record(Subject::Annotation(None, 0), &record);
        let names: Vec<&str> = document.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["starttime", "endtime", "description", "notes"]);
        let bytes: usize = document
            .fields
            .iter()
            .map(|(name, text)| name.len() + text.len())
            .sum();
        assert!((MAX_TEXT_BYTES - 1..=MAX_TEXT_BYTES).contains(&bytes), "{bytes}");
    }
}
