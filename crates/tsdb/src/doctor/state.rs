//! Failures: now, or since the start.

use super::finding::{Finding, Level};
use super::server::Server;

/// Share of failed calls of a gateway from which on it is a warning.
const FAILED_CALLS: f64 = 0.01;

/// Merges may be behind by this share of all parts, from [`MIN_DEBT_BYTES`] on.
const MERGE_DEBT: f64 = 0.5;
const MIN_DEBT_BYTES: f64 = (1_u64 << 30) as f64;

/// The age of rejected points that are reported, milliseconds.
const RECENT_MS: u64 = 60 * 60 * 1000;

/// Reasons and callers that are described.
const MAX_EXAMPLES: usize = 3;

/// Counters that are 0 on a server without trouble.
const COUNTERS: [(&str, Level, &str, &str, &str); 9] = [
    (
        "oxtsdb_points_failed_total",
        Level::Warning,
        "points",
        "points are not known to be stored, because the store or the UID service failed",
        "see the log for the failures; clients have to send these points again",
    ),
    (
        "oxtsdb_store_failed_merges_total",
        Level::Warning,
        "merges",
        "merges failed",
        "see the log; `tsdb store check` reads all files",
    ),
    (
        "oxtsdb_rollup_job_skipped_total",
        Level::Warning,
        "rollups",
        "rows or damaged ranges were left out of rollups",
        "see the log; `tsdb fsck` and `tsdb store check` find them. After a repair, build their intervals with `tsdb rollup`",
    ),
    (
        "oxtsdb_queries_not_admitted_total",
        Level::Warning,
        "queries",
        "queries were rejected because too many run and wait",
        "raise --max-concurrent-queries and --memory-limit-mib, or find long queries with `tsdb queries`",
    ),
    (
        "oxtsdb_store_clock_jumps_total",
        Level::Note,
        "clock",
        "jumps of the system's clock were seen",
        "synchronize the clock by slewing; retention waits a day after a jump ahead",
    ),
    (
        "oxtsdb_tls_handshakes_failed_total",
        Level::Note,
        "TLS",
        "handshakes failed",
        "the log has the reasons at level debug: --log info,oxtsdb_server=debug",
    ),
    (
        "oxtsdb_tls_mismatches_total",
        Level::Note,
        "TLS",
        "clients used TLS on a port without it, or the reverse",
        "correct the URLs of clients: https:// for ports with TLS",
    ),
    (
        "oxtsdb_log_lines_dropped_total",
        Level::Warning,
        "log",
        "lines of the log were dropped",
        "read standard error faster, or log less: --log warn, --access-log errors",
    ),
    (
        "oxtsdb_access_refused_total",
        Level::Note,
        "rights",
        "requests were refused",
        "the log names callers and rules",
    ),
];

pub(super) fn check(server: &Server) -> Vec<Finding> {
    let mut findings = vec![readiness(server)];
    if server.facts.mode != "rw" {
        let message = format!("the server is {}", server.facts.mode);
        findings.push(Finding::new(
            Level::Note,
            "mode",
            &server.url,
            message,
            "--mode rw reads and writes",
        ));
    }
    findings.extend(COUNTERS.iter().filter_map(|(name, level, check, what, advice)| {
        // Servers without such a counter have no such part.
        let count = server.metrics.sum(name, &[])?;
        Some(match count > 0.0 {
            true => Finding::new(
                *level,
                check,
                &server.url,
                format!("{count} {what} since the start"),
                *advice,
            ),
            false => Finding::ok(check, &server.url, format!("0 {what}")),
        })
    }));
    findings.extend(rejected_points(server));
    findings.extend(internal_errors(server));
    findings.extend(uid_service(server));
    findings.extend(uids_in_use(server));
    findings.extend(damage(server));
    findings.extend(clock(server));
    findings.extend(merge_debt(server));
    findings.extend(gateways(server));
    findings.extend(traces(server));
    findings
}

/// Points that were rejected within the last hour.
fn rejected_points(server: &Server) -> Option<Finding> {
    if !server.has_data_service() {
        return None;
    }
    let since_ms = server.facts.clock_ms.saturating_sub(RECENT_MS);
    let rejections = server.rejections.rejections.iter();
    let recent: Vec<_> = rejections
        .filter(|rejection| rejection.last_ms >= since_ms)
        .collect();
    if recent.is_empty() {
        return Some(Finding::ok(
            "rejected points",
            &server.url,
            "none within the last hour",
        ));
    }
    let examples = recent.iter().take(MAX_EXAMPLES).map(|rejection| {
        format!(
            "{} of {} by {}: {} ({})",
            rejection.points, rejection.caller, rejection.protocol, rejection.reason, rejection.point
        )
    });
    let more = match recent.len().saturating_sub(MAX_EXAMPLES) {
        0 => String::new(),
        more => format!("; {more} more reasons or callers"),
    };
    let message = format!(
        "points were rejected within the last hour: {}{more}",
        examples.collect::<Vec<_>>().join("; ")
    );
    let advice = "correct these clients: a point that is rejected is not stored. `tsdb top` and /debug/rejections \
                  show the last hundred reasons and callers";
    Some(Finding::new(
        Level::Warning,
        "rejected points",
        &server.url,
        message,
        advice,
    ))
}

