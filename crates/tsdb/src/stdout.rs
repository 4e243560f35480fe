//! Standard output.

use std::io::Write as _;

/// Prints text. A reader that has closed its end (`| head`) is no error.
///
/// # Errors
///
/// If standard output fails otherwise.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
