//! A scripted gateway.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use thrift::protocol::{TBinaryInputProtocol, TInputProtocol, TType};

use super::Gate;
use super::reply::{self, Reply};

/// A received request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The index of its connection, from 0.
    pub connection: usize,
    /// The call.
    pub name: String,
    /// The sequence number, which the response must repeat.
    pub sequence: i32,
    /// The binary arguments, by the path of their field numbers.
    pub strings: Vec<(Vec<i16>, Vec<u8>)>,
    /// The 32-bit integer arguments, likewise.
    pub integers: Vec<(Vec<i16>, i32)>,
    /// The paths of the boolean arguments that are true.
    pub truths: Vec<Vec<i16>>,
}

impl Request {
    /// An argument.
    pub fn string(&self, path: &[i16]) -> Option<&[u8]> {
        self.strings
            .iter()
            .find(|(at, _)| at == path)
            .map(|(_, value)| value.as_slice())
    }

    /// An argument.
    pub fn integer(&self, path: &[i16]) -> Option<i32> {
        self.integers
            .iter()
            .find(|(at, _)| at == path)
            .map(|(_, value)| *value)
    }

    /// The response to the probe of a new connection; `None` for other requests.
    pub fn greeting(&self) -> Option<Action> {
        (self.name == "getThriftServerType").then(|| Action::Reply(reply::integer(1)))
    }
}

/// The reaction to a request.
pub enum Action {
    /// Respond.
    Reply(Reply),
    /// Send these bytes.
    Bytes(Vec<u8>),
    /// Send these bytes and close the connection.
    BytesAndClose(Vec<u8>),
    /// Send nothing until the gate is open, then these bytes.
    BytesAfter(Gate, Vec<u8>),
    /// Send the same bytes repeatedly until the client disconnects.
    Endless(Vec<u8>, Vec<u8>),
    /// Send these bytes and then zeros, one by one with pauses, until the gate is open.
    Drops(Gate, Vec<u8>),
    /// Send nothing.
    Silence,
}

/// A server on a free port; dropping it stops it.
pub struct FakeGateway {
    /// `host:port`.
    pub address: String,
    stop: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    count: Arc<AtomicUsize>,
    accepting: Option<JoinHandle<()>>,
}

impl FakeGateway {
    /// Reacts to each request as `react` returns.
    pub fn start(react: impl Fn(&Request) -> Action + Send + Sync + 'static) -> Self {
        Self::listen(false, react)
    }

    /// As [`FakeGateway::start`], with framed replies; other bytes are sent unchanged.
    pub fn start_framed(react: impl Fn(&Request) -> Action + Send + Sync + 'static) -> Self {
        Self::listen(true, react)
    }

    fn listen(framed: bool, react: impl Fn(&Request) -> Action + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let count = Arc::new(AtomicUsize::new(0));
        let react = Arc::new(react);
        let accepting = {
            let (stop, connections, count) = (stop.clone(), connections.clone(), count.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    connections.lock().push(stream.try_clone().unwrap());
                    let react = react.clone();
                    // Ends with the connection.
                    std::thread::spawn(move || serve(number, framed, stream, &*react));
                }
            })
        };
        Self {
            address,
            stop,
            connections,
            count,
            accepting: Some(accepting),
        }
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Closes all connections.
    pub fn cut(&self) {
        for stream in self.connections.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for FakeGateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(&self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.cut();
    }
}

fn serve(connection: usize, framed: bool, mut stream: TcpStream, react: &dyn Fn(&Request) -> Action) {
    let mut writer = stream.try_clone().unwrap();
    while let Some(request) = receive(connection, framed, &mut stream) {
        let sent = match react(&request) {
            Action::Reply(reply) => {
                let mut bytes = reply.encode(&request.name, request.sequence);
                if framed {
                    let length = i32::try_from(bytes.len()).unwrap();
                    bytes.splice(..0, length.to_be_bytes());
                }
                writer.write_all(&bytes)
            }
            Action::Bytes(bytes) => writer.write_all(&bytes),
            Action::BytesAndClose(bytes) => {
                let _ = writer.write_all(&bytes);
                let _ = writer.shutdown(Shutdown::Both);
                return;
            }
            Action::BytesAfter(gate, bytes) => {
                gate.pass();
                writer.write_all(&bytes)
            }
            Action::Endless(first, again) => {
                let mut sent = writer.write_all(&first);
                while sent.is_ok() {
                    sent = writer.write_all(&again);
                }
                sent
            }
            Action::Drops(gate, bytes) => {
                let mut drops = bytes.into_iter().chain(std::iter::repeat(0));
                let mut sent = Ok(());
                while sent.is_ok() && !gate.is_open_within(Duration::from_millis(20)) {
                    sent = writer.write_all(&[drops.next().unwrap()]);
                }
                sent
            }
            Action::Silence => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The next request; `None` if there is none or it cannot be parsed.
fn receive(connection: usize, framed: bool, stream: &mut TcpStream) -> Option<Request> {
    if framed {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        // An unframed message starts with a negative number.
        let length = u64::try_from(i32::from_be_bytes(length)).ok()?;
        let mut frame = Vec::new();
        stream.take(length).read_to_end(&mut frame).ok()?;
        parse(connection, &mut TBinaryInputProtocol::new(frame.as_slice(), true)).ok()
    } else {
        parse(connection, &mut TBinaryInputProtocol::new(stream, true)).ok()
    }
}

fn parse(connection: usize, input: &mut dyn TInputProtocol) -> thrift::Result<Request> {
    let message = input.read_message_begin()?;
    let mut request = Request {
        connection,
        name: message.name,
        sequence: message.sequence_number,
        strings: Vec::new(),
        integers: Vec::new(),
        truths: Vec::new(),
    };
    read_value(input, TType::Struct, &mut Vec::new(), &mut request)?;
    input.read_message_end()?;
    Ok(request)
}

fn read_value(
    input: &mut dyn TInputProtocol,
    kind: TType,
    path: &mut Vec<i16>,
    request: &mut Request,
) -> thrift::Result<()> {
    match kind {
        TType::Struct => loop {
            let field = input.read_field_begin()?;
            if field.field_type == TType::Stop {
                return Ok(());
            }
            path.push(field.id.unwrap());
            read_value(input, field.field_type, path, request)?;
            path.pop();
        },
        TType::List => {
            let list = input.read_list_begin()?;
            for _ in 0..list.size {
                read_value(input, list.element_type, path, request)?;
            }
            Ok(())
        }
        TType::String => {
            request.strings.push((path.clone(), input.read_bytes()?));
            Ok(())
        }
        TType::I32 => {
            request.integers.push((path.clone(), input.read_i32()?));
            Ok(())
        }
        TType::Bool => {
            if input.read_bool()? {
                request.truths.push(path.clone());
            }
            Ok(())
        }
        other => input.skip(other),
    }
}
