//! SASL with a server: the handshake after the preamble, and streams that wrap the messages behind it.
//!
//! ```text
//!   client: u32 length | token
//!   server: u32 0 | u32 length | token,  or  u32 1 | u32 length, class | u32 length, message
//!   then, with a layer: u32 length | wrapped bytes, which hold the frames of the connection
//! ```
//!
//! The mechanism is GSSAPI: two tokens of Kerberos, an empty one, and two wrapped ones by which the sides agree on the layer
//! (`hbase.rpc.protection`): authentication only, integrity, or privacy. The strongest that the server offers is used.
//!
//! Source: RFC 4752; HBase 2.6.1, `ServerRpcConnection`, `SaslWrapHandler`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::kerberos::{Incoming, Outgoing, Pending, Ticket};
use super::{framed, tls};
use crate::hbase::Protection;

/// The preamble of a connection with Kerberos.
const PREAMBLE: [u8; 6] = *b"HBas\x00\x51";

/// The longest token of the handshake, in bytes.
const MAX_TOKEN: usize = 1 << 20;

/// Instead of a length: the server has no security.
const SWITCH_TO_SIMPLE: i32 = -88;

/// The longest wrapped message that this side takes, as the handshake can say it.
const LONGEST: u32 = 0x00ff_ffff;

/// What wrapping adds to a message at most, in bytes.
const OVERHEAD: usize = 128;

/// How a stream goes on after the handshake.
pub(super) struct Layer {
    pub(super) protection: Protection,
    outgoing: Outgoing,
    incoming: Incoming,
    /// The longest wrapped message that the server takes, in bytes.
    most: usize,
}

/// Performs the handshake.
///
/// # Errors
///
/// The cause, without the server's name.
pub(super) async fn handshake(
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
    ticket: &Ticket,
) -> Result<Layer, String> {
    let (pending, token) = Pending::begin(ticket)?;
    write.write_all(&PREAMBLE).await.map_err(cause)?;
    framed::write(write, &token).await.map_err(cause)?;
    let token = receive(read, ticket).await?;
    let mut context = pending.complete(&token)?;
    framed::write(write, &[]).await.map_err(cause)?;

    let offer = receive(read, ticket).await?;
    let offer = context
        .incoming
        .unwrap(&offer, false)
        .map_err(|reason| format!("the offer of layers is invalid: {reason}"))?;
    let &[layers, a, b, c] = &offer[..] else {
        return Err(format!(
            "the offer of layers has {} bytes, expected 4",
            offer.len()
        ));
    };
    let strongest = [
        Protection::Privacy,
        Protection::Integrity,
        Protection::Authentication,
    ]
    .into_iter()
    .find(|protection| layers & protection.layer() != 0);
    let Some(protection) = strongest else {
        return Err(format!(
            "the server offers no known hbase.rpc.protection, but {layers:#x}"
        ));
    };
    let [_, x, y, z] = match protection {
        // Without a layer nothing is wrapped.
        Protection::Authentication => 0,
        _ => LONGEST,
    }
    .to_be_bytes();
    let choice = context.outgoing.wrap(&[protection.layer(), x, y, z], false);
    framed::write(write, &choice).await.map_err(cause)?;
    Ok(Layer {
        protection,
        outgoing: context.outgoing,
        incoming: context.incoming,
        most: u32::from_be_bytes([0, a, b, c]) as usize,
    })
}

/// Why the handshake broke.
fn cause(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the server closed the connection during the handshake; its log has the reason".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The server's next token.
async fn receive(read: &mut (impl AsyncRead + Unpin), ticket: &Ticket) -> Result<Vec<u8>, String> {
    let reading = async {
        let status = read.read_u32().await?;
        if tls::is_alert(status) {
            return Ok(Err("the server requires TLS (--hbase-tls)".to_owned()));
        }
        if status == 0 {
            let length = read.read_i32().await?;
            if length == SWITCH_TO_SIMPLE {
                return Ok(Err(
                    "the server has no Kerberos (hbase.security.authentication); remove --hbase-kerberos-principal"
                        .to_owned(),
                ));
            }
            return Ok(Ok(bytes(read, length).await?));
        }
        let length = read.read_i32().await?;
        let class = bytes(read, length).await?;
        let length = read.read_i32().await?;
        let message = bytes(read, length).await?;
        Ok::<_, io::Error>(Err(format!(
            "the server rejects the ticket for `{}`: {}: {}; its log has the reason: often its keytab or its clock",
            ticket.server(),
            String::from_utf8_lossy(&class),
            String::from_utf8_lossy(&message)
        )))
    };
    reading.await.map_err(cause)?
}

async fn bytes(read: &mut (impl AsyncRead + Unpin), length: i32) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_TOKEN);
    let Some(length) = length else {
        return Err(io::Error::other("a token of the handshake has an invalid length"));
    };
    let mut token = vec![0; length];
    read.read_exact(&mut token).await?;
    Ok(token)
}

