//! `uid-service`: the UID service alone, on a store of its own or on HBase.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use oxtsdb_row_store::RowStore;
use oxtsdb_server::connections::Connections;
use oxtsdb_server::store::{StorePart, StoreSettings};
use oxtsdb_server::{GrpcOptions, GrpcServer, GrpcSettings, ProgramArgs, bind, program, telemetry};
use tracing::info;
use uid_service::UidSettings;

/// Names of metrics, tag keys and tag values, and their UIDs, over gRPC.
///
/// Each flag is also a key of the TOML file (with `_` for `-`); a flag or an environment variable
/// wins over the file.
#[derive(Debug, Parser)]
#[command(name = "uid-service", version)]
struct Cli {
    #[command(flatten)]
    program: ProgramArgs,
    /// Address and port of gRPC
    #[arg(
        long,
        env = "OXTSDB_UID_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4244"
    )]
    uid_listen: SocketAddr,
    /// What to log to standard error, for example `info` or `warn,uid_service=debug`
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
    uids: UidSettings,
}

fn main() -> ExitCode {
    program::main(run)
}

#[tokio::main]
async fn run(cli: Cli) -> anyhow::Result<()> {
    telemetry::init(&cli.log, cli.program.log_format)?;
    // A bad setting ends the program before it makes a folder.
    let part = uid_service::store_part(&cli.uids)?;
    // Before the store opens its files.
    let fixed = cli.store.memory_bytes(&[&part]) + cli.uids.fixed_bytes();
    let (memory, share) = cli.program.memory(fixed)?;
    let grpc = GrpcOptions {
        memory: Some(memory.clone()),
        ..cli.grpc.options(&Connections::of_process())?
    };
    let cli = Cli {
        uids: cli.uids.with_fixed_share(&share),
        ..cli
    };
    let store = cli.store.open(&part, &share).await?;
    let served = serve(&cli, grpc, &part, Arc::clone(&store)).await;
    // What is stored is safe already; closing flushes, so that the next start is quick.
    let closed = store.close().await.context("close the store");
    served?;
    closed?;
    info!("stopped");
    Ok(())
}

async fn serve(
    cli: &Cli,
    options: GrpcOptions,
    part: &StorePart,
    store: Arc<dyn RowStore>,
) -> anyhow::Result<()> {
    let bound = bind(cli.uid_listen)?;
    let probe = part.probe(&store);
    let service = uid_service::assemble(store, &cli.uids).await?;
    let listener = bound.listen()?;
    let (shutdown, trigger) = cli.program.shutdown();
    let signals = tokio::spawn(trigger.on_signal());
    let served = GrpcServer::new()
        .service(service)
        .depends_on(probe)
        .serve(listener, options, shutdown)
        .await;
    signals.abort();
    served
}
