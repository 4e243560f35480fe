//! Settings and tables that the servers of a deployment have to agree on.

use std::collections::BTreeMap;

use oxtsdb_server::admin::deployment::{SaltFacts, WidthFacts};

use super::finding::{Finding, Level};
use super::server::Server;

/// From this difference on points, deadlines and rollups are attributed to wrong times.
const CLOCK_WARNING_MS: i64 = 1_000;

/// From this difference on tokens are rejected (`--token-leeway-seconds`), and retention and rollups go wrong.
const CLOCK_ERROR_MS: i64 = 30_000;

pub(super) fn check(servers: &[Server]) -> Vec<Finding> {
    if servers.is_empty() {
        return Vec::new();
    }
    let mut findings = vec![versions(servers)];
    findings.extend(servers.iter().map(clock));
    findings.extend(stores(servers));
    findings.push(same(
        "UID widths",
        servers,
        |server| server.facts.uid_widths.map(widths),
        Level::Error,
        "set --uid-width-metric, --uid-width-tagk and --uid-width-tagv of all UID services to those of the stored UIDs, and \
         restart the data services",
    ));
    findings.push(same(
        "salt",
        servers,
        |server| server.facts.salt.map(salt),
        Level::Error,
        "set --salt-width and --salt-buckets of all data services to those of the stored row keys",
    ));
    let mut settings: Vec<&String> = servers
        .iter()
        .flat_map(|server| server.facts.tables.keys())
        .collect();
    settings.sort_unstable();
    settings.dedup();
    let tables = settings.into_iter().map(|setting| {
        same(
            "tables",
            servers,
            |server| {
                let table = server.facts.tables.get(setting)?;
                Some(format!("{setting} {table}"))
            },
            Level::Error,
            "servers of one deployment use the same tables",
        )
    });
    findings.extend(tables);
    findings.extend(gateways(servers));
    findings
}

/// Servers of one service share their store. Only one process opens an embedded store, so two have different points or
/// names.
fn stores(servers: &[Server]) -> [Finding; 2] {
    [
        stores_of("data services", servers, Server::has_data_service),
        stores_of("UID services", servers, Server::has_uid_service),
    ]
}

fn stores_of(service: &str, servers: &[Server], is_of: fn(&Server) -> bool) -> Finding {
    let embedded: Vec<&str> = servers
        .iter()
        .filter(|server| is_of(server) && server.facts.store == "embedded")
        .map(|server| server.url.as_str())
        .collect();
    if embedded.len() > 1 {
        return Finding::new(
            Level::Error,
            "stores",
            "",
            format!(
                "{service} with embedded stores of their own: {}",
                embedded.join(" ")
            ),
            "replicas need HBase (--store hbase). Servers of other deployments do not belong to --admin",
        );
    }
    same(
        "stores",
        servers,
        |server| is_of(server).then(|| server.facts.store.clone()),
        Level::Error,
        "all servers of a service use the same store: set --store",
    )
}

/// Whether both services are among the servers, and all have responded.
pub(super) fn coverage(servers: &[Server]) -> Finding {
    let missing = match (
        servers.iter().any(Server::has_data_service),
        servers.iter().any(Server::has_uid_service),
    ) {
        (true, true) => return Finding::ok("servers", "", format!("{} with both services", servers.len())),
        (true, false) => "UID service",
        (false, _) => "data service",
    };
    Finding::new(
        Level::Note,
        "servers",
        "",
        format!("no {missing} is among the servers, it is not checked"),
        format!("add the admin listener of the {missing} to --admin URL,URL"),
    )
}

fn versions(servers: &[Server]) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    let finding = same(
        "versions",
        servers,
        |server| Some(server.facts.version.clone()),
        Level::Warning,
        "finish the upgrade: run one version on all servers",
    );
    match servers.iter().find(|server| server.facts.version != own) {
        Some(server) if finding.level == Level::Ok => Finding::new(
            Level::Note,
            "versions",
            "",
            format!("servers have {}, this program is {own}", server.facts.version),
            "use the program of the servers' version",
        ),
        _ => finding,
    }
}

fn clock(server: &Server) -> Finding {
    let clock = server.clock;
    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let message = format!(
        "{:.2} s {} of this machine's (± {:.2} s)",
        seconds(clock.ahead_ms.abs()),
        if clock.ahead_ms < 0 { "behind" } else { "ahead" },
        seconds(clock.error_ms)
    );
    let level = match clock.least_difference_ms() {
        CLOCK_ERROR_MS.. => Level::Error,
        CLOCK_WARNING_MS.. => Level::Warning,
        _ => return Finding::ok("clock", &server.url, message),
    };
    Finding::new(
        level,
        "clock",
        &server.url,
        message,
        "synchronize the clocks of all machines (NTP): retention, rollups and tokens depend on them",
    )
}

/// Gateways, which are of HBase only.
fn gateways(servers: &[Server]) -> Option<Finding> {
    let lists = |server: &Server| {
        let mut gateways = server.facts.gateways.clone();
        gateways.sort_unstable();
        (!gateways.is_empty()).then(|| gateways.join(","))
    };
    servers.iter().find_map(lists)?;
    let finding = same(
        "gateways",
        servers,
        lists,
        Level::Note,
        "servers can use different gateways, but these must lead to one HBase: compare --hbase-thrift",
    );
    let single = servers.iter().find(|server| server.facts.gateways.len() == 1);
    Some(match single {
        Some(server) if finding.level == Level::Ok => Finding::new(
            Level::Note,
            "gateways",
            "",
            format!(
                "{} is the only address: unless it stands for several Thrift servers, nothing works without it",
                server.facts.gateways.join(",")
            ),
            "run a second Thrift server and add it: --hbase-thrift HOST:PORT,HOST:PORT",
        ),
        _ => finding,
    })
}

