//! The index: words of documents in a tantivy index.
//!
//! ```text
//!   key     of the subject, stored
//!   kind    of the subject
//!   pass    that has seen it last; the largest number for annotations of series, which passes do not read
//!   words   FIELD 00 WORD, for each word of each field, and once more without the field
//! ```
//!
//! The words of a text are its parts between white space in lower case (`sys.cpu.user`, `web-01`), and their
//! alphanumeric parts (`sys`, `cpu`, `user`), which have positions for phrases.

mod query;
mod wildcard;
mod words;

use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use oxtsdb_schema::{Tsuid, Uid, UidKind, UidWidths};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tantivy::collector::{Count, TopDocs};
use tantivy::directory::MmapDirectory;
use tantivy::query::{
    AllQuery, BooleanQuery, ConstScoreQuery, EmptyQuery, Occur, PhraseQuery, Query, RangeQuery, TermQuery,
};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions, Value as _,
};
use tantivy::tokenizer::{PreTokenizedString, Token};
use tantivy::{IndexReader, IndexWriter, ReloadPolicy, TantivyDocument, TantivyError, Term};

use self::query::Expression;
use self::wildcard::{Wildcard, WildcardQuery};
use super::document::Document;
use super::{Found, Kind, Search, SearchError, State};
use crate::meta::changes::Subject;

/// The part of the folder that the index uses; its number is the version of the layout.
const FOLDER: &str = "text-search-1";

/// Memory of documents that are not in a file yet.
const WRITER_BYTES: usize = 32 << 20;

/// The pass of what passes do not read.
const NO_PASS: u64 = u64::MAX;

/// An open index. All methods block.
pub(super) struct Index {
    fields: Fields,
    writer: Mutex<IndexWriter>,
    reader: IndexReader,
    identity: String,
    widths: UidWidths,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Fields {
    key: Field,
    kind: Field,
    pass: Field,
    words: Field,
}

/// The payload that is stored with each commit.
#[derive(Serialize, Deserialize)]
struct Payload {
    identity: String,
    state: State,
}

impl Index {
    /// Opens the index in a folder. One that is missing, damaged or of other tables is made anew.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, or another process uses it.
    pub(super) fn open(
        folder: &Path,
        identity: &str,
        widths: UidWidths,
    ) -> Result<(Self, State), SearchError> {
        let path = folder.join(FOLDER);
        let create = |path: &Path| std::fs::create_dir_all(path).map_err(|error| failed(&error));
        create(&path)?;
        match Self::open_at(&path, identity, widths) {
            Ok(opened) => Ok(opened),
            Err(error @ TantivyError::LockFailure(..)) => Err(failed(&error)),
            Err(error) => {
                tracing::warn!(%error, folder = %path.display(), "text search: the index is built anew");
                std::fs::remove_dir_all(&path).map_err(|error| failed(&error))?;
                create(&path)?;
                Self::open_at(&path, identity, widths).map_err(|error| failed(&error))
            }
        }
    }

    fn open_at(path: &Path, identity: &str, widths: UidWidths) -> Result<(Self, State), TantivyError> {
        let mut schema = Schema::builder();
        let words = TextFieldIndexing::default().set_index_option(IndexRecordOption::WithFreqsAndPositions);
        let fields = Fields {
            key: schema.add_bytes_field("key", STORED | INDEXED),
            kind: schema.add_u64_field("kind", INDEXED),
            pass: schema.add_u64_field("pass", INDEXED | FAST),
            words: schema.add_text_field("words", TextOptions::default().set_indexing_options(words)),
        };
        let directory = MmapDirectory::open(path)?;
        let index = tantivy::Index::open_or_create(directory, schema.build())?;
        let writer = index.writer_with_num_threads(1, WRITER_BYTES)?;
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual);
        let reader = reader.try_into()?;
        let state = match index.load_metas()?.payload {
            None => State::default(),
            Some(payload) => {
                let payload: Payload = serde_json::from_str(&payload).map_err(io::Error::other)?;
                if payload.identity != identity {
                    let detail = format!("it is of table {}", payload.identity);
                    return Err(TantivyError::SchemaError(detail));
                }
                payload.state
            }
        };
        let this = Self {
            fields,
            writer: Mutex::new(writer),
            reader,
            identity: identity.to_owned(),
            widths,
        };
        Ok((this, state))
    }

