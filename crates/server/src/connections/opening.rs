//! The first bytes of a connection: TLS, if the listener has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tracing::debug;

use super::stream::{ClientStream, Socket, prepare};
use super::{Connection, ConnectionCounts, Listener};
use crate::Shutdown;
use crate::tls::{Alpn, Tls};

/// The first byte of a TLS connection: a record of a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// A fatal alert, `protocol_version`: TLS clients report it as such.
const TLS_ALERT: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 70];

/// The reply on a port with TLS, sent to telnet as it is, and to HTTP as the body of a response.
const NEEDS_TLS: &str = "this port serves TLS only, HTTP and gRPC by https:// URLs\n";

/// The HTTP head before [`NEEDS_TLS`]. The connection ends with the response.
const BAD_REQUEST: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n";

/// Reads after the reply.
const MOST_READS: usize = 64;

/// Opens the connections of a listener.
#[derive(Clone, Debug)]
pub(super) struct Opener {
    name: &'static str,
    tls: Option<Tls>,
    alpn: Alpn,
    counts: Arc<ConnectionCounts>,
}

impl Listener {
    pub(super) fn opener(&self) -> Opener {
        Opener {
            name: self.options.name,
            tls: self.tls.clone(),
            alpn: self.options.alpn,
            counts: Arc::clone(&self.counts),
        }
    }
}

impl Opener {
    /// The stream of a client, after its handshake; `None` if it is closed.
    ///
    /// # Errors
    ///
    /// The client is rejected, or the socket fails.
    pub(super) async fn open(
        &self,
        stream: TcpStream,
        connection: &Connection,
        shutdown: &Shutdown,
    ) -> io::Result<Option<ClientStream>> {
        prepare(&stream, connection)?;
        let opened = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 0 {
                return Ok(None);
            }
            match (&self.tls, first == [TLS_HANDSHAKE]) {
                (None, false) => Ok(Some(Socket::Plain(stream))),
                (Some(tls), true) => match tls.accept(stream, self.alpn).await {
                    Ok((stream, certificate)) => Ok(Some(Socket::tls(stream, certificate))),
                    Err((error, stream)) => {
                        self.counts.tls_failed.fetch_add(1, Ordering::Relaxed);
                        debug!(listener = self.name, peer = %connection.peer(), %error, "TLS handshake failed");
                        // With TLS 1.3 the client has sent its first request already.
                        answer_last(stream, &[]).await?;
                        Ok(None)
                    }
                },
                (tls, _) => {
                    self.counts.tls_mismatched.fetch_add(1, Ordering::Relaxed);
                    debug!(
                        listener = self.name,
                        peer = %connection.peer(),
                        "{}",
                        match tls {
                            Some(_) => "a client without TLS connected to a port with it (--tls-certificate)",
                            None => "a client with TLS connected to a port without it",
                        }
                    );
                    let needs_tls = [BAD_REQUEST, NEEDS_TLS].concat();
                    let answer = match (tls, first) {
                        (None, _) => &TLS_ALERT[..],
                        (Some(_), [b'A'..=b'Z']) => needs_tls.as_bytes(),
                        (Some(_), _) => NEEDS_TLS.as_bytes(),
                    };
                    answer_last(stream, answer).await?;
                    Ok::<_, io::Error>(None)
                }
            }
        };
        let socket = tokio::select! {
            biased;
            opened = opened => opened?,
            () = shutdown.stopping() => None,
            () = connection.closing() => None,
        };
        Ok(socket.map(|socket| ClientStream::new(socket, connection.clone())))
    }
}

/// Sends a last reply, after the alert of a handshake that failed. Some of the client's bytes are read: closing a
/// socket with unread bytes discards the bytes that it has sent.
async fn answer_last(mut stream: TcpStream, answer: &[u8]) -> io::Result<()> {
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    for _ in 0..MOST_READS {
        if stream.read(&mut rest).await? == 0 {
            break;
        }
    }
    Ok(())
}
