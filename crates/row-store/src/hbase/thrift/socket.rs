//! A TCP connection with one deadline for all of its reads and writes.
//!
//! The time-outs of a socket apply to single system calls, so a peer that sends a byte now and then would never
//! exceed them. Each system call is therefore given the time left until the deadline.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::rc::Rc;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

/// The idle time before keep-alive probes; gateways and firewalls drop connections that are silent for a minute
/// or more.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A connection; clones share it. It stays on one thread.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    stream: Rc<TcpStream>,
    deadline: Rc<Cell<Instant>>,
}

impl Socket {
    /// Connects to the first address of `host:port` that accepts.
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
        // Requests are written in one piece; delaying them to fill a segment only adds latency.
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        Ok(Self {
            stream: Rc::new(stream),
            deadline: Rc::new(Cell::new(deadline)),
        })
    }

    /// Sets the deadline of all further reads and writes.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        self.deadline.set(deadline);
    }

    /// Whether the peer is connected and silent. A peer that closed the connection, or sent something unrequested,
    /// cannot be used.
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

/// The time left until a deadline; an error if there is none.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Maps `WouldBlock`, which a socket time-out returns, to `TimedOut`.
fn as_timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::ErrorKind::TimedOut.into();
    }
    error
}
