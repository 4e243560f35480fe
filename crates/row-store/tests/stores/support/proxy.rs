//! A TCP proxy that cuts, stalls and rejects connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often a forwarding thread checks its mode.
const TICK: Duration = Duration::from_millis(20);

/// Forwards connections to a server; dropping it stops it.
pub struct Proxy {
    /// The proxy's address, `host:port`.
    pub address: String,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    server: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    mode: Mode,
    connections: Vec<TcpStream>,
    /// Bytes received from the server.
    answered: u64,
    /// Cut all connections after this many bytes.
    cut_after: Option<u64>,
    is_over: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Forward,
    /// Accepts connections but forwards nothing.
    Stall,
    /// Closes connections immediately.
    Reject,
}

impl Proxy {
    /// A proxy for this server.
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = {
            let shared = shared.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if shared.state.lock().is_over {
                        return;
                    }
                    accept(&shared, stream);
                }
            })
        };
        Self {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        let connections = std::mem::take(&mut self.shared.state.lock().connections);
        for stream in connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts all connections after the server has sent this many more bytes.
    pub fn cut_after(&self, bytes: u64) {
        let mut state = self.shared.state.lock();
        state.cut_after = Some(state.answered + bytes);
    }

    /// Stalls all connections, including new ones.
    pub fn stall(&self) {
        self.set(Mode::Stall);
    }

    /// Cuts all connections and rejects new ones.
    pub fn reject(&self) {
        self.set(Mode::Reject);
        self.cut();
    }

    /// Forwards again, including stalled bytes.
    pub fn resume(&self) {
        self.set(Mode::Forward);
    }

    fn set(&self, mode: Mode) {
        self.shared.state.lock().mode = mode;
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
        let _ = TcpStream::connect(&self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.cut();
    }
}

fn accept(shared: &Arc<Shared>, client: TcpStream) {
    if shared.state.lock().mode == Mode::Reject {
        return;
    }
    let Ok(server) = TcpStream::connect(&shared.server) else {
        return;
    };
    let mut state = shared.state.lock();
    state.connections.push(client.try_clone().unwrap());
    state.connections.push(server.try_clone().unwrap());
    drop(state);
    for (from, to, is_answer) in [
        (client.try_clone().unwrap(), server.try_clone().unwrap(), false),
        (server, client, true),
    ] {
        let shared = shared.clone();
        // Ends with the connection or the proxy.
        std::thread::spawn(move || forward(&shared, from, to, is_answer));
    }
}

fn forward(shared: &Shared, mut from: TcpStream, mut to: TcpStream, is_answer: bool) {
    let mut buffer = vec![0; 16 << 10];
    from.set_read_timeout(Some(TICK)).unwrap();
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if shared.state.lock().is_over {
                    break;
                }
                continue;
            }
            Err(_) => break,
        };
        let mut state = shared.state.lock();
        shared
            .changed
            .wait_while(&mut state, |state| state.mode == Mode::Stall && !state.is_over);
        let mut forwarded = count;
        if is_answer {
            if let Some(at) = state.cut_after {
                // To the exact byte, so that a response can be cut in the middle.
                forwarded = count.min(usize::try_from(at - state.answered).unwrap());
            }
            state.answered += forwarded as u64;
        }
        drop(state);
        if to.write_all(&buffer[..forwarded]).is_err() {
            break;
        }
        let mut state = shared.state.lock();
        if state
            .cut_after
            .is_some_and(|at| is_answer && state.answered >= at)
        {
            state.cut_after = None;
            for stream in std::mem::take(&mut state.connections) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
