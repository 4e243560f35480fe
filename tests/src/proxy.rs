//! A TCP proxy that injects network faults: it stalls, throttles, drops bytes, cuts and refuses connections.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::ports;

/// The treatment of the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Forwards them.
    Pass,
    /// Stops reading; bytes fill the buffers of sender and proxy.
    Stall,
    /// Forwards this many bytes a second.
    Slow(NonZeroU32),
    /// Discards them.
    Lose,
}

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: responses.
    ToClient,
}

/// A proxy in front of one server, with an address of its own. Dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// State of all connections.
#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    to_server: Lane,
    to_client: Lane,
    /// Changes when all connections have to end.
    cuts: watch::Sender<u64>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    flow: watch::Sender<Flow>,
    bytes: AtomicU64,
}

impl Lane {
    fn new() -> Self {
        Self {
            flow: watch::Sender::new(Flow::Pass),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Proxy {
    /// Starts a proxy to a server on a free port, forwarding everything.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let mut proxy = Self {
            address: ports::free()?,
            shared: Arc::new(Shared {
                server,
                to_server: Lane::new(),
                to_client: Lane::new(),
                cuts: watch::Sender::new(0),
            }),
            accepting: None,
        };
        proxy.accept().await?;
        Ok(proxy)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the flow of existing and new connections.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.lane(direction).flow.send_replace(flow);
    }

    /// Returns the bytes forwarded or discarded so far.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.lane(direction).bytes.load(Ordering::Relaxed)
    }

    /// Closes all connections; buffered bytes are lost.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Refuses new connections; existing ones stay open.
    pub async fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // The port is closed after the task has ended.
            let _aborted = accepting.await;
        }
    }

    /// Accepts connections again after [`Proxy::refuse`].
    ///
    /// # Errors
    ///
    /// If the port is in use.
    pub async fn accept(&mut self) -> anyhow::Result<()> {
        if self.accepting.is_none() {
            let listener = TcpListener::bind(self.address)
                .await
                .with_context(|| format!("a proxy on {}", self.address))?;
            self.accepting = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
        }
        Ok(())
    }

    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::ToServer => &self.shared.to_server,
            Direction::ToClient => &self.shared.to_client,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // An error of one connection does not affect the next one.
    loop {
        if let Ok((client, _)) = listener.accept().await {
            tokio::spawn(connect(client, Arc::clone(&shared)));
        }
    }
}

async fn connect(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    // If the server refuses, the client's connection, which is accepted already, is closed.
    let Ok(server) = TcpStream::connect(shared.server).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = cuts.changed() => {}
        _ = async {
            tokio::join!(
                pump(from_client, to_server, &shared.to_server),
                pump(from_server, to_client, &shared.to_client),
            )
        } => {}
    }
}

/// Moves the bytes of one direction until the sender closes it or the receiver is gone.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, lane: &Lane) {
    /// Interval at which a throttled lane forwards bytes.
    const BEAT: Duration = Duration::from_millis(10);
    const BEATS_A_SECOND: u32 = 100;

    let mut flows = lane.flow.subscribe();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let flow = *flows.borrow_and_update();
        let capacity = match flow {
            Flow::Pass | Flow::Lose => buffer.len(),
            Flow::Slow(rate) => usize::try_from(rate.get().div_ceil(BEATS_A_SECOND))
                .unwrap_or(usize::MAX)
                .min(buffer.len()),
            Flow::Stall => {
                if flows.changed().await.is_err() {
                    return;
                }
                continue;
            }
        };
        let chunk = buffer
            .get_mut(..capacity)
            .expect("the capacity is at most the buffer's length");
        let read = tokio::select! {
            biased;
            changed = flows.changed() => match changed {
                Ok(()) => continue,
                Err(_gone) => return,
            },
            read = from.read(chunk) => read,
        };
        let count = match read {
            Ok(0) => {
                let _ = to.shutdown().await;
                return;
            }
            Ok(count) => count,
            Err(_broken) => return,
        };
        let read = chunk.get(..count).expect("a read fits its buffer");
        if flow != Flow::Lose && to.write_all(read).await.is_err() {
            return;
        }
        lane.bytes
            .fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        if matches!(flow, Flow::Slow(_)) {
            sleep(BEAT).await;
        }
    }
}

#[cfg(test)]
mod tests;
