//! The socket of a client, which is closed if the client does not read.
//!
//! Data that a client leaves unread stays in memory: in buffers of the kernel and of HTTP/2, and in the
//! response behind them. For each time-out of waiting a client must accept 64 KiB, so that a client that
//! reads a byte now and then is disconnected like one that reads nothing.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use oxtsdb_access::PeerCertificate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tokio_util::io::poll_read_buf;

use super::Connection;

/// Bytes that a client must accept within its time-out while data is pending.
pub const MIN_CLIENT_BYTES: usize = 64 << 10;

/// Unsent bytes in the kernel at which the socket counts as full. By default the kernel takes megabytes for
/// each connection, and reports progress only when a third of them was sent.
const UNSENT_BYTES: u32 = 64 << 10;

/// The socket of a [`Connection`]. Writers must flush; until then the connection is not idle.
#[derive(Debug)]
pub struct ClientStream {
    socket: Socket,
    connection: Connection,
    stall: Stall,
}

/// A socket, with TLS or without.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsSocket>),
}

/// A session of TLS.
#[derive(Debug)]
pub(super) struct TlsSocket {
    stream: TlsStream<TcpStream>,
    certificate: Option<PeerCertificate>,
    /// Received and not consumed.
    ahead: BytesMut,
    /// Whether the client has closed its side.
    is_over: bool,
}

/// Bytes that are received ahead.
const AHEAD_BYTES: usize = 16 << 10;

/// Sets the options of a client's socket.
pub(super) fn prepare(stream: &TcpStream, connection: &Connection) -> io::Result<()> {
    // Sends small frames at once: otherwise the last frame of a response takes 40 ms.
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    socket.set_keepalive(true)?;
    // Detects dead peers, which do not acknowledge sent data.
    socket.set_tcp_user_timeout(Some(connection.client_timeout()))?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)
}

impl Socket {
    pub(super) fn tls(stream: TlsStream<TcpStream>, certificate: Option<PeerCertificate>) -> Self {
        Self::Tls(Box::new(TlsSocket {
            stream,
            certificate,
            ahead: BytesMut::new(),
            is_over: false,
        }))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(socket) => socket.stream.get_ref().0,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(socket) if !socket.ahead.is_empty() => {
                let length = socket.ahead.len().min(buffer.remaining());
                buffer.put_slice(&socket.ahead.split_to(length));
                Poll::Ready(Ok(()))
            }
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(socket) => socket.stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_shutdown(cx),
        }
    }
}

impl TlsSocket {
    /// Receives some bytes ahead, if there are none.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() || self.is_over {
            return Poll::Ready(Ok(()));
        }
        self.ahead.reserve(AHEAD_BYTES);
        let read = ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.ahead))?;
        self.is_over = read == 0;
        Poll::Ready(Ok(()))
    }
}

impl ClientStream {
    pub(super) fn new(socket: Socket, connection: Connection) -> Self {
        Self {
            stall: Stall::new(connection.client_timeout()),
            socket,
            connection,
        }
    }

    /// The certificate that the client has presented, which was verified.
    pub fn peer_certificate(&self) -> Option<&PeerCertificate> {
        match &self.socket {
            Socket::Plain(_) => None,
            Socket::Tls(socket) => socket.certificate.as_ref(),
        }
    }

    /// Receives without consuming.
    ///
    /// # Errors
    ///
    /// Errors of the socket.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Plain(stream) => stream.peek(buffer).await,
            Socket::Tls(socket) => {
                poll_fn(|cx| socket.poll_ahead(cx)).await?;
                let length = buffer.len().min(socket.ahead.len());
                buffer[..length].copy_from_slice(&socket.ahead[..length]);
                Ok(length)
            }
        }
    }

    /// Waits until there is something to receive, or the client has closed its side.
    ///
    /// # Errors
    ///
    /// Errors of the socket.
    pub async fn readable(&mut self) -> io::Result<()> {
        match &mut self.socket {
            Socket::Plain(stream) => stream.readable().await,
            Socket::Tls(socket) => poll_fn(|cx| socket.poll_ahead(cx)).await,
        }
    }

    /// Receives bytes that have arrived, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing, and errors of the socket.
    pub fn try_read_buf<B: BufMut>(&mut self, buffer: &mut B) -> io::Result<usize> {
        let read = match &mut self.socket {
            Socket::Plain(stream) => stream.try_read_buf(buffer)?,
            Socket::Tls(socket) => {
                let mut cx = Context::from_waker(Waker::noop());
                match socket.poll_ahead(&mut cx) {
                    Poll::Pending => return Err(ErrorKind::WouldBlock.into()),
                    Poll::Ready(ahead) => ahead?,
                }
                let length = socket.ahead.len().min(buffer.remaining_mut());
                buffer.put(socket.ahead.split_to(length));
                length
            }
        };
        self.connection.state().received(read);
        Ok(read)
    }

    pub(crate) fn local_addr(&self) -> io::Result<std::net::SocketAddr> {
        self.socket.tcp().local_addr()
    }

    /// Accounts for the result of a write.
    fn wrote(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.stall.accepted(bytes);
                self.connection.state().sending(false);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.connection.state().sending(true);
                ready!(self.stall.poll_over(cx));
                let seconds = self.stall.timeout.as_secs_f64();
                Poll::Ready(Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!(
                        "the client accepted less than {} KiB in {seconds} s (--client-timeout-seconds)",
                        MIN_CLIENT_BYTES >> 10
                    ),
                )))
            }
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        if read > 0 {
            self.connection.state().received(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.wrote(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.wrote(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.connection.state().sent();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// The time that the server has waited for the client to read, since it last accepted
/// [`MIN_CLIENT_BYTES`]. Time without pending data does not count.
#[derive(Debug)]
struct Stall {
    timeout: Duration,
    /// When the current wait began.
    since: Option<Instant>,
    /// The sum of the waits before it.
    waited: Duration,
    accepted: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            since: None,
            waited: Duration::ZERO,
            accepted: 0,
            timer: None,
        }
    }

    fn accepted(&mut self, bytes: usize) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
        self.accepted = self.accepted.saturating_add(bytes);
        if self.accepted >= MIN_CLIENT_BYTES {
            self.accepted = 0;
            self.waited = Duration::ZERO;
        }
    }

    /// Ready when the time-out has passed.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_new = self.since.is_none();
        let since = *self.since.get_or_insert_with(Instant::now);
        let deadline = since + self.timeout.saturating_sub(self.waited);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if is_new {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Waits for so long; returns whether the time-out passed.
    async fn waits(stall: &mut Stall, seconds: u64) -> bool {
        let over = std::future::poll_fn(|cx| stall.poll_over(cx));
        tokio::time::timeout(Duration::from_secs(seconds), over)
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn time_out_spans_all_waits_of_a_slow_client() {
        let mut stall = Stall::new(TIMEOUT);
        for _ in 0..5 {
            assert!(!waits(&mut stall, 5).await);
            stall.accepted(1000);
        }
        assert!(waits(&mut stall, 6).await, "25 seconds are over");
    }

    #[tokio::test(start_paused = true)]
    async fn sufficient_progress_resets_the_time_out() {
        let mut stall = Stall::new(TIMEOUT);
        for _ in 0..10 {
            assert!(!waits(&mut stall, 29).await);
            stall.accepted(MIN_CLIENT_BYTES);
        }
        assert!(waits(&mut stall, 31).await);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_pending_data_does_not_count() {
        let mut stall = Stall::new(TIMEOUT);
        for _ in 0..10 {
            assert!(!waits(&mut stall, 1).await);
            stall.accepted(10);
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
    }
}
