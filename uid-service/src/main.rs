//! `uid-service`: the UID service alone, on a store of its own or on HBase.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use oxtsdb_server::connections::CLIENT_TIMEOUT;
use oxtsdb_server::{AdminListen, GrpcServer, ListenAddress, Program, ServerArgs, program, telemetry};
use uid_service::UidSettings;

/// Assigns and resolves UIDs
///
/// Each option is also an environment variable and a key of the TOML file that --config names: the
/// option's name with `_` for `-`, at the top or in a table named after the heading (Naming is
/// `[naming]`). Options take precedence over variables, variables over the file.
#[derive(Debug, Parser)]
#[command(name = "uid-service", version, max_term_width = 110)]
struct Cli {
    /// Address and port of gRPC; port 0 selects a free port
    #[arg(
        long,
        env = "OXTSDB_UID_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4244",
        help_heading = "Listeners"
    )]
    uid_listen: SocketAddr,
    /// Address and port of metrics and health over HTTP, see docs/operate.md. `or free`: a free
    /// port if this one is in use; `none`: no such port
    #[arg(
        long,
        env = "OXTSDB_ADMIN_LISTEN",
        value_name = "ADDRESS:PORT|none",
        default_value = "127.0.0.1:4246 or free",
        help_heading = "Listeners"
    )]
    admin_listen: AdminListen,
    /// What to log to standard error, for example `info` or `warn,uid_service=debug`
    #[arg(
        long,
        env = "OXTSDB_LOG",
        value_name = "FILTER",
        default_value = telemetry::DEFAULT_FILTER
    )]
    log: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    uids: UidSettings,
}

fn main() -> ExitCode {
    program::main(run)
}

#[tokio::main]
async fn run(cli: Cli) -> anyhow::Result<()> {
    let _telemetry = telemetry::init_service("uid-service", &cli.log, &cli.server)?;
    let part = uid_service::store_part(&cli.uids)?;
    let program = Program {
        name: "uid-service",
        args: &cli.server,
        stores: [&part],
        listeners: [ListenAddress {
            name: "uid",
            flag: "--uid-listen",
            address: cli.uid_listen,
        }],
        admin: cli.admin_listen,
        fixed_bytes: cli.uids.fixed_bytes(),
        client_timeout: CLIENT_TIMEOUT,
    };
    program
        .run(async |host, [store]| {
            let settings = cli.uids.clone().with_fixed_share(&host.share);
            let writers = cli.server.store.store.writers();
            let probe = part.probe(&store);
            let service = uid_service::assemble(store, writers, &settings, host.shutdown.clone()).await?;
            service.report_to(&host.admin);
            Ok([host.grpc("uid", service.add_to(GrpcServer::new()).depends_on(probe))])
        })
        .await
}
