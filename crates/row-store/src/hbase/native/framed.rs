//! Messages with their length before them: ZooKeeper's, those of a KDC, and the tokens of SASL.
//!
//! ```text
//!   u32 length | message
//! ```

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Sends a message.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes()[..], message].concat())
        .await?;
    stream.flush().await
}

/// Receives a message of at most `most` bytes.
///
/// # Errors
///
/// A longer one, which `peer` (`ZooKeeper`) does not send.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    most: u32,
    peer: &str,
) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    if length > most {
        return Err(io::Error::other(format!(
            "not {peer}: a response of {length} bytes, at most {most} are expected"
        )));
    }
    let mut message = vec![0; length as usize];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
