use std::net::TcpListener as StdListener;

use clap::Parser;
use oxtsdb_row_store::{ColumnSelection, TableDef};

use super::*;
use crate::store::StoreTable;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    server: ServerArgs,
}

fn args(folder: &std::path::Path) -> ServerArgs {
    let data_dir = format!("--data-dir={}", folder.display());
    Cli::parse_from(["program", &data_dir]).server
}

fn part() -> StorePart {
    StorePart {
        folder: "part",
        table: StoreTable {
            setting: "--table",
            default_name: "table",
            def: TableDef::new("table".parse().unwrap(), &["f"]),
        },
        others: Vec::new(),
        own: Vec::new(),
        memory_bytes: 16 << 20,
        points_bytes: 0,
    }
}

fn program<'a, const L: usize>(
    args: &'a ServerArgs,
    part: &'a StorePart,
    listeners: [ListenAddress; L],
) -> Program<'a, 1, L> {
    Program {
        name: "program",
        args,
        stores: [part],
        listeners,
        admin: AdminListen::None,
        fixed_bytes: 0,
        client_timeout: Duration::from_secs(30),
    }
}

fn listener(address: SocketAddr) -> ListenAddress {
    ListenAddress {
        name: "grpc",
        flag: "--listen",
        address,
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn port_in_use_ends_the_start_before_services_are_assembled() {
    let folder = tempfile::tempdir().unwrap();
    let (args, part) = (args(folder.path()), part());
    let taken = StdListener::bind(ANY).unwrap();
    let address = taken.local_addr().unwrap();
    let started = program(&args, &part, [listener(address)])
        .run(async |_, _| panic!("assembled"))
        .await;
    let error = format!("{:#}", started.unwrap_err());
    assert!(
        error.starts_with(&format!("--listen {address}: the port is in use; ")),
        "{error}"
    );
}

#[tokio::test]
async fn admin_port_in_use_is_named_with_its_flag() {
    let folder = tempfile::tempdir().unwrap();
    let (args, part) = (args(folder.path()), part());
    let taken = StdListener::bind(ANY).unwrap();
    let address = taken.local_addr().unwrap();
    let program = Program {
        admin: AdminListen::At(address),
        ..program(&args, &part, [listener(ANY)])
    };
    let started = program.run(async |_, _| panic!("assembled")).await;
    let error = format!("{:#}", started.unwrap_err());
    assert_eq!(
        error,
        format!(
            "--admin-listen {address}: the port is in use; if another server runs here, set another port, 0 for a free \
             one, or `none` for no listener"
        )
    );
}

#[tokio::test]
async fn admin_port_in_use_is_replaced_if_any_will_do() {
    // No other test uses this address.
    let taken = StdListener::bind("127.0.0.77:0").unwrap();
    let address = taken.local_addr().unwrap();
    let started = AdminListener::start(AdminListen::AtOrFree(address), Admin::default()).unwrap();
    let free = started.address.unwrap();
    assert_eq!(free.ip(), address.ip());
    assert_ne!(free.port(), address.port());
    drop(taken);
    let started = AdminListener::start(AdminListen::AtOrFree(address), Admin::default()).unwrap();
    assert_eq!(started.address, Some(address));
}

#[tokio::test]
async fn closes_stores_when_assembly_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (args, part) = (args(folder.path()), part());
    let mut opened = None;
    let started = program(&args, &part, [listener(ANY)])
        .run(async |_, [store]| {
            opened = Some(store);
            anyhow::bail!("no such service")
        })
        .await;
    assert_eq!(started.unwrap_err().to_string(), "no such service");
    let (store, table) = (opened.unwrap(), part.table.def.name.clone());
    let read = store.get(&table, b"row", &ColumnSelection::default()).await;
    assert!(read.is_err(), "the store is closed");
}

#[tokio::test]
async fn front_end_failure_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (args, part) = (args(folder.path()), part());
    let started = program(&args, &part, [listener(ANY), listener(ANY)])
        .run(async |host, _| {
            let fails = FrontEnd::new(|_, _| async { anyhow::bail!("cannot serve") });
            Ok([host.grpc("grpc", GrpcServer::new()), fails])
        })
        .await;
    assert_eq!(started.unwrap_err().to_string(), "cannot serve");
}