fn readiness(server: &Server) -> Finding {
    match server.not_ready.as_slice() {
        [] => Finding::ok("readiness", &server.url, "ready"),
        reasons => {
            let advice = match reasons.iter().any(|reason| reason.starts_with("draining")) {
                true => "it ends; start it again if it does not start by itself",
                false => "see its log. A data service also waits for its UID service: --uid-endpoint",
            };
            let message = format!("not ready: {}", reasons.join("; "));
            Finding::new(Level::Error, "readiness", &server.url, message, advice)
        }
    }
}

/// Responses of gRPC that say that the server is at fault. HTTP has 500 for mistakes of callers too, as OpenTSDB.
fn internal_errors(server: &Server) -> Option<Finding> {
    let of = |code| {
        let labels = [("protocol", "grpc"), ("code", code)];
        server.metrics.sum("oxtsdb_requests_total", &labels)
    };
    let codes = ["INTERNAL", "DATA_LOSS", "UNKNOWN"];
    let counts = codes.iter().filter_map(|code| Some((code, of(code)?)));
    let counts: Vec<String> = counts
        .filter(|(_, count)| *count > 0.0)
        .map(|(code, count)| format!("{count} {code}"))
        .collect();
    server.metrics.sum("oxtsdb_requests_total", &[])?;
    Some(match counts.as_slice() {
        [] => Finding::ok("requests", &server.url, "no internal errors"),
        counts => Finding::new(
            Level::Warning,
            "requests",
            &server.url,
            format!(
                "requests ended with errors of the server since the start: {}",
                counts.join(", ")
            ),
            "see the log; damaged cells are found by `tsdb fsck` and `tsdb store check`",
        ),
    })
}

/// Whether a data service reaches its UID service, which may be another one than --uid-target.
fn uid_service(server: &Server) -> Option<Finding> {
    let up = server.metrics.value("oxtsdb_uid_service_up", &[])?;
    Some(match up > 0.0 {
        true => Finding::ok("UID service", &server.url, "responds to the data service"),
        false => Finding::new(
            Level::Error,
            "UID service",
            &server.url,
            "calls of the data service fail: points of new series are rejected",
            "start the UID service at --uid-endpoint of the data service; the log has the error",
        ),
    })
}

/// Whether the table of UIDs fits the series: after a loss of it, kinds assign nothing, and UIDs have no name.
fn uids_in_use(server: &Server) -> Vec<Finding> {
    let of = |name: &str| server.metrics.samples(name);
    let kind = |label: Option<&str>| label.unwrap_or_default().to_owned();
    let blocked = ["oxtsdb_uid_assignment_blocked", "oxtsdb_uid_service_blocked"].into_iter();
    let blocked = blocked.flat_map(of).filter(|sample| sample.value > 0.0);
    let mut kinds: Vec<String> = blocked.map(|sample| kind(sample.label("kind"))).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut findings: Vec<Finding> = kinds
        .into_iter()
        .map(|kind| {
            Finding::new(
                Level::Error,
                "UIDs",
                &server.url,
                format!("no UIDs of {kind} are assigned: the counter is below a UID that series use"),
                "the table of UIDs was lost or is an older copy: restore it, or run `tsdb uid recover`",
            )
        })
        .collect();
    for sample in of("oxtsdb_uids_without_name") {
        if sample.value > 0.0 {
            let kind = kind(sample.label("kind"));
            findings.push(Finding::new(
                Level::Warning,
                "UIDs",
                &server.url,
                format!("{} UIDs of {kind} that series use have no name", sample.value),
                "deleted, or lost with the table of UIDs: `tsdb uid recover` gives them names",
            ));
        }
    }
    findings
}

fn damage(server: &Server) -> Option<Finding> {
    let ranges = server.metrics.value("oxtsdb_store_damaged_ranges", &[])?;
    Some(match ranges > 0.0 {
        true => Finding::new(
            Level::Error,
            "damage",
            &server.url,
            format!("{ranges} ranges of rows are lost"),
            "`tsdb store check` lists them; restore them from a snapshot, then remove the files from set-aside/",
        ),
        false => Finding::ok("damage", &server.url, "none"),
    })
}

