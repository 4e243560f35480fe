//! HBase as a start of a server checks it: gateways or the cluster, security, tables, widths of UIDs, salt.

mod security;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use oxtsdb_command::table_args::TableArgs;
use oxtsdb_row_store::RowStore;
use oxtsdb_row_store::hbase::Hbase;
use oxtsdb_schema::RowKeyLayout;
use oxtsdb_server::admin::deployment::{SaltFacts, WidthFacts};
use oxtsdb_server::store::{HbaseSettings, StoreTable};
use uid_service::UidSettings;

use super::agreement::{salt, widths};
use super::finding::{Finding, Level};
use super::server::Server;

/// Checks each gateway, then through all of them the tables, and whether servers use these.
pub(super) async fn check(args: &TableArgs, timeout: Duration, servers: &[Server]) -> Vec<Finding> {
    let most_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let settings = HbaseSettings {
        hbase_connect_timeout_ms: args.hbase.hbase_connect_timeout_ms.min(most_ms),
        hbase_request_timeout_ms: args.hbase.hbase_request_timeout_ms.min(most_ms),
        ..args.hbase.clone()
    };
    let place = settings.to_string();
    let mut findings = Vec::new();
    if let Err(error) = check_all(args, &settings, servers, &mut findings).await {
        let advice = "correct the setting that the message names, or see the logs of HBase";
        findings.push(Finding::new(
            Level::Error,
            "HBase",
            &place,
            format!("{error:#}"),
            advice,
        ));
    }
    findings
}

async fn check_all(
    args: &TableArgs,
    settings: &HbaseSettings,
    servers: &[Server],
    findings: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    settings.check()?;
    let uids = UidSettings {
        tables: args.uid_tables.clone(),
        ..UidSettings::default()
    };
    let data = args.data();
    let uid_part = uid_service::store_part(&uids)?;
    let data_part = data_service::store_part(&data, 0)?;
    let layout = args.layout()?;
    let tables: Vec<&StoreTable> = uid_part.tables().chain(data_part.tables()).collect();
    findings.extend(servers.iter().map(|server| used_by(server, &tables, &layout)));

    let place = settings.to_string();
    let mut of_gateways = gateways(settings).await;
    let has_any = of_gateways.iter().any(|finding| finding.level == Level::Ok);
    if !has_any {
        of_gateways
            .iter_mut()
            .for_each(|finding| finding.level = Level::Error);
    }
    findings.append(&mut of_gateways);
    if !has_any {
        return Ok(());
    }
    let store = settings.connect().await?;
    if settings.is_native() {
        findings.extend(security::check(
            settings,
            &store.tls_peers(),
            &store.kerberos_peers(),
        ));
    }
    let mut of_tables = Vec::new();
    for table in &tables {
        of_tables.push(check_table(&*store, table, &place).await);
    }
    let has_tables = of_tables.iter().all(|finding| finding.level == Level::Ok);
    findings.append(&mut of_tables);
    let store: Arc<dyn RowStore> = store;
    // Without the tables there is nothing to compare.
    if has_tables {
        let widths = uid_service::check_widths(Arc::clone(&store), &uids).await;
        let message = format!("stored UIDs have {} bytes, or there are none", widths_of(&layout));
        findings.push(compared("UID widths", &place, &widths, message));
        let salt = data_service::open_tables(Arc::clone(&store), None, layout, &data).await;
        let message = "stored row keys have the salt and the widths of the settings, or there are none";
        findings.push(compared("salt", &place, &salt, message.to_owned()));
    }
    Ok(store.close().await?)
}

fn widths_of(layout: &RowKeyLayout) -> String {
    widths(WidthFacts {
        metric: layout.widths.metric.bytes(),
        tagk: layout.widths.tagk.bytes(),
        tagv: layout.widths.tagv.bytes(),
    })
}

