//! `data-service`: the data service alone, on a store of its own or on HBase, with a UID service
//! elsewhere.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Parser;
use data_service::{DataSettings, UidAccess, assemble, points_part, store_part};
use oxtsdb_allocator as _;
use oxtsdb_client::UidClient;
use oxtsdb_metadata::uids::UidsError;
use oxtsdb_server::{AdminListen, GrpcServer, ListenAddress, Program, ServerArgs, program, telemetry};

/// Writes and queries points, over gRPC, HTTP and telnet
///
/// Each option is also an environment variable and a key of the TOML file that --config names: the
/// option's name with `_` for `-`, at the top or in a table named after the heading (Write streams is
/// `[write_streams]`). Options take precedence over variables, variables over the file. The ports open
/// when the UID service has responded.
#[derive(Debug, Parser)]
#[command(name = "data-service", version, max_term_width = 110)]
struct Cli {
    /// Address and port of HTTP and telnet; port 0 selects a free port
    #[arg(
        long,
        env = "OXTSDB_HTTP_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4242",
        help_heading = "Listeners"
    )]
    http_listen: SocketAddr,
    /// Address and port of gRPC
    #[arg(
        long,
        env = "OXTSDB_DATA_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4243",
        help_heading = "Listeners"
    )]
    data_listen: SocketAddr,
    /// Address and port of metrics, health and debugging over HTTP, see docs/operate.md. `or free`: a free
    /// port if this one is in use; `none`: no such port
    #[arg(
        long,
        env = "OXTSDB_ADMIN_LISTEN",
        value_name = "ADDRESS:PORT|none",
        default_value = "127.0.0.1:4245 or free",
        help_heading = "Listeners"
    )]
    admin_listen: AdminListen,
    /// What to log to standard error, for example `info` or `warn,data_service=debug`
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
    data: DataSettings,
    /// URLs of the UID service's replicas, separated by commas. A host name with several addresses stands for
    /// all of them
    #[arg(
        long,
        env = "OXTSDB_UID_ENDPOINT",
        value_name = "URL,...",
        default_value = "http://127.0.0.1:4244",
        help_heading = "Naming"
    )]
    uid_endpoint: String,
    #[command(flatten)]
    uid_access: UidAccess,
}

fn main() -> ExitCode {
    program::main(run)
}

#[tokio::main]
async fn run(cli: Cli) -> anyhow::Result<()> {
    let _telemetry = telemetry::init_service("data-service", &cli.log, &cli.server)?;
    let part = store_part(&cli.data, cli.server.memory.limit_bytes()?)?;
    let uids = uid_client(&cli)?;
    let program = Program {
        name: "data-service",
        args: &cli.server,
        stores: [&part],
        listeners: [
            ListenAddress {
                name: "http",
                flag: "--http-listen",
                address: cli.http_listen,
            },
            ListenAddress {
                name: "data",
                flag: "--data-listen",
                address: cli.data_listen,
            },
        ],
        admin: cli.admin_listen,
        fixed_bytes: cli.data.fixed_bytes(),
        client_timeout: cli.data.connections.client_timeout(),
    };
    program
        .run(async |host, [store]| {
            let settings = cli.data.clone().with_fixed_share(&host.share);
            let points = points_part(
                &cli.server.store,
                &host.embedded,
                &part,
                &settings,
                &host.memory,
                &host.share,
            );
            let (memory, shutdown) = (&host.memory, host.shutdown.clone());
            let store = (store, cli.server.store.store);
            let service = assemble(store, points, uids, settings.clone(), memory, shutdown).await;
            let service = service.map_err(|error| match error.is::<UidsError>() {
                true => error.context(format!("--uid-endpoint {}", cli.uid_endpoint)),
                false => error,
            })?;
            let grpc = service
                .add_to(GrpcServer::new())
                .depends_on(part.probe(&service.store));
            service.report_to(&host.admin);
            host.close_at_end(service.store.clone());
            Ok([service.http_and_telnet(host), host.grpc("data", grpc)])
        })
        .await
}

/// A replica that hangs is noticed after 5 s, and the calls that wait for it are sent to another one.
fn uid_client(cli: &Cli) -> anyhow::Result<UidClient> {
    let client = cli.uid_access.client(&cli.uid_endpoint)?;
    client
        .on_request(telemetry::propagate)
        .keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(3))
        .uid()
        .map_err(|error| anyhow!("--uid-endpoint: {error}"))
}