type Read = Box<dyn AsyncRead + Send + Unpin>;
type Write = Box<dyn AsyncWrite + Send + Unpin>;

impl Layer {
    /// The streams of wrapped messages; a response that is longer than twice `most` bytes ends the connection.
    pub(super) fn over(self, (read, write): (Read, Write), most: usize) -> (Read, Write) {
        let seals = match self.protection {
            Protection::Authentication => return (read, write),
            Protection::Integrity => false,
            Protection::Privacy => true,
        };
        let read = Unwrapping {
            read,
            incoming: self.incoming,
            seals,
            // A response that is too long for `most` has to be read for the number of its call.
            most: most.saturating_mul(2).saturating_add(OVERHEAD),
            token: Vec::new(),
            received: 0,
            data: io::Cursor::new(Vec::new()),
        };
        let write = Wrapping {
            write,
            outgoing: self.outgoing,
            seals,
            most: self.most.saturating_sub(OVERHEAD).max(OVERHEAD),
            token: Vec::new(),
            sent: 0,
        };
        (Box::new(read), Box::new(write))
    }
}

/// Unwraps messages of the server.
struct Unwrapping {
    read: Read,
    incoming: Incoming,
    seals: bool,
    most: usize,
    /// A length and the message behind it, of which `received` bytes are there.
    token: Vec<u8>,
    received: usize,
    /// What was unwrapped and not yet read.
    data: io::Cursor<Vec<u8>>,
}

/// The bytes of a length.
const LENGTH: usize = 4;

impl Unwrapping {
    /// Receives and unwraps the next message; returns whether there is one.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let invalid = |detail: String| io::Error::new(io::ErrorKind::InvalidData, detail);
        loop {
            if self.token.len() < LENGTH {
                self.token.resize(LENGTH, 0);
            }
            if self.received == self.token.len() {
                let (length, message) = self
                    .token
                    .split_first_chunk::<LENGTH>()
                    .unwrap_or((&[0; LENGTH], &[]));
                let length = u32::from_be_bytes(*length) as usize;
                if length > self.most {
                    return Poll::Ready(Err(invalid(format!(
                        "a wrapped response has {length} bytes, at most {} are allowed (max_reply_bytes)",
                        self.most
                    ))));
                }
                if message.len() < length {
                    self.token.resize(LENGTH + length, 0);
                    continue;
                }
                let data = self
                    .incoming
                    .unwrap(message, self.seals)
                    .map_err(|reason| invalid(format!("a message of the server is invalid: {reason}")))?;
                self.data = io::Cursor::new(data);
                self.token = Vec::new();
                self.received = 0;
                return Poll::Ready(Ok(true));
            }
            let mut rest = ReadBuf::new(&mut self.token[self.received..]);
            ready!(Pin::new(&mut self.read).poll_read(context, &mut rest))?;
            match rest.filled().len() {
                0 if self.received == 0 => return Poll::Ready(Ok(false)),
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                read => self.received += read,
            }
        }
    }
}

impl AsyncRead for Unwrapping {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let before = buffer.remaining();
            ready!(Pin::new(&mut self.data).poll_read(context, buffer))?;
            if buffer.remaining() < before || before == 0 || !ready!(self.poll_next(context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Wraps messages of the client.
struct Wrapping {
    write: Write,
    outgoing: Outgoing,
    seals: bool,
    most: usize,
    /// A length and a wrapped message, of which `sent` bytes are sent.
    token: Vec<u8>,
    sent: usize,
}

impl Wrapping {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.token.len() {
            match ready!(Pin::new(&mut self.write).poll_write(context, &self.token[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wrapping {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        let taken = &data[..data.len().min(self.most)];
        let seals = self.seals;
        let token = self.outgoing.wrap(taken, seals);
        let length = u32::try_from(token.len()).map_err(io::Error::other)?;
        self.token = [&length.to_be_bytes()[..], &token].concat();
        self.sent = 0;
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
