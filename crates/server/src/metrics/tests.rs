use std::sync::atomic::Ordering;

use super::*;

#[test]
fn encodes_open_metrics_text() {
    let metrics = Metrics::default();
    let counts = Arc::<ConnectionCounts>::default();
    counts.open.store(3, Ordering::Relaxed);
    metrics.add_connections("data", counts);
    metrics.collect(|figures| {
        figures.counter("flushes", "Flushes", 7);
        figures.gauge_by("pool_bytes", "Bytes", "pool", [("ingest", 1), ("query", 2)]);
        figures.counter_f64("sync_seconds", "Syncs", 0.5);
    });
    let text = metrics.encode().unwrap();
    for line in [
        "# TYPE oxtsdb_flushes counter",
        "oxtsdb_flushes_total 7",
        "oxtsdb_pool_bytes{pool=\"query\"} 2",
        "oxtsdb_sync_seconds_total 0.5",
        "oxtsdb_connections{listener=\"data\"} 3",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
    }
    assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_request_is_in_flight_until_its_timer_is_dropped() {
    let metrics = Metrics::default();
    let mut timer = metrics.requests().begin(Protocol::Http, "other");
    timer.set_method("/api/put");
    timer.set_code("204");
    let text = metrics.encode().unwrap();
    let labels = "{protocol=\"http\",method=\"/api/put\"}";
    assert!(
        text.contains(&format!("oxtsdb_requests_in_flight{labels} 1\n")),
        "{text}"
    );
    assert!(text.contains("oxtsdb_requests_in_flight{protocol=\"http\",method=\"other\"} 0\n"));
    drop(timer);
    let text = metrics.encode().unwrap();
    assert!(text.contains(&format!("oxtsdb_requests_in_flight{labels} 0\n")));
    assert!(text.contains("oxtsdb_requests_total{protocol=\"http\",method=\"/api/put\",code=\"204\"} 1\n"));
    assert!(
        text.contains("oxtsdb_request_seconds_count{protocol=\"http\",method=\"/api/put\"} 1\n"),
        "{text}"
    );
    drop(metrics.requests().begin(Protocol::Http, "/api/put"));
    let text = metrics.encode().unwrap();
    assert!(text.contains("method=\"/api/put\",code=\"499\"} 1\n"), "{text}");
}
