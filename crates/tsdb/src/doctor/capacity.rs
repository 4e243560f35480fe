//! Resources that can run out: memory, descriptors, connections, disk, UIDs.

use super::finding::{Finding, Level};
use super::server::Server;

/// Share of a limit from which on it is a warning.
const NEARLY_USED: f64 = 0.8;

/// Memory of the process beyond its limit: allocator, stacks, sockets (docs/limits.md).
const OVERHEAD: f64 = 1.2;

/// Fewer descriptors than this are the default of a shell, not a choice for a server.
const FEW_DESCRIPTORS: f64 = 4096.0;

/// Descriptors that connections leave to files (docs/limits.md).
const FILES: f64 = 512.0;

const DAY: f64 = 86_400.0;

pub(super) fn check(server: &Server) -> Vec<Finding> {
    let mut findings = memory(server);
    findings.push(descriptors(server));
    findings.extend(connections(server));
    findings.extend(disk(server));
    findings.extend(uids(server));
    findings.extend(certificate(server));
    findings
}

fn memory(server: &Server) -> Vec<Finding> {
    let limit = server.value("oxtsdb_memory_limit_bytes");
    #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance of a fifth")]
    let machine = server.facts.machine_memory_bytes as f64;
    let resident = server.value("process_resident_memory_bytes");
    let message = format!(
        "limit {}, resident {}, of {} of the machine or its control group",
        mib(limit),
        mib(resident),
        mib(machine)
    );
    let warning = |message, advice| Finding::new(Level::Warning, "memory", &server.url, message, advice);
    let mut findings = vec![if limit * OVERHEAD > machine {
        warning(
            format!("{message}: a process at its limit takes a fifth more, and is killed"),
            format!(
                "set --memory-limit-mib to at most {:.0}",
                machine / OVERHEAD / MIB
            ),
        )
    } else if resident > limit * OVERHEAD {
        warning(
            format!("{message}: more than the limit and a fifth"),
            "report this with the output of /metrics: a part of the process is not counted".to_owned(),
        )
    } else {
        Finding::ok("memory", &server.url, message)
    }];
    if server.facts.has_reduced_caches {
        findings.push(Finding::new(
            Level::Note,
            "memory",
            &server.url,
            "caches and the store's memory are smaller than their settings: they get half of the limit together",
            "raise --memory-limit-mib, or lower the settings of caches",
        ));
    }
    for sample in server.metrics.samples("oxtsdb_memory_pool_rejected_total") {
        if sample.value > 0.0 {
            let pool = sample.label("pool").unwrap_or_default();
            findings.push(warning(
                format!(
                    "the {pool} pool had no memory for {} reservations since the start",
                    sample.value
                ),
                "raise --memory-limit-mib, or send less at a time".to_owned(),
            ));
        }
    }
    findings
}

fn descriptors(server: &Server) -> Finding {
    let (open, max) = (server.value("process_open_fds"), server.value("process_max_fds"));
    let required = server.sum("oxtsdb_connections_limit") + FILES;
    let message = format!("{open} of {max} are open");
    let new = |level, message, advice| Finding::new(level, "descriptors", &server.url, message, advice);
    let raise = "raise the hard limit: ulimit -n, LimitNOFILE of systemd";
    if open > max * NEARLY_USED {
        new(Level::Warning, format!("{message}, nearly all"), raise)
    } else if max < FEW_DESCRIPTORS {
        new(
            Level::Warning,
            format!("{message}: files and connections share them"),
            raise,
        )
    } else if required > max {
        new(
            Level::Note,
            format!("{message}, all connections of the listeners' limits and files need {required}"),
            raise,
        )
    } else {
        Finding::ok("descriptors", &server.url, message)
    }
}

fn connections(server: &Server) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sample in server.metrics.samples("oxtsdb_connections_limit") {
        let listener = sample.label("listener").unwrap_or_default();
        let of = |name| {
            server
                .metrics
                .sum(name, &[("listener", listener)])
                .unwrap_or_default()
        };
        let open = of("oxtsdb_connections");
        let rejected = of("oxtsdb_connections_rejected_total");
        let displaced = of("oxtsdb_connections_displaced_total");
        let message = format!(
            "{open} of {} to {listener} are open, {rejected} were rejected, {displaced} gave way to other addresses",
            sample.value
        );
        let setting = match listener {
            "http" => "--max-connections",
            _ => "--grpc-max-connections",
        };
        findings.push(
            match open > sample.value * NEARLY_USED || rejected + displaced > 0.0 {
                true => Finding::new(
                    Level::Warning,
                    "connections",
                    &server.url,
                    message,
                    format!("raise {setting}, or let clients share connections"),
                ),
                false => Finding::ok("connections", &server.url, message),
            },
        );
    }
    findings
}

