//! Standard output.

use std::io::Write as _;

/// Prints text. A reader that has closed its end (`| head`) is no error.
///
/// # Errors
///
/// If standard output fails otherwise.
pub fn print(text: &str) -> std::io::Result<()> {
    print_bytes(text.as_bytes())
}

/// Prints bytes, as [`print()`].
///
/// # Errors
///
/// If standard output fails otherwise.
pub fn print_bytes(bytes: &[u8]) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
