//! `tsdb serve`: both services in one process, on stores of their own or on one HBase.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use data_service::DataSettings;
use oxtsdb_client::UidClient;
use oxtsdb_server::{AdminListen, GrpcServer, ListenAddress, Program, ServerArgs};
use tracing::{info, warn};
use uid_service::UidSettings;

use crate::settings::opentsdb_conf::Outcome;

/// Run both services in one process
///
/// Each option is also an environment variable and a key of the TOML file that --config names: the
/// option's name with `_` for `-`, at the top or in a table named after the heading (Write streams is
/// `[write_streams]`). Options take precedence over variables, variables over the file, the file over
/// opentsdb.conf. --print-config prints such a file, with the values that are set. --help lists the settings that
/// people change, --help-all every setting.
///
/// When the server is ready, it prints one line, `ready http=ADDRESS:PORT data=ADDRESS:PORT
/// uid=ADDRESS:PORT admin=ADDRESS:PORT`, with the ports that were selected for port 0. SIGTERM and SIGINT drain the server: health
/// reports NOT_SERVING, requests in progress are completed and stored, and the exit status is 0. A start that
/// fails reports the reason in one line, with status 1.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address and port of HTTP and telnet; port 0 selects a free port
    #[arg(
        long,
        env = "OXTSDB_HTTP_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4242",
        help_heading = "Listeners"
    )]
    http_listen: SocketAddr,

    /// Address and port of the data service, gRPC
    #[arg(
        long,
        env = "OXTSDB_DATA_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4243",
        help_heading = "Listeners"
    )]
    data_listen: SocketAddr,

    /// Address and port of the UID service, gRPC
    #[arg(
        long,
        env = "OXTSDB_UID_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:4244",
        help_heading = "Listeners"
    )]
    uid_listen: SocketAddr,

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

    /// OpenTSDB's configuration file. Settings that exist here are used, the others are listed in the log
    #[arg(long, env = "OXTSDB_OPENTSDB_CONF", value_name = "FILE")]
    opentsdb_conf: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    uids: UidSettings,

    #[command(flatten)]
    data: DataSettings,
}

/// Serves until a signal. `unknown_variables` are warnings that the log begins with.
///
/// # Errors
///
/// A setting, the store or a port cannot be used, or a service fails.
pub(crate) async fn run(
    args: ServeArgs,
    opentsdb_conf: Option<Outcome>,
    unknown_variables: Vec<String>,
) -> anyhow::Result<ExitCode> {
    log_settings(&args, opentsdb_conf.as_ref(), &unknown_variables);
    let uid_part = uid_service::store_part(&args.uids)?;
    let data_part = data_service::store_part(&args.data, args.server.memory.limit_bytes()?)?;
    let listen = |name, flag, address| ListenAddress { name, flag, address };
    let program = Program {
        name: "tsdb",
        args: &args.server,
        stores: [&uid_part, &data_part],
        listeners: [
            listen("http", "--http-listen", args.http_listen),
            listen("data", "--data-listen", args.data_listen),
            listen("uid", "--uid-listen", args.uid_listen),
        ],
        admin: args.admin_listen,
        fixed_bytes: args.uids.fixed_bytes() + args.data.fixed_bytes(),
        client_timeout: args.data.connections.client_timeout(),
    };
    program
        .run(async |host, [uid_store, data_store]| {
            let uid_settings = args.uids.clone().with_fixed_share(&host.share);
            let data_settings = args.data.clone().with_fixed_share(&host.share);
            let uid_probe = uid_part.probe(&uid_store);
            let points = data_service::points_part(
                &args.server.store,
                &host.embedded,
                &data_part,
                &data_settings,
                &host.memory,
                &host.share,
            );
            let (kind, shutdown) = (args.server.store.store, host.shutdown.clone());
            let uid_service =
                uid_service::assemble(uid_store, kind.writers(), &uid_settings, shutdown.clone()).await?;
            uid_service.report_to(&host.admin);
            let uids = UidClient::in_process(uid_service.routes());
            let data_service = data_service::assemble(
                (data_store, kind),
                points,
                uids,
                data_settings.clone(),
                &host.memory,
                shutdown,
            )
            .await?;
            data_service.report_to(&host.admin);
            host.close_at_end(data_service.store.clone());
            let data_probe = data_part.probe(&data_service.store);
            let data = data_service.add_to(GrpcServer::new());
            let uid = uid_service.add_to(GrpcServer::new());
            Ok([
                data_service.http_and_telnet(host),
                host.grpc("data", data.depends_on(data_probe)),
                host.grpc("uid", uid.depends_on(uid_probe)),
            ])
        })
        .await?;
    Ok(ExitCode::SUCCESS)
}

fn log_settings(args: &ServeArgs, opentsdb_conf: Option<&Outcome>, unknown_variables: &[String]) {
    for warning in unknown_variables {
        warn!("{warning}");
    }
    if let Some(path) = &args.server.program.config {
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
