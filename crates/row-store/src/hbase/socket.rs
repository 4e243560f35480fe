//! A TCP connection whose reads and writes end by a deadline.
//!
//! The time-outs of a socket are those of one system call: a peer that sends a byte now and then
//! would never exceed them. So each call gets what is left until the deadline.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::rc::Rc;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

/// When an idle connection is asked whether it still lives; gateways drop those that do not speak
/// for a minute or more, and firewalls too.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// One connection; clones are the same one. It stays in one thread.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    stream: Rc<TcpStream>,
    deadline: Rc<Cell<Instant>>,
}

impl Socket {
    /// Connects to the first address of `host:port` that answers.
    pub(super) fn connect(address: &str, deadline: Instant) -> io::Result<Self> {
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, time_left(deadline)?) {
                Ok(stream) => return Self::new(stream, deadline),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn new(stream: TcpStream, deadline: Instant) -> io::Result<Self> {
        // Requests are written whole; waiting for more of them would only add to their time.
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        Ok(Self {
            stream: Rc::new(stream),
            deadline: Rc::new(Cell::new(deadline)),
        })
    }

    /// By when what follows has to end.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        self.deadline.set(deadline);
    }

    /// Whether the peer is there and silent. One that closed, or speaks without being asked, cannot
    /// be used for a request.
    pub(super) fn is_quiet(&self) -> bool {
        let peek = || {
            self.stream.set_nonblocking(true)?;
            let peeked = self.stream.peek(&mut [0]);
            self.stream.set_nonblocking(false)?;
            peeked
        };
        peek().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream: &TcpStream = &self.stream;
        stream.set_read_timeout(Some(time_left(self.deadline.get())?))?;
        stream.read(buffer).map_err(as_timed_out)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream: &TcpStream = &self.stream;
        stream.set_write_timeout(Some(time_left(self.deadline.get())?))?;
        stream.write(bytes).map_err(as_timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time until a deadline, more than zero.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// A time-out of the socket looks like an operation that would block.
fn as_timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::ErrorKind::TimedOut.into();
    }
    error
}
