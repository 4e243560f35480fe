//! Lines of the log: one for each event, regardless of callers' texts in it.
//!
//! Names, paths and messages of callers may contain line breaks, escape sequences of terminals, or characters that
//! reorder or hide text. Each of them is escaped here, behind all events, so that no event can forget it.

use std::borrow::Cow;
use std::io;
use std::sync::OnceLock;

use oxtsdb_access::shown::is_printable;
use tracing_appender::non_blocking::ErrorCounter;
use tracing_subscriber::fmt::MakeWriter;

use super::settings::LogFormat;

/// Counts the lines that were dropped; set when logs are initialized.
pub(super) static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Lines that the log had no space for, since the start.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |count| count.dropped_lines() as u64)
}

/// Makes writers that escape characters that are not printable.
#[derive(Clone, Debug)]
pub(super) struct Lines<M> {
    inner: M,
    form: Form,
}

/// The form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    /// Text with colours as escape sequences.
    Coloured,
    Json,
}

impl<M> Lines<M> {
    pub(super) fn new(inner: M, format: LogFormat, has_colours: bool) -> Self {
        let form = match (format, has_colours) {
            (LogFormat::Json, _) => Form::Json,
            (LogFormat::Text, true) => Form::Coloured,
            (LogFormat::Text, false) => Form::Text,
        };
        Self { inner, form }
    }
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Lines<M> {
    type Writer = LineWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter {
            inner: self.inner.make_writer(),
            form: self.form,
        }
    }
}

/// Writes events: each write is a line with its line break.
pub(super) struct LineWriter<W> {
    inner: W,
    form: Form,
}

impl<W: io::Write> io::Write for LineWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        if line.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            self.inner.write_all(event)?;
        } else {
            let line = escaped(&String::from_utf8_lossy(line), self.form).into_owned() + "\n";
            self.inner.write_all(line.as_bytes())?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A line with all unprintable characters escaped.
fn escaped(line: &str, form: Form) -> Cow<'_, str> {
    if line.chars().all(is_printable) {
        return Cow::Borrowed(line);
    }
    let mut escaped = String::with_capacity(line.len() + 16);
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        if form == Form::Coloured
            && let Some(length) = colour(rest)
        {
            let (sequence, behind) = rest.split_at(length);
            escaped.push_str(sequence);
            rest = behind;
            continue;
        }
        if is_printable(character) {
            escaped.push(character);
        } else if form == Form::Json {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.extend(character.escape_debug());
        }
        rest = rest.get(character.len_utf8()..).unwrap_or_default();
    }
    Cow::Owned(escaped)
}

/// The length of the escape sequence of a colour at the start of `text`.
fn colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    parameters.get(end..)?.starts_with('m').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::warn;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The form of a caller's name in the log.
    fn logged(name: &str, format: LogFormat) -> String {
        let written = Written::default();
        let make = {
            let written = written.clone();
            move || written.clone()
        };
        let log = tracing_subscriber::fmt::layer()
            .without_time()
            .with_ansi(false)
            .with_writer(Lines::new(make, format, false));
        let log: Box<dyn tracing_subscriber::Layer<_> + Send + Sync> = match format {
            LogFormat::Text => Box::new(log),
            LogFormat::Json => Box::new(log.json().flatten_event(true)),
        };
        let subscriber = tracing_subscriber::registry().with(log);
        tracing::subscriber::with_default(subscriber, || warn!(%name, "rejected {name}"));
        String::from_utf8(std::mem::take(&mut *written.0.lock())).unwrap()
    }

    #[test]
    fn an_event_is_one_line_of_printable_characters() {
        let name = "a\u{202e}b\u{2028}c\nWARN forged\u{1b}[31m\u{9b}é";
        let text = logged(name, LogFormat::Text);
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(text.trim_end().chars().all(is_printable), "{text:?}");
        assert!(
            text.contains("a\\u{202e}b\\u{2028}c\\nWARN forged") && text.contains('é'),
            "{text:?}"
        );
        let json = logged(name, LogFormat::Json);
        assert!(json.trim_end().chars().all(is_printable), "{json:?}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["name"], name, "escapes of JSON keep the text");
    }

    #[test]
    fn colours_stay_where_the_log_has_some() {
        let line = "\u{1b}[33m WARN\u{1b}[0m a\u{1b}[2Jb\u{1b}";
        assert_eq!(
            escaped(line, Form::Coloured),
            "\u{1b}[33m WARN\u{1b}[0m a\\u{1b}[2Jb\\u{1b}"
        );
        assert!(escaped(line, Form::Text).starts_with("\\u{1b}[33m WARN"));
        assert_eq!(escaped("x\u{e0001}", Form::Json), "x\\udb40\\udc01");
    }
}