fn clock(server: &Server) -> Option<Finding> {
    let seconds = server
        .metrics
        .value("oxtsdb_store_clock_held_back_seconds", &[])?;
    Some(match seconds > 0.0 {
        true => Finding::new(
            Level::Warning,
            "clock",
            &server.url,
            format!("the clock is {seconds} s ahead of the one that retention follows"),
            "set it right; one that is right is followed after a day, or after a restart with --confirm-clock",
        ),
        false => Finding::ok("clock", &server.url, "retention follows it"),
    })
}

fn merge_debt(server: &Server) -> Option<Finding> {
    let debt = server.metrics.value("oxtsdb_store_merge_debt_bytes", &[])?;
    let parts = server.value("oxtsdb_store_part_bytes");
    let gib = debt / MIN_DEBT_BYTES;
    Some(match debt > MIN_DEBT_BYTES && debt > parts * MERGE_DEBT {
        true => Finding::new(
            Level::Warning,
            "merges",
            &server.url,
            format!("merges have {gib:.1} GiB to read, more than half of all parts"),
            "raise --merge-mib-per-second, if the disk is not busy",
        ),
        false => Finding::ok("merges", &server.url, format!("{gib:.1} GiB to read")),
    })
}

fn gateways(server: &Server) -> Vec<Finding> {
    let up = server.metrics.samples("oxtsdb_hbase_gateway_up");
    let all_down = up.iter().all(|sample| sample.value == 0.0);
    let mut findings = Vec::new();
    for sample in up {
        let gateway = sample.label("gateway").unwrap_or_default();
        let of = |name| {
            server
                .metrics
                .value(name, &[("gateway", gateway)])
                .unwrap_or_default()
        };
        let failed = of("oxtsdb_hbase_calls_failed_total");
        let calls = of("oxtsdb_hbase_call_seconds_count");
        let new =
            |level, message, advice: &str| Finding::new(level, "gateways", &server.url, message, advice);
        findings.push(if sample.value == 0.0 {
            let level = if all_down { Level::Error } else { Level::Warning };
            let advice =
                "start HBase's Thrift server there (`hbase thrift start`), or take it out of --hbase-thrift";
            new(level, format!("{gateway} cannot be reached"), advice)
        } else if failed > calls * FAILED_CALLS {
            let advice = "see the logs of the Thrift server and of the region servers";
            let message = format!("{failed} of {calls} calls to {gateway} failed since the start");
            new(Level::Warning, message, advice)
        } else {
            Finding::ok("gateways", &server.url, format!("{gateway} responds"))
        });
    }
    findings
}

fn traces(server: &Server) -> Option<Finding> {
    let of = |result| {
        server
            .metrics
            .sum("oxtsdb_trace_spans_total", &[("result", result)])
    };
    let failed = of("failed")?;
    (failed > 0.0).then(|| {
        let exported = of("exported").unwrap_or_default();
        let message = format!("{failed} spans could not be sent, {exported} were");
        let advice = "check the collector at --otlp-endpoint";
        Finding::new(Level::Note, "traces", &server.url, message, advice)
    })
}

#[cfg(test)]
mod tests {
    use super::super::server::tests::server;
    use super::*;
    use crate::admin::Rejection;

    fn problems(metrics: &str) -> Vec<Finding> {
        let findings = check(&server(metrics)).into_iter();
        findings.filter(|finding| finding.level != Level::Ok).collect()
    }

    fn one(metrics: &str) -> Finding {
        let [finding] = <[Finding; 1]>::try_from(problems(metrics)).unwrap();
        assert!(!finding.advice.is_empty());
        finding
    }

    fn counter(name: &str, value: u32) -> String {
        format!("# TYPE {name} counter\n{name}_total {value}\n")
    }

    #[test]
    fn counters_of_trouble_are_found_when_they_count() {
        for (name, level, check, ..) in COUNTERS {
            let name = name.strip_suffix("_total").unwrap();
            assert_eq!(problems(&counter(name, 0)), [], "{name}");
            let finding = one(&counter(name, 3));
            assert_eq!((finding.level, finding.check), (level, check), "{name}");
            assert!(finding.message.starts_with("3 "), "{finding:?}");
        }
    }

    #[test]
    fn recently_rejected_points_are_found_with_examples() {
        let mut server = server("");
        server.facts.clock_ms = 10_000_000;
        let rejected = |last_ms, caller: &str| Rejection {
            caller: caller.to_owned(),
            protocol: "telnet".to_owned(),
            points: 7,
            last_ms,
            reason: "invalid timestamp: 0".to_owned(),
            point: "put m 0 1 a=b".to_owned(),
            ..Rejection::default()
        };
        server.rejections.rejections.push(rejected(9_990_000, "10.0.0.1"));
        server.rejections.rejections.push(rejected(6_000_000, "10.0.0.2"));
        let finding = rejected_points(&server).unwrap();
        assert_eq!(finding.level, Level::Warning);
        assert_eq!(
            finding.message,
            "points were rejected within the last hour: 7 of 10.0.0.1 by telnet: invalid timestamp: 0 (put m 0 1 a=b)"
        );
        server.facts.clock_ms = 20_000_000;
        assert_eq!(rejected_points(&server).unwrap().level, Level::Ok);
    }