fn disk(server: &Server) -> Option<Finding> {
    let free = server.metrics.value("oxtsdb_store_disk_free_bytes", &[])?;
    let reserve = server.value("oxtsdb_store_disk_reserve_bytes");
    let message = format!("{} are free, the reserve is {}", mib(free), mib(reserve));
    let (level, effect) = if free < reserve / 2.0 {
        (Level::Error, "writes are rejected")
    } else if free < reserve {
        (
            Level::Error,
            "merges have stopped, and writes are rejected from half of the reserve on",
        )
    } else if free < reserve * 2.0 {
        (Level::Warning, "merges stop at the reserve")
    } else {
        return Some(Finding::ok("disk", &server.url, message));
    };
    Some(Finding::new(
        level,
        "disk",
        &server.url,
        format!("{message}: {effect}"),
        "add disk, remove old snapshots, set --retention, or lower --disk-reserve-mib",
    ))
}

fn uids(server: &Server) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sample in server.metrics.samples("oxtsdb_uid_used") {
        let kind = sample.label("kind").unwrap_or_default();
        let of = |name| server.metrics.value(name, &[("kind", kind)]);
        let all = sample.value + of("oxtsdb_uid_available").unwrap_or_default();
        let left = of("oxtsdb_uid_exhaustion_seconds").unwrap_or(f64::INFINITY);
        let mut message = format!("{} of {all} of {kind} are used", sample.value);
        if left.is_finite() {
            message += &format!(
                ", none is left in {:.1} days at the rate of the last week",
                left / DAY
            );
        }
        let level = if left < DAY || sample.value >= all {
            Level::Error
        } else if left < 30.0 * DAY || sample.value > all * NEARLY_USED {
            Level::Warning
        } else {
            findings.push(Finding::ok("UIDs", &server.url, message));
            continue;
        };
        findings.push(Finding::new(
            level,
            "UIDs",
            &server.url,
            message,
            "find the tag that grows with `tsdb uid top`, limit it with --assignment-rules, and take unused UIDs back with \
             `tsdb uid reclaim`",
        ));
    }
    findings
}

/// How long the certificate of the server is valid, by the server's clock.
fn certificate(server: &Server) -> Option<Finding> {
    let not_after = server
        .metrics
        .value("oxtsdb_tls_certificate_not_after_seconds", &[])?;
    #[expect(clippy::cast_precision_loss, reason = "shown in days")]
    let now = server.facts.clock_ms as f64 / 1000.0;
    let (level, message) = validity(not_after - now);
    let advice = match level {
        Level::Ok => "",
        _ => "renew the file of --tls-certificate; it is read again by itself",
    };
    Some(Finding::new(level, "certificate", &server.url, message, advice))
}

/// How much it matters that a certificate is valid for `seconds` more, and these in words.
pub(super) fn validity(seconds: f64) -> (Level, String) {
    let days = seconds / DAY;
    match days {
        ..=0.0 => (Level::Error, format!("expired {:.1} days ago", -days)),
        0.0..7.0 => (Level::Warning, format!("expires in {days:.1} days")),
        _ => (Level::Ok, format!("expires in {days:.1} days")),
    }
}

const MIB: f64 = (1 << 20) as f64;

fn mib(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / MIB)
}

#[cfg(test)]
mod tests {
    use super::super::server::tests::server;
    use super::*;

    const HEALTHY: &str = "# TYPE oxtsdb_memory_limit_bytes gauge\noxtsdb_memory_limit_bytes 8589934592\n\
        # TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 1000000\n\
        # TYPE process_open_fds gauge\nprocess_open_fds 100\n# TYPE process_max_fds gauge\nprocess_max_fds 65536\n\
        # TYPE oxtsdb_connections_limit gauge\noxtsdb_connections_limit{listener=\"http\"} 1000\n\
        # TYPE oxtsdb_connections gauge\noxtsdb_connections{listener=\"http\"} 10\n\
        # TYPE oxtsdb_store_disk_free_bytes gauge\noxtsdb_store_disk_free_bytes 107374182400\n\
        # TYPE oxtsdb_store_disk_reserve_bytes gauge\noxtsdb_store_disk_reserve_bytes 1073741824\n\
        # TYPE oxtsdb_uid_used gauge\noxtsdb_uid_used{kind=\"tagv\"} 1000\n\
        # TYPE oxtsdb_uid_available gauge\noxtsdb_uid_available{kind=\"tagv\"} 16776215\n\
        # TYPE oxtsdb_memory_pool_rejected counter\noxtsdb_memory_pool_rejected_total{pool=\"query\"} 0\n";

