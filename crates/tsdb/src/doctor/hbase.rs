//! HBase as a start of a server checks it: gateways, tables, widths of UIDs, salt.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_row_store::RowStore;
use oxtsdb_row_store::hbase::HbaseStore;
use oxtsdb_server::store::{HbaseSettings, StoreTable};
use uid_service::UidSettings;

use super::finding::{Finding, Level};
use crate::table_args::TableArgs;

/// Checks each gateway, and then through all of them the tables.
///
/// # Errors
///
/// A setting breaks its rule.
pub(super) async fn check(args: &TableArgs) -> anyhow::Result<Vec<Finding>> {
    let settings = &args.hbase;
    settings.check()?;
    let uids = UidSettings {
        tables: args.uid_tables.clone(),
        ..UidSettings::default()
    };
    let data = args.data();
    let uid_part = uid_service::store_part(&uids)?;
    let data_part = data_service::store_part(&data, 0)?;
    let layout = args.layout()?;

    let place = settings.to_string();
    let mut findings = gateways(settings).await;
    if findings.iter().all(|finding| finding.level != Level::Ok) {
        findings
            .iter_mut()
            .for_each(|finding| finding.level = Level::Error);
        return Ok(findings);
    }
    let store = match settings.connect().await {
        Ok(store) => store,
        Err(error) => {
            let found = format!("{error:#}");
            findings.push(Finding::new(
                Level::Error,
                "HBase",
                &place,
                found,
                "see the logs of HBase",
            ));
            return Ok(findings);
        }
    };
    let tables: Vec<&StoreTable> = uid_part.tables().chain(data_part.tables()).collect();
    for table in &tables {
        findings.push(check_table(&store, table, &place).await);
    }
    let store: Arc<dyn RowStore> = Arc::new(store);
    // Without the tables there is nothing to compare.
    if findings.iter().all(|finding| finding.level != Level::Error) {
        let widths = uid_service::check_widths(Arc::clone(&store), &uids).await;
        let found = format!(
            "stored UIDs have {}/{}/{} bytes, or there are none",
            args.uid_tables.uid_width_metric, args.uid_tables.uid_width_tagk, args.uid_tables.uid_width_tagv
        );
        findings.push(compared("UID widths", &place, &widths, found));
        let salt = data_service::open_tables(Arc::clone(&store), None, layout, &data).await;
        let found = "stored row keys have the salt and the widths of the settings, or there are none";
        findings.push(compared("salt", &place, &salt, found.to_owned()));
    }
    store.close().await?;
    Ok(findings)
}

/// Whether each gateway responds. One that does not is a warning: servers distribute their calls over the others.
async fn gateways(settings: &HbaseSettings) -> Vec<Finding> {
    let addresses = settings
        .hbase_thrift
        .as_ref()
        .map_or(&[][..], |gateways| gateways.addresses());
    let mut findings = Vec::new();
    for address in addresses {
        let Ok(gateway) = address.parse() else {
            continue;
        };
        let alone = HbaseSettings {
            hbase_thrift: Some(gateway),
            hbase_connections: 1,
            ..settings.clone()
        };
        let begun = Instant::now();
        findings.push(match alone.connect().await {
            Ok(_) => Finding::ok(
                "gateways",
                address,
                format!("responds within {} ms", begun.elapsed().as_millis()),
            ),
            Err(error) => Finding::new(
                Level::Warning,
                "gateways",
                address,
                format!("{error:#}"),
                "start HBase's Thrift server there (`hbase thrift start`), or take it out of --hbase-thrift",
            ),
        });
    }
    findings
}

async fn check_table(store: &HbaseStore, table: &StoreTable, place: &str) -> Finding {
    let name = &table.def.name;
    let error = |found, advice: String| Finding::new(Level::Error, "tables", place, found, advice);
    match store.table(name).await {
        Ok(Some(found)) => match table.check(&found, place) {
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

fn compared<T>(check: &'static str, place: &str, result: &anyhow::Result<T>, found: String) -> Finding {
    match result {
        Ok(_) => Finding::ok(check, place, found),
        Err(error) => Finding::new(
            Level::Error,
            check,
            place,
            format!("{error:#}"),
            "set the flag that the message names, of all servers, and do not write before that",
        ),
    }
}