    #[test]
    fn servers_that_are_not_ready_or_read_only_are_found() {
        let mut server = server("");
        assert_eq!(check(&server)[0], Finding::ok("readiness", &server.url, "ready"));
        server.not_ready = vec!["draining".to_owned(), "no store".to_owned()];
        server.facts.mode = "ro".to_owned();
        let findings = check(&server);
        assert_eq!(findings[0].level, Level::Error);
        assert_eq!(findings[0].message, "not ready: draining; no store");
        assert_eq!((findings[1].check, findings[1].level), ("mode", Level::Note));
    }

    #[test]
    fn damage_debt_and_internal_errors_are_found() {
        let gauge = |name: &str, value: u64| format!("# TYPE {name} gauge\n{name} {value}\n");
        assert_eq!(one(&gauge("oxtsdb_store_damaged_ranges", 2)).level, Level::Error);
        assert_eq!(problems(&gauge("oxtsdb_store_damaged_ranges", 0)), []);
        assert_eq!(one(&gauge("oxtsdb_uid_service_up", 0)).check, "UID service");
        assert_eq!(problems(&gauge("oxtsdb_uid_service_up", 1)), []);
        assert_eq!(
            one(&gauge("oxtsdb_store_clock_held_back_seconds", 9)).check,
            "clock"
        );
        assert_eq!(problems(&gauge("oxtsdb_store_clock_held_back_seconds", 0)), []);
        let of_kind =
            |name: &str, value: u8| format!("# TYPE {name} gauge\n{name}{{kind=\"tagv\"}} {value}\n");
        for (name, level) in [
            ("oxtsdb_uid_assignment_blocked", Level::Error),
            ("oxtsdb_uid_service_blocked", Level::Error),
            ("oxtsdb_uids_without_name", Level::Warning),
        ] {
            assert_eq!(problems(&of_kind(name, 0)), [], "{name}");
            let finding = one(&of_kind(name, 1));
            assert_eq!((finding.level, finding.check), (level, "UIDs"), "{name}");
            assert!(finding.message.contains("tagv"), "{finding:?}");
        }
        let debt = |debt, parts| {
            gauge("oxtsdb_store_merge_debt_bytes", debt) + &gauge("oxtsdb_store_part_bytes", parts)
        };
        assert_eq!(one(&debt(3 << 30, 4 << 30)).check, "merges");
        assert_eq!(problems(&debt(3 << 30, 9 << 30)), []);
        assert_eq!(problems(&debt(1 << 20, 1 << 20)), []);
        let requests = |code: &str| {
            format!(
                "# TYPE oxtsdb_requests counter\noxtsdb_requests_total{{protocol=\"grpc\",code=\"{code}\"}} 4\n"
            )
        };
        assert!(one(&requests("INTERNAL")).message.contains("4 INTERNAL"));
        assert_eq!(problems(&requests("NOT_FOUND")), []);
        let spans = "# TYPE oxtsdb_trace_spans counter\noxtsdb_trace_spans_total{result=\"failed\"} 1\n";
        assert_eq!(one(spans).level, Level::Note);
    }

    #[test]
    fn gateways_that_are_down_or_fail_are_found() {
        let gateways = |up: [u8; 2], failed: u32| {
            format!(
                "# TYPE oxtsdb_hbase_gateway_up gauge\noxtsdb_hbase_gateway_up{{gateway=\"a\"}} {}\n\
                 oxtsdb_hbase_gateway_up{{gateway=\"b\"}} {}\n# TYPE oxtsdb_hbase_calls_failed counter\n\
                 oxtsdb_hbase_calls_failed_total{{gateway=\"a\"}} {failed}\n# TYPE oxtsdb_hbase_call_seconds histogram\n\
                 oxtsdb_hbase_call_seconds_count{{gateway=\"a\"}} 100\n",
                up[0], up[1]
            )
        };
        assert_eq!(problems(&gateways([1, 1], 1)), []);
        assert_eq!(one(&gateways([1, 0], 0)).level, Level::Warning);
        assert!(one(&gateways([1, 1], 2)).message.contains("2 of 100 calls"));
        let down = problems(&gateways([0, 0], 0));
        assert!(down.iter().all(|finding| finding.level == Level::Error));
        assert_eq!(down.len(), 2);
    }
}