    /// The finding if a value of [`HEALTHY`] is another one.
    fn finding_of(before: &str, after: &str) -> Finding {
        let text = HEALTHY.replace(&format!("{before}\n"), &format!("{after}\n"));
        assert_ne!(text, HEALTHY);
        let findings = check(&server(&text));
        let problems = findings.into_iter().filter(|finding| finding.level != Level::Ok);
        let [finding] = <[Finding; 1]>::try_from(problems.collect::<Vec<_>>()).unwrap();
        assert!(!finding.advice.is_empty());
        finding
    }

    #[test]
    fn a_server_with_enough_of_everything_has_no_problems() {
        let findings = check(&server(HEALTHY));
        assert!(
            findings.iter().all(|finding| finding.level == Level::Ok),
            "{findings:?}"
        );
        let checks: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
        assert_eq!(checks, ["memory", "descriptors", "connections", "disk", "UIDs"]);
    }

    #[test]
    fn limits_of_memory_are_compared_with_the_machine() {
        // 16 GiB: 14 GiB and a fifth do not fit.
        let limit = finding_of("limit_bytes 8589934592", "limit_bytes 15032385536");
        assert_eq!(limit.level, Level::Warning);
        assert_eq!(limit.advice, "set --memory-limit-mib to at most 13653");
        let resident = finding_of("memory_bytes 1000000", "memory_bytes 11000000000");
        assert!(resident.message.ends_with("more than the limit and a fifth"));
        let rejected = finding_of("{pool=\"query\"} 0", "{pool=\"query\"} 7");
        assert!(rejected.message.contains("the query pool had no memory for 7"));
        let mut small = server(HEALTHY);
        small.facts.has_reduced_caches = true;
        assert_eq!(check(&small)[1].level, Level::Note);
    }

    #[test]
    fn descriptors_and_connections_that_run_out_are_found() {
        assert_eq!(finding_of("max_fds 65536", "max_fds 1024").level, Level::Warning);
        assert_eq!(finding_of("open_fds 100", "open_fds 60000").level, Level::Warning);
        let connections = finding_of("{listener=\"http\"} 10", "{listener=\"http\"} 900");
        assert!(connections.advice.contains("--max-connections"));
        let text = HEALTHY.replace("} 1000\n# TYPE oxtsdb_conn", "} 70000\n# TYPE oxtsdb_conn");
        let many = check(&server(&text));
        let descriptors = many
            .iter()
            .find(|finding| finding.check == "descriptors")
            .unwrap();
        assert_eq!(descriptors.level, Level::Note);
        assert!(descriptors.message.contains("need 70512"), "{descriptors:?}");
    }

    #[test]
    fn disks_below_the_reserve_are_errors() {
        let free = |bytes: u64| finding_of("free_bytes 107374182400", &format!("free_bytes {bytes}"));
        assert_eq!(free(2_000_000_000).level, Level::Warning);
        assert!(free(1_000_000_000).message.contains("merges have stopped"));
        let full = free(100_000_000);
        assert_eq!(full.level, Level::Error);
        assert!(full.message.ends_with("writes are rejected"), "{full:?}");
    }

    #[test]
    fn certificates_that_expire_are_found() {
        let level = |days: f64| {
            let mut server = server(&format!(
                "# TYPE oxtsdb_tls_certificate_not_after_seconds gauge\noxtsdb_tls_certificate_not_after_seconds {}\n",
                1_000_000.0 + days * DAY
            ));
            server.facts.clock_ms = 1_000_000_000;
            certificate(&server).unwrap().level
        };
        assert_eq!(level(-1.0), Level::Error);
        assert_eq!(level(1.0), Level::Warning);
        assert_eq!(level(30.0), Level::Ok);
        assert_eq!(certificate(&server("")), None);
    }

    #[test]
    fn kinds_of_uids_that_run_out_are_found() {
        let used = finding_of("{kind=\"tagv\"} 1000", "{kind=\"tagv\"} 900000000");
        assert_eq!((used.level, used.check), (Level::Warning, "UIDs"));
        let soon = |seconds: &str| {
            let more = format!(
                "# TYPE oxtsdb_uid_exhaustion_seconds gauge\noxtsdb_uid_exhaustion_seconds{{kind=\"tagv\"}} {seconds}\n"
            );
            let findings = check(&server(&format!("{HEALTHY}{more}")));
            findings.into_iter().next_back().unwrap()
        };
        assert_eq!(soon("1000000").level, Level::Warning);
        assert_eq!(soon("3600").level, Level::Error);
        assert_eq!(soon("100000000").level, Level::Ok);
        assert_eq!(finding_of("} 16776215", "} 0").level, Level::Error);
    }
}
