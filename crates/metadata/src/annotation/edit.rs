//! Changes of an annotation.

use oxtsdb_row_store::{CellAddress, Condition};
use oxtsdb_schema::annotation::Custom;
use oxtsdb_schema::{Annotation, stored_json};

use super::{
    AnnotationError, AnnotationKey, Annotations, FAMILY, FoundCell, MAX_STORED_BYTES, StoredAnnotation,
};

/// How often a change is attempted while other writers change the same annotation.
const ATTEMPTS: usize = 16;

/// New values of fields; `None` keeps the stored one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// As [`Annotation::end_time`].
    pub end_time: Option<i64>,
    /// One line of text; `Some(None)` stores JSON's null.
    pub description: Option<Option<String>>,
    /// Longer text; as `description`.
    pub notes: Option<Option<String>>,
    /// All further fields, which replace the stored ones; as `description`.
    pub custom: Option<Option<Custom>>,
}

/// The condition under which a change is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Anything.
    None,
    /// The version with this etag; empty: no annotation.
    Etag(String),
}

impl Edit {
    /// Sets the fields that a document gives a value other than the default: OpenTSDB's POST.
    pub fn merging(sent: Annotation) -> Edit {
        let text = |text: Option<String>| (text.as_deref() != Some("")).then_some(text);
        Edit {
            end_time: Some(sent.end_time).filter(|end_time| *end_time != 0),
            description: text(sent.description),
            notes: text(sent.notes),
            custom: sent.custom.map(Some),
        }
    }

    /// Sets all fields, unless the document gives none a value: OpenTSDB's PUT.
    pub fn replacing(sent: Annotation) -> Edit {
        if Edit::merging(sent.clone()).is_empty() {
            return Edit::default();
        }
        Edit {
            end_time: Some(sent.end_time),
            description: Some(sent.description),
            notes: Some(sent.notes),
            custom: Some(sent.custom),
        }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Edit::default()
    }

    /// Bytes of its texts: an annotation is stored in more, whatever it was before.
    fn text_bytes(&self) -> usize {
        let text = |text: &Option<Option<String>>| text.iter().flatten().map(String::len).sum::<usize>();
        let custom = self.custom.iter().flatten().flatten();
        let custom = custom.map(|(key, value)| key.len() + value.as_ref().map_or(0, String::len));
        text(&self.description) + text(&self.notes) + custom.sum::<usize>()
    }

    /// Changes an annotation.
    fn apply_to(&self, annotation: &mut Annotation) {
        fn set<T: Clone>(field: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                field.clone_from(value);
            }
        }
        set(&mut annotation.end_time, self.end_time.as_ref());
        set(&mut annotation.description, self.description.as_ref());
        set(&mut annotation.notes, self.notes.as_ref());
        set(&mut annotation.custom, self.custom.as_ref());
    }
}

impl Annotations {
    /// Creates an annotation, or changes the stored one, and returns it as stored. Of the stored start time and that
    /// of the key the smaller number is kept.
    ///
    /// # Errors
    ///
    /// [`AnnotationError::EtagMismatch`], [`AnnotationError::Contended`], [`AnnotationError::TooLarge`], and errors of
    /// [`Annotations::get`]. After an error of the store the change may have been applied.
    pub async fn put(
        &self,
        key: &AnnotationKey,
        edit: &Edit,
        precondition: &Precondition,
    ) -> Result<StoredAnnotation, AnnotationError> {
        // Before megabytes are encoded, which would keep this thread from other calls.
        check_length(edit.text_bytes())?;
        // The last attempt that found another cell: HBase's Thrift server repeats a put that it has executed.
        let mut attempted: Option<(StoredAnnotation, Vec<u8>)> = None;
        for _ in 0..ATTEMPTS {
            let current = self.find(key).await?;
            if let Some((stored, value)) = attempted
                && current.as_ref().is_some_and(|cell| cell.value == value)
            {
                self.changes.announce(|| key.subject());
                return Ok(stored);
            }
            check(precondition, current.as_ref())?;
            let annotation = self.edited(key, edit, current.as_ref())?;
            let value = annotation.to_stored();
            check_length(value.len())?;
            let is_unchanged = current.as_ref().is_some_and(|cell| cell.value == value);
            let etag = stored_json::etag(Some(&value));
            let stored = StoredAnnotation { annotation, etag };
            if is_unchanged || self.replace(key, current, &value).await? {
                self.changes.announce(|| key.subject());
                return Ok(stored);
            }
            attempted = Some((stored, value));
        }
        Err(AnnotationError::Contended { attempts: ATTEMPTS })
    }

    /// The annotation after an edit.
    fn edited(
        &self,
        key: &AnnotationKey,
        edit: &Edit,
        current: Option<&FoundCell>,
    ) -> Result<Annotation, AnnotationError> {
        let mut annotation = match current {
            Some(cell) => self.decode(key, cell)?,
            None => Annotation {
                description: Some(String::new()),
                notes: Some(String::new()),
                ..Annotation::default()
            },
        };
        key.tsuid().clone_into(&mut annotation.tsuid);
        let start_time = key.start_time();
        if annotation.start_time < 1 || start_time < annotation.start_time {
            annotation.start_time = start_time;
        }
        edit.apply_to(&mut annotation);
        Ok(annotation)
    }

    /// Puts a value if the cell is unchanged. The series is in the index before.
    async fn replace(
        &self,
        key: &AnnotationKey,
        current: Option<FoundCell>,
        value: &[u8],
    ) -> Result<bool, AnnotationError> {
        if let (Some(index), Some(series)) = (&self.index, key.series()) {
            index.add_annotated(series.as_bytes()).await?;
        }
        let (qualifier, expected) = match current {
            Some(cell) => (cell.qualifier, Some(cell.value)),
            None => (key.qualifiers()[0].clone(), None),
        };
        let condition = Condition {
            cell: CellAddress::new(key.row(), FAMILY, qualifier.to_vec()),
            expected,
        };
        Ok(self.store.check_and_put(&self.table, &condition, value).await?)
    }
}

fn check_length(bytes: usize) -> Result<(), AnnotationError> {
    let most = MAX_STORED_BYTES;
    match bytes > most {
        true => Err(AnnotationError::TooLarge { bytes, most }),
        false => Ok(()),
    }
}

/// Checks a precondition against the stored cell.
pub(super) fn check(precondition: &Precondition, current: Option<&FoundCell>) -> Result<(), AnnotationError> {
    let Precondition::Etag(expected) = precondition else {
        return Ok(());
    };
    let stored = stored_json::etag(current.map(|cell| cell.value.as_slice()));
    if *expected == stored {
        return Ok(());
    }
    let expected = expected.clone();
    Err(AnnotationError::EtagMismatch { expected, stored })
}