/// Whether all servers that have a value have the same.
fn same(
    check: &'static str,
    servers: &[Server],
    value: impl Fn(&Server) -> Option<String>,
    level: Level,
    advice: &str,
) -> Finding {
    let mut values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for server in servers {
        if let Some(value) = value(server) {
            values.entry(value).or_default().push(&server.url);
        }
    }
    match values.len() {
        0 => Finding::ok(check, "", "not known yet"),
        1 => Finding::ok(check, "", values.into_keys().collect::<String>()),
        _ => {
            let groups = values
                .iter()
                .map(|(value, urls)| format!("{value} at {}", urls.join(" ")));
            let message = format!("servers differ: {}", groups.collect::<Vec<_>>().join("; "));
            Finding::new(level, check, "", message, advice)
        }
    }
}

pub(super) fn widths(of: WidthFacts) -> String {
    format!("{}/{}/{}", of.metric, of.tagk, of.tagv)
}

pub(super) fn salt(of: SaltFacts) -> String {
    match of.width {
        0 => "none".to_owned(),
        width => format!("{width} bytes, {} buckets", of.buckets),
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::Clock;
    use super::super::server::tests::server;
    use super::*;

    fn two() -> [Server; 2] {
        let (mut data, mut uid) = (server(""), server(""));
        data.facts.program = "data-service".to_owned();
        data.facts.salt = Some(SaltFacts {
            width: 1,
            buckets: 20,
        });
        uid.facts.program = "uid-service".to_owned();
        uid.url = "http://b:4246".to_owned();
        let widths = WidthFacts {
            metric: 3,
            tagk: 3,
            tagv: 3,
        };
        for one in [&mut data, &mut uid] {
            one.facts.version = env!("CARGO_PKG_VERSION").to_owned();
            one.facts.uid_widths = Some(widths);
        }
        [data, uid]
    }

    fn problems(servers: &[Server]) -> Vec<Finding> {
        let findings = check(servers);
        findings
            .into_iter()
            .filter(|finding| finding.level != Level::Ok)
            .collect()
    }

    fn one_problem(change: impl FnOnce(&mut [Server; 2])) -> Finding {
        let mut servers = two();
        change(&mut servers);
        let [finding] = <[Finding; 1]>::try_from(problems(&servers)).unwrap();
        assert!(!finding.advice.is_empty());
        finding
    }

    #[test]
    fn servers_that_agree_have_no_problems() {
        assert_eq!(problems(&two()), []);
        assert_eq!(check(&[]), []);
    }

    #[test]
    fn differences_name_the_values_and_the_servers() {
        let widths = one_problem(|[_, uid]| uid.facts.uid_widths.as_mut().unwrap().tagv = 4);
        assert_eq!((widths.level, widths.check), (Level::Error, "UID widths"));
        assert_eq!(
            widths.message,
            "servers differ: 3/3/3 at http://a:4245; 3/3/4 at http://b:4246"
        );
        let salt = one_problem(|[_, other]| {
            other.facts.salt = Some(SaltFacts {
                width: 0,
                buckets: 20,
            });
        });
        assert!(
            salt.message
                .contains("1 bytes, 20 buckets at http://a:4245; none at")
        );
        let tables = one_problem(|[data, uid]| {
            for (server, table) in [(data, "tsdb"), (uid, "tsdb2")] {
                let tables = &mut server.facts.tables;
                tables.insert("--data-table".to_owned(), table.to_owned());
            }
        });
        assert!(
            tables.message.contains("--data-table tsdb2 at http://b:4246"),
            "{tables:?}"
        );
        let stores = one_problem(|[data, uid]| {
            // Two of the same service, each with a store of its own.
            uid.facts.program = "tsdb".to_owned();
            data.facts.program = "data-service".to_owned();
        });
        assert_eq!((stores.level, stores.check), (Level::Error, "stores"));
        assert!(
            stores.message.contains("data services with embedded stores"),
            "{stores:?}"
        );
        let versions = one_problem(|[_, uid]| uid.facts.version = "0.0.9".to_owned());
        assert_eq!((versions.level, versions.check), (Level::Warning, "versions"));
        let own = one_problem(|servers| {
            for server in servers {
                server.facts.version = "9.0.0".to_owned();
            }
        });
        assert!(
            own.message.contains("servers have 9.0.0, this program is"),
            "{own:?}"
        );
    }

    #[test]
    fn clocks_gateways_and_missing_services_are_found() {
        let clock = |ahead_ms| {
            one_problem(|[data, _]| {
                data.clock = Clock {
                    ahead_ms,
                    error_ms: 5,
                };
            })
        };
        assert_eq!(clock(-2000).level, Level::Warning);
        assert!(
            clock(-2000).message.starts_with("2.00 s behind"),
            "{:?}",
            clock(-2000)
        );
        assert_eq!(clock(40_000).level, Level::Error);
        let single = one_problem(|[data, uid]| {
            data.facts.gateways = vec!["h:9090".to_owned()];
            uid.facts.gateways = data.facts.gateways.clone();
        });
        assert_eq!((single.level, single.check), (Level::Note, "gateways"));
        let different = one_problem(|[data, uid]| {
            data.facts.gateways = vec!["h:9090".to_owned(), "i:9090".to_owned()];
            uid.facts.gateways = vec!["h:9090".to_owned(), "k:9090".to_owned()];
        });
        assert_eq!(different.level, Level::Note);
        let [data, uid] = two();
        let message = |server| coverage(&[server]).message;
        assert!(message(data).contains("no UID service"));
        assert!(message(uid).contains("no data service"));
        assert_eq!(coverage(&two()).level, Level::Ok);
    }
}
