//! Lines of a file: plain or gzip, with bounded memory.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// The longest line, in bytes; a point with eight long tags needs less than a hundredth.
pub(super) const MAX_LINE: usize = 1 << 20;

const BUFFER: usize = 1 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A line, or one that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A line without its end.
    Line(&'a [u8]),
    /// A line of more than [`MAX_LINE`] bytes, which were skipped.
    TooLong,
}

/// Reads lines, one after the other.
pub(super) struct Lines {
    reader: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
}

impl Lines {
    /// The lines of a file; `-` is standard input. gzip is detected by its first bytes. `count` is
    /// called with bytes as they are read, before decompression.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or its first bytes cannot be read.
    pub(super) fn open(path: &Path, count: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Self::new(Counted {
                inner: io::stdin(),
                count,
            });
        }
        Self::new(Counted {
            inner: File::open(path)?,
            count,
        })
    }

    /// The lines of a stream of bytes.
    ///
    /// # Errors
    ///
    /// If the first bytes cannot be read.
    pub(super) fn new(reader: impl Read + Send + 'static) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        // A pipe may return a single byte first; the gzip header is two.
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        (&mut reader)
            .take(GZIP_MAGIC.len() as u64)
            .read_to_end(&mut magic)?;
        let is_gzip = magic == GZIP_MAGIC;
        let whole = io::Cursor::new(magic).chain(reader);
        let reader: Box<dyn Read + Send> = if is_gzip {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole)))
        } else {
            Box::new(whole)
        };
        let buffer = vec![0; MAX_LINE + BUFFER].into_boxed_slice();
        Ok(Self {
            reader,
            buffer,
            start: 0,
            end: 0,
            ended: false,
        })
    }

    /// The next line; `None` after the last. The last one need not have an end.
    ///
    /// # Errors
    ///
    /// If the file cannot be read on, for example because its gzip is broken.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Found<'_>>> {
        let mut searched = self.start;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let line = self.start..searched + length;
                self.start = line.end + 1;
                return Ok(Some(Found::from_line(&self.buffer[line])));
            }
            if self.end - self.start > MAX_LINE {
                return self.pass_over().map(|()| Some(Found::TooLong));
            }
            if self.ended {
                let line = self.start..self.end;
                self.start = self.end;
                return Ok((!line.is_empty()).then(|| Found::Line(&self.buffer[line])));
            }
            searched = self.fill()?;
        }
    }

    /// Reads more behind what there is; where the new bytes begin.
    fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let old_end = self.end;
        let read = loop {
            match self.reader.read(&mut self.buffer[old_end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += read;
        self.ended = read == 0;
        Ok(old_end)
    }

    /// Drops bytes up to and with the next end of a line.
    fn pass_over(&mut self) -> io::Result<()> {
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                self.start += length + 1;
                return Ok(());
            }
            self.start = self.end;
            if self.ended {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

impl<'a> Found<'a> {
    fn from_line(line: &'a [u8]) -> Self {
        if line.len() > MAX_LINE {
            Found::TooLong
        } else {
            Found::Line(line)
        }
    }
}

struct Counted<R, F> {
    inner: R,
    count: F,
}

impl<R: Read, F: Fn(u64)> Read for Counted<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        (self.count)(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn all(reader: impl Read + Send + 'static) -> io::Result<Vec<Result<Vec<u8>, ()>>> {
        let mut lines = Lines::new(reader)?;
        let mut all = Vec::new();
        while let Some(line) = lines.next_line()? {
            all.push(match line {
                Found::Line(line) => Ok(line.to_vec()),
                Found::TooLong => Err(()),
            });
        }
        Ok(all)
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        all(io::Cursor::new(bytes.to_vec()))
            .unwrap()
            .into_iter()
            .map(|line| String::from_utf8(line.unwrap()).unwrap())
            .collect()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Gives one byte at a time, as a slow pipe may.
    struct OneByOne(io::Cursor<Vec<u8>>);

    impl Read for OneByOne {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let end = buffer.len().min(1);
            self.0.read(&mut buffer[..end])
        }
    }

    #[test]
    fn the_last_line_may_lack_its_end() {
        assert_eq!(texts(b"a\nb\n"), ["a", "b"]);
        assert_eq!(texts(b"a\n\nb"), ["a", "", "b"]);
        assert_eq!(texts(b""), Vec::<String>::new());
        assert_eq!(texts(b"x"), ["x"]);
    }

    #[test]
    fn gzip_is_detected_and_may_have_several_members() {
        let mut two = gzip(b"a\nb");
        two.extend(gzip(b"c\nd\n"));
        assert_eq!(texts(&two), ["a", "bc", "d"]);
        let slow = all(OneByOne(io::Cursor::new(gzip(b"a\nb\n")))).unwrap();
        assert_eq!(slow, [Ok(b"a".to_vec()), Ok(b"b".to_vec())]);
    }

    #[test]
    fn broken_gzip_is_an_error_after_its_valid_lines() {
        let whole = gzip(b"line\n".repeat(100_000).as_slice());
        let mut lines = Lines::new(io::Cursor::new(whole[..whole.len() / 2].to_vec())).unwrap();
        let mut good = 0;
        let error = loop {
            match lines.next_line() {
                Ok(Some(_)) => good += 1,
                Ok(None) => panic!("the file is cut off"),
                Err(error) => break error,
            }
        };
        assert!(good > 1000, "{good} lines before: {error}");
    }

    #[test]
    fn endless_lines_have_bounded_memory() {
        let mut bytes = b"first\n".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', 5 * MAX_LINE));
        bytes.extend(b"\nlast");
        let lines = all(io::Cursor::new(bytes)).unwrap();
        assert_eq!(lines, [Ok(b"first".to_vec()), Err(()), Ok(b"last".to_vec())]);
    }

    #[test]
    fn lines_may_cross_the_end_of_the_buffer() {
        let line = "y".repeat(300_001);
        let text = format!("{line}\n").repeat(20);
        let lines = texts(text.as_bytes());
        assert_eq!(lines.len(), 20);
        assert!(lines.iter().all(|read| *read == line));
    }
}
