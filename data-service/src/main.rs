//! `data-service`: the data service alone, on a store of its own or on HBase, with a UID service
//! elsewhere.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use clap::Parser;
use data_service::HttpTelnetServer;
use data_service::{DataSettings, UidsError, assemble, store_part};
use oxtsdb_client::UidClient;
use oxtsdb_resources::MemoryAccount;
use oxtsdb_row_store::RowStore;
use oxtsdb_server::connections::Connections;
use oxtsdb_server::store::{StorePart, StoreSettings};
use oxtsdb_server::{GrpcOptions, GrpcServer, GrpcSettings, ProgramArgs, Shutdown, bind, program, telemetry};
use tonic::transport::Endpoint;
use tracing::info;

/// Simple writes allocate a string for each name, which this allocator is quicker at than the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Writes points and answers queries, over gRPC, HTTP and telnet.
///
/// Each flag is also a key of the TOML file (with `_` for `-`); a flag or an environment variable
/// wins over the file. The ports open when the UID service has answered.
#[derive(Debug, Parser)]
#[command(name = "data-service", version)]
struct Cli {
    #[command(flatten)]
    program: ProgramArgs,
    /// Where the UID service is
    #[arg(
        long,
        env = "OXTSDB_UID_ENDPOINT",
        value_name = "http://HOST:PORT",
        default_value = "http://127.0.0.1:4244"
    )]
    uid_endpoint: String,
    /// Address and port of gRPC
    #[arg(
        long,
        env = "OXTSDB_DATA_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4243"
    )]
    data_listen: SocketAddr,
    /// Address and port of HTTP and telnet
    #[arg(
        long,
        env = "OXTSDB_HTTP_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4242"
    )]
    http_listen: SocketAddr,
    /// What to log to standard error, for example `info` or `warn,data_service=debug`
    #[arg(
        long,
        env = "OXTSDB_LOG",
        value_name = "FILTER",
        default_value = telemetry::DEFAULT_FILTER
    )]
    log: String,
    #[command(flatten)]
    grpc: GrpcSettings,
    #[command(flatten)]
    store: StoreSettings,
    #[command(flatten)]
    data: DataSettings,
}

fn main() -> ExitCode {
    program::main(run)
}

#[tokio::main]
async fn run(cli: Cli) -> anyhow::Result<()> {
    telemetry::init(&cli.log, cli.program.log_format)?;
    // A bad setting ends the program before it makes a folder.
    let part = store_part(&cli.data)?;
    cli.store.check()?;
    let endpoint = uid_endpoint(&cli.uid_endpoint)?;
    // A dead peer is noticed and the call repeated, in place of waiting for TCP to give up.
    let endpoint = endpoint
        .connect_timeout(Duration::from_secs(5))
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5));

    let (shutdown, trigger) = cli.program.shutdown();
    let signals = tokio::spawn(trigger.on_signal());
    let fixed = cli.store.memory_bytes(&[&part]) + cli.data.memory.fixed_bytes();
    let (memory, share) = cli.program.memory(fixed)?;
    let cli = Cli {
        data: cli.data.with_fixed_share(&share),
        ..cli
    };
    // Before the store opens its files.
    let connections = Connections::of_process();
    let grpc = GrpcOptions {
        client_timeout: cli.data.connections.client_timeout(),
        memory: Some(memory.clone()),
        ..cli.grpc.options(&connections)?
    };
    let store = cli.store.open(&part, &share).await?;
    let served = serve(&cli, grpc, endpoint, &part, &memory, Arc::clone(&store), shutdown).await;
    signals.abort();
    // What is stored is safe already; closing flushes, so that the next start is quick.
    let closed = store.close().await.context("close the store");
    served?;
    closed?;
    info!("stopped");
    Ok(())
}

fn uid_endpoint(text: &str) -> anyhow::Result<Endpoint> {
    let endpoint: Endpoint = text
        .parse()
        .map_err(|error| anyhow!("--uid-endpoint `{text}`: {error}"))?;
    ensure!(
        endpoint.uri().scheme_str() == Some("http"),
        "--uid-endpoint `{text}`: expected http://HOST:PORT"
    );
    Ok(endpoint)
}

async fn serve(
    cli: &Cli,
    options: GrpcOptions,
    uid_endpoint: Endpoint,
    part: &StorePart,
    memory: &MemoryAccount,
    store: Arc<dyn RowStore>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let (http, data) = (bind(cli.http_listen)?, bind(cli.data_listen)?);
    let client = UidClient::connect_lazy(&uid_endpoint);
    let probe = part.probe(&store);
    let assembled = assemble(store, client, cli.data.clone(), memory, shutdown.clone()).await;
    let service = match assembled {
        // Asked to end while it waited for the UID service.
        Err(_) if shutdown.is_draining() => return Ok(()),
        Err(error) if error.is::<UidsError>() => {
            return Err(error.context(format!("--uid-endpoint {}", cli.uid_endpoint)));
        }
        assembled => assembled?,
    };
    let (http, data) = (http.listen()?, data.listen()?);
    info!(http = %http.local_addr()?, data = %data.local_addr()?, store = %cli.store, "ready");
    println!("ready http={} data={}", http.local_addr()?, data.local_addr()?);

    let grpc = GrpcServer::new().service(service.server()).depends_on(probe);
    let http_telnet = HttpTelnetServer::new(service.writer, service.engine, service.uids, &cli.data)
        .with_connections(&options.connections);
    let (grpc, ()) = tokio::join!(
        grpc.serve(data, options, shutdown.clone()),
        http_telnet.serve(http, shutdown)
    );
    grpc
}