/// Whether a server uses the tables that are checked, in their layout.
fn used_by(server: &Server, tables: &[&StoreTable], layout: &RowKeyLayout) -> Finding {
    let facts = &server.facts;
    let mut differences = Vec::new();
    if facts.store != "hbase" {
        differences.push(format!("its store is {}", facts.store));
    }
    for table in tables {
        let used = facts.tables.get(table.setting);
        if let Some(used) = used.filter(|used| **used != table.def.name.to_string()) {
            differences.push(format!("{} is {used}, not {}", table.setting, table.def.name));
        }
    }
    let checked = widths_of(layout);
    if let Some(used) = facts.uid_widths.map(widths).filter(|used| *used != checked) {
        differences.push(format!("its UIDs have {used} bytes, not {checked}"));
    }
    let checked = SaltFacts {
        width: layout.salt.width(),
        buckets: layout.salt.bucket_count(),
    };
    if let Some(used) = facts.salt.filter(|used| salt(*used) != salt(checked)) {
        differences.push(format!("its salt is {}, not {}", salt(used), salt(checked)));
    }
    match differences.as_slice() {
        [] => Finding::ok("settings", &server.url, "those of the tables that are checked"),
        differences => Finding::new(
            Level::Error,
            "settings",
            &server.url,
            format!(
                "the server uses other tables or settings than are checked: {}",
                differences.join("; ")
            ),
            "call the doctor with the server's settings (--config, --data-table, --salt-width, …), or correct the server's",
        ),
    }
}

/// Whether each gateway responds. One that does not is a warning: servers distribute their calls over the others. Without
/// gateways: whether the master and `hbase:meta` respond.
async fn gateways(settings: &HbaseSettings) -> Vec<Finding> {
    if settings.is_native() {
        return vec![cluster(settings).await];
    }
    let addresses = settings
        .hbase_thrift
        .as_ref()
        .map_or(&[][..], |gateways| gateways.addresses());
    join_all(addresses.iter().map(|address| gateway(settings, address))).await
}

async fn cluster(settings: &HbaseSettings) -> Finding {
    let (place, begun) = (settings.to_string(), Instant::now());
    match settings.connect().await {
        Ok(_) => {
            let message = format!(
                "its master and hbase:meta respond within {} ms",
                begun.elapsed().as_millis()
            );
            Finding::ok("cluster", &place, message)
        }
        Err(error) => Finding::new(
            Level::Warning,
            "cluster",
            &place,
            format!("{error:#}"),
            "start HBase, or correct the setting that the message names",
        ),
    }
}

async fn gateway(settings: &HbaseSettings, address: &str) -> Finding {
    let alone = HbaseSettings {
        hbase_thrift: address.parse().ok(),
        hbase_connections: 1,
        ..settings.clone()
    };
    let begun = Instant::now();
    match alone.connect().await {
        Ok(_) => {
            let message = format!("responds within {} ms", begun.elapsed().as_millis());
            Finding::ok("gateways", address, message)
        }
        Err(error) => Finding::new(
            Level::Warning,
            "gateways",
            address,
            format!("{error:#}"),
            "start HBase's Thrift server there (`hbase thrift start`), or take it out of --hbase-thrift",
        ),
    }
}

async fn check_table(store: &dyn Hbase, table: &StoreTable, place: &str) -> Finding {
    let name = &table.def.name;
    let error = |message, advice: String| Finding::new(Level::Error, "tables", place, message, advice);
    match store.table(name).await {
        Ok(Some(def)) => match table.check(&def, place) {
            Ok(()) => Finding::ok("tables", place, format!("`{name}` has its column families")),
            Err(wrong) => error(wrong.to_string(), format!("correct {}", table.setting)),
        },
        Ok(None) => error(
            format!("table `{name}` is missing"),
            format!(
                "`tsdb tables create` creates it, or {} names another one",
                table.setting
            ),
        ),
        Err(failed) => error(
            format!("table `{name}`: {failed}"),
            "see the logs of HBase".to_owned(),
        ),
    }
}

fn compared<T>(check: &'static str, place: &str, result: &anyhow::Result<T>, message: String) -> Finding {
    match result {
        Ok(_) => Finding::ok(check, place, message),
        Err(error) => Finding::new(
            Level::Error,
            check,
            place,
            format!("{error:#}"),
            "set the flag that the message names, of all servers, and do not write before that",
        ),
    }
}
