//! `tsdb serve`: both services in one process, on stores of their own or on one HBase.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use data_service::DataSettings;
use data_service::HttpTelnetServer;
use oxtsdb_client::UidClient;
use oxtsdb_resources::MemoryAccount;
use oxtsdb_row_store::RowStore;
use oxtsdb_server::connections::Connections;
use oxtsdb_server::store::{StorePart, StoreSettings};
use oxtsdb_server::{BoundAddress, GrpcOptions, GrpcServer, GrpcSettings, ProgramArgs, bind};
use tracing::{info, warn};
use uid_service::UidSettings;

use crate::settings::opentsdb_conf::Outcome;

/// Run both services in one process
///
/// Every option is also an environment variable and a key of the TOML file that --config names (the
/// option's name with `_` for `-`). An option wins over the variable, the variable over the file,
/// the file over opentsdb.conf.
///
/// When all is ready, standard output has one line,
/// `ready http=ADDRESS:PORT data=ADDRESS:PORT uid=ADDRESS:PORT`, with the ports that were taken where
/// 0 was asked for. SIGTERM and SIGINT drain: health says NOT_SERVING, what is under way is finished
/// and stored, and the exit status is 0. A start that fails says why in one line, status 1.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,

    /// Where HTTP and telnet are served; port 0 takes a free one
    #[arg(
        long,
        env = "OXTSDB_HTTP_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4242"
    )]
    http_listen: SocketAddr,

    /// Where the data service is served, gRPC
    #[arg(
        long,
        env = "OXTSDB_DATA_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4243"
    )]
    data_listen: SocketAddr,

    /// Where the UID service is served, gRPC
    #[arg(
        long,
        env = "OXTSDB_UID_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4244"
    )]
    uid_listen: SocketAddr,

    /// OpenTSDB's configuration file: what applies is used, what does not is listed in the log
    #[arg(long, env = "OXTSDB_OPENTSDB_CONF", value_name = "FILE")]
    opentsdb_conf: Option<PathBuf>,

    #[command(flatten)]
    grpc: GrpcSettings,

    #[command(flatten)]
    store: StoreSettings,

    #[command(flatten)]
    uids: UidSettings,

    #[command(flatten)]
    data: DataSettings,
}

/// What the two services keep in their stores.
struct Parts {
    uids: StorePart,
    data: StorePart,
}

/// Serves until a signal.
///
/// # Errors
///
/// If a setting, the store or a port cannot be used, or a service fails.
pub(crate) async fn run(args: ServeArgs, opentsdb_conf: Option<Outcome>) -> anyhow::Result<ExitCode> {
    report_settings(&args, opentsdb_conf.as_ref());
    // A bad setting ends the program before it makes a folder.
    let parts = Parts {
        uids: uid_service::store_part(&args.uids)?,
        data: data_service::store_part(&args.data)?,
    };
    let stores = args.store.memory_bytes(&[&parts.uids, &parts.data]);
    let fixed = stores + args.uids.fixed_bytes() + args.data.memory.fixed_bytes();
    let (memory, share) = args.program.memory(fixed)?;
    let args = ServeArgs {
        data: args.data.with_fixed_share(&share),
        uids: args.uids.with_fixed_share(&share),
        ..args
    };
    // Before the stores open their files.
    let connections = Connections::of_process();
    let grpc = GrpcOptions {
        client_timeout: args.data.connections.client_timeout(),
        memory: Some(memory.clone()),
        ..args.grpc.options(&connections)?
    };
    let (uid_store, data_store) = args.store.open_both(&parts.uids, &parts.data, &share).await?;
    let served = serve(
        args,
        grpc,
        &parts,
        &memory,
        Arc::clone(&uid_store),
        Arc::clone(&data_store),
    )
    .await;
    // What is stored is safe already; closing flushes, so that the next start is quick.
    let closed = data_store.close().await.and(uid_store.close().await);
    served?;
    closed.context("close the store")?;
    info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn report_settings(args: &ServeArgs, opentsdb_conf: Option<&Outcome>) {
    if let Some(path) = &args.program.config {
        info!(path = %path.display(), "settings are read");
    }
    let Some(conf) = opentsdb_conf else { return };
    let path = args
        .opentsdb_conf
        .as_deref()
        .unwrap_or(Path::new("opentsdb.conf"));
    info!(path = %path.display(), used = conf.used.join(" "), "settings of OpenTSDB are used");
    if !conf.unused.is_empty() {
        warn!(path = %path.display(), unused = conf.unused.join(" "), "settings of OpenTSDB have no effect here");
    }
}

async fn serve(
    args: ServeArgs,
    grpc: GrpcOptions,
    parts: &Parts,
    memory: &MemoryAccount,
    uid_store: Arc<dyn RowStore>,
    data_store: Arc<dyn RowStore>,
) -> anyhow::Result<()> {
    // A port that is taken ends the start early; clients are refused until all is ready.
    let http = take(args.http_listen, "--http-listen")?;
    let data = take(args.data_listen, "--data-listen")?;
    let uid = take(args.uid_listen, "--uid-listen")?;
    let (shutdown, trigger) = args.program.shutdown();
    let signals = tokio::spawn(trigger.on_signal());

    let (uid_probe, data_probe) = (parts.uids.probe(&uid_store), parts.data.probe(&data_store));
    let uid_service = uid_service::assemble(uid_store, &args.uids).await?;
    let client = UidClient::in_process(uid_service.clone());
    let service =
        data_service::assemble::assemble(data_store, client, args.data.clone(), memory, shutdown.clone())
            .await?;
    let http_telnet = HttpTelnetServer::new(
        service.writer.clone(),
        service.engine.clone(),
        service.uids.clone(),
        &args.data,
    )
    .with_connections(&grpc.connections);

    let (http, data, uid) = (http.listen()?, data.listen()?, uid.listen()?);
    let ready = format!(
        "ready http={} data={} uid={}",
        http.local_addr()?,
        data.local_addr()?,
        uid.local_addr()?
    );
    info!(store = %args.store, "{ready}");
    println!("{ready}");
    tokio::try_join!(
        GrpcServer::new()
            .service(uid_service)
            .depends_on(uid_probe)
            .serve(uid, grpc.clone(), shutdown.clone()),
        GrpcServer::new()
            .service(service.server())
            .depends_on(data_probe)
            .serve(data, grpc, shutdown.clone()),
        async {
            http_telnet.serve(http, shutdown.clone()).await;
            Ok(())
        },
    )?;
    signals.abort();
    Ok(())
}

fn take(address: SocketAddr, flag: &str) -> anyhow::Result<BoundAddress> {
    bind(address).with_context(|| flag.to_owned())
}