    /// Adds documents, or replaces them, in the name of a pass.
    ///
    /// # Errors
    ///
    /// [`SearchError::Failed`].
    pub(super) fn put(&self, documents: &[Document], pass: u64) -> Result<(), SearchError> {
        let writer = self.writer.lock();
        for document in documents {
            let key = key_of(&document.subject);
            writer.delete_term(Term::from_field_bytes(self.fields.key, &key));
            let mut entry = TantivyDocument::new();
            entry.add_bytes(self.fields.key, &key);
            entry.add_u64(self.fields.kind, kind_number(kind_of(&document.subject)));
            let is_read = !matches!(document.subject, Subject::Annotation(Some(_), _));
            entry.add_u64(self.fields.pass, if is_read { pass } else { NO_PASS });
            entry.add_pre_tokenized_text(self.fields.words, tokens(&document.fields));
            writer.add_document(entry).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// Removes documents.
    ///
    /// # Errors
    ///
    /// Never; as the other methods.
    pub(super) fn remove(&self, subjects: &[Subject]) -> Result<(), SearchError> {
        let writer = self.writer.lock();
        for subject in subjects {
            writer.delete_term(Term::from_field_bytes(self.fields.key, &key_of(subject)));
        }
        Ok(())
    }

    /// Removes the documents that a pass has not seen.
    ///
    /// # Errors
    ///
    /// [`SearchError::Failed`].
    pub(super) fn remove_before(&self, pass: u64) -> Result<(), SearchError> {
        let term = |pass| Term::from_field_u64(self.fields.pass, pass);
        let older = RangeQuery::new(Bound::Included(term(0)), Bound::Excluded(term(pass)));
        let removed = self.writer.lock().delete_query(Box::new(older));
        removed.map(drop).map_err(|error| failed(&error))
    }

    /// Makes all changes so far durable and visible.
    ///
    /// # Errors
    ///
    /// [`SearchError::Failed`].
    pub(super) fn commit(&self, state: &State) -> Result<(), SearchError> {
        let payload = Payload {
            identity: self.identity.clone(),
            state: state.clone(),
        };
        let payload = serde_json::to_string(&payload).map_err(|error| failed(&error))?;
        let mut writer = self.writer.lock();
        let committed = writer.prepare_commit().and_then(|mut commit| {
            commit.set_payload(&payload);
            commit.commit()
        });
        committed
            .and_then(|_| self.reader.reload())
            .map_err(|error| failed(&error))
    }

    /// Searches.
    ///
    /// # Errors
    ///
    /// [`SearchError::Syntax`] and [`SearchError::Failed`]; [`SearchError::Query`] if the search was stopped.
    pub(super) fn search(&self, search: &Search) -> Result<Found, SearchError> {
        let expression =
            Expression::parse(&search.query.text).map_err(|detail| SearchError::Syntax { detail })?;
        let kind = Term::from_field_u64(self.fields.kind, kind_number(search.query.kind));
        let kind = TermQuery::new(kind, IndexRecordOption::Basic);
        let of_kind = ConstScoreQuery::new(Box::new(kind), 0.0);
        let query = BooleanQuery::new(vec![
            (Occur::Must, Box::new(of_kind) as Box<dyn Query>),
            (Occur::Must, self.query(&expression, search)),
        ]);
        let searcher = self.reader.searcher();
        let top = TopDocs::with_limit(search.limit.max(1)).and_offset(search.start);
        let hits = searcher.search(&query, &(Count, top));
        if (search.stops)() {
            return Err(oxtsdb_query::QueryError::DeadlineExceeded.into());
        }
        let (total, top) = hits.map_err(|error| failed(&error))?;
        let mut subjects = Vec::with_capacity(top.len());
        for (_, address) in top.into_iter().take(search.limit) {
            let document: TantivyDocument = searcher.doc(address).map_err(|error| failed(&error))?;
            let key = document.get_first(self.fields.key);
            let subject = key
                .and_then(|key| key.as_bytes())
                .and_then(|key| subject_of(key, &self.widths));
            subjects.extend(subject);
        }
        Ok(Found {
            total: total as u64,
            subjects,
        })
    }

    fn query(&self, expression: &Expression, search: &Search) -> Box<dyn Query> {
        let term =
            |field: &str, word: &str| Term::from_field_text(self.fields.words, &words::entry(field, word));
        match expression {
            Expression::All => Box::new(AllQuery),
            Expression::Word { field, word } => {
                Box::new(TermQuery::new(term(field, word), IndexRecordOption::WithFreqs))
            }
            Expression::Phrase { field, words } => match words.as_slice() {
                [] => Box::new(EmptyQuery),
                [word] => Box::new(TermQuery::new(term(field, word), IndexRecordOption::WithFreqs)),
                words => Box::new(PhraseQuery::new(
                    words.iter().map(|word| term(field, word)).collect(),
                )),
            },
            Expression::Pattern { field, pattern } => {
                let wildcard = Wildcard::new(&words::entry(field, ""), pattern, Arc::clone(&search.stops));
                Box::new(WildcardQuery::new(self.fields.words, wildcard))
            }
            Expression::Clauses(clauses) => {
                let mut parts: Vec<_> = clauses
                    .iter()
                    .map(|(occur, clause)| (*occur, self.query(clause, search)))
                    .collect();
                if clauses.iter().all(|(occur, _)| *occur == Occur::MustNot) {
                    parts.push((Occur::Must, Box::new(AllQuery)));
                }
                Box::new(BooleanQuery::new(parts))
            }
        }
    }
}

/// The words of fields, each with and without the name of its field.
fn tokens(fields: &[(String, String)]) -> PreTokenizedString {
    let mut tokens = Vec::new();
    let mut at = 0;
    for (field, text) in fields {
        let (field_words, next) = words::split_words(text, at);
        for (position, word) in field_words {
            for field in [field.as_str(), ""] {
                tokens.push(Token {
                    position,
                    text: words::entry(field, &word),
                    ..Token::default()
                });
            }
        }
        // A phrase does not go on in the next field.
        at = next + 2;
    }
    PreTokenizedString {
        text: String::new(),
        tokens,
    }
}

fn kind_of(subject: &Subject) -> Kind {
    match subject {
        Subject::Uid(..) => Kind::Uids,
        Subject::Series(_) => Kind::Series,
        Subject::Annotation(..) => Kind::Annotations,
    }
}

const fn kind_number(kind: Kind) -> u64 {
    match kind {
        Kind::Uids => 0,
        Kind::Series => 1,
        Kind::Annotations => 2,
    }
}

/// ```text
///   U | kind | UID          S | TSUID          A | start, milliseconds, 8 bytes | TSUID, empty: global
/// ```
fn key_of(subject: &Subject) -> Vec<u8> {
    match subject {
        Subject::Uid(kind, uid) => [b"U", &[kind_byte(*kind)][..], uid.as_bytes()].concat(),
        Subject::Series(tsuid) => [b"S", tsuid.as_bytes()].concat(),
        Subject::Annotation(series, start_ms) => {
            let series = series.as_ref().map_or(&[][..], Tsuid::as_bytes);
            [b"A", &start_ms.to_be_bytes()[..], series].concat()
        }
    }
}

/// The subject of a key; `None` if it is none of this deployment.
fn subject_of(key: &[u8], widths: &UidWidths) -> Option<Subject> {
    match key {
        [b'U', kind, uid @ ..] => {
            let kind = UidKind::ALL
                .into_iter()
                .find(|candidate| kind_byte(*candidate) == *kind)?;
            Some(Subject::Uid(kind, Uid::from_bytes(uid).ok()?))
        }
        [b'S', tsuid @ ..] => Some(Subject::Series(Tsuid::from_bytes(tsuid, widths).ok()?)),
        [b'A', rest @ ..] => {
            let (start_ms, series) = rest.split_first_chunk()?;
            let series = (!series.is_empty()).then(|| Tsuid::from_bytes(series, widths));
            let series = series.transpose().ok()?;
            Some(Subject::Annotation(series, i64::from_be_bytes(*start_ms)))
        }
        _ => None,
    }
}

const fn kind_byte(kind: UidKind) -> u8 {
    match kind {
        UidKind::Metric => 0,
        UidKind::Tagk => 1,
        UidKind::Tagv => 2,
    }
}

fn failed(error: &dyn std::fmt::Display) -> SearchError {
    SearchError::Failed {
        detail: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
