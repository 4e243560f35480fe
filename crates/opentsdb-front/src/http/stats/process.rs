//! The process and its threads, as `/api/stats/jvm` and `/api/stats/threads` show a Java process.
//!
//! Source: OpenTSDB 2.4, `StatsRpc.printJVMStats`, `StatsRpc.printThreadStats`; proc(5).

use std::fs;

use oxtsdb_resources::MemoryPool;
use oxtsdb_resources::memory::PoolUsage;
use serde_json::{Map, Value, json};

use crate::front::build_info;
use crate::http::api_request::ApiParts;

/// The pools of the memory account.
pub(super) fn memory_pools(parts: &ApiParts) -> [PoolUsage; 2] {
    [parts.writer.memory(), &parts.engine.resources().memory].map(MemoryPool::usage)
}

/// The process: system load, memory, start.
pub(super) fn to_json(pools: &[PoolUsage]) -> Vec<u8> {
    let load = read("/proc/loadavg");
    let load: Option<f64> = load.split(' ').next().and_then(|load| load.parse().ok());
    let status = read("/proc/self/status");
    let (used, peak) = (kibibytes(&status, "VmRSS:"), kibibytes(&status, "VmHWM:"));
    let limit: u64 = pools
        .iter()
        .map(|pool| pool.limit_bytes)
        .fold(0, u64::saturating_add);
    let usage = |used: u64, max: u64| json!({"init": 0, "used": used, "committed": used, "max": signed(max)});
    let mut by_name = Map::new();
    for pool in pools {
        let of_pool = json!({
            "currentUsage": usage(pool.used_bytes, pool.limit_bytes),
            "peakUsage": usage(pool.peak_bytes, pool.limit_bytes),
            "type": "HEAP",
        });
        by_name.insert(pool.name.to_owned(), of_pool);
    }
    let (started_ms, uptime) = build_info::started();
    let memory = json!({
        "heapMemoryUsage": usage(used, limit),
        "peakMemoryUsage": usage(peak, limit),
        "nonHeapMemoryUsage": usage(0, 0),
        "objectPendingFinalizationCount": 0,
    });
    let os = json!({"systemLoadAverage": load.unwrap_or(-1.0)});
    let runtime = json!({
        "startTime": started_ms,
        "uptime": u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        "vmName": "oxtsdb",
        "vmVendor": "",
        "vmVersion": build_info::VERSION,
    });
    let pools = Value::Object(by_name);
    format!(r#"{{"memory":{memory},"os":{os},"runtime":{runtime},"pools":{pools},"gc":{{}}}}"#).into_bytes()
}

/// A limit as Java shows it: -1 is none.
fn signed(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(-1)
}

/// The threads of the process.
pub(super) fn threads_to_json() -> Vec<u8> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| {
        let id: u64 = task.file_name().to_str()?.parse().ok()?;
        thread(id, &fs::read_to_string(task.path().join("stat")).ok()?)
    });
    format!("[{}]", threads.collect::<Vec<_>>().join(",")).into_bytes()
}

/// A thread; `None` if its status has another form.
fn thread(id: u64, stat: &str) -> Option<String> {
    // `ID (NAME) STATE ...`; the name may have brackets.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace();
    let state = match fields.next()? {
        "R" => "RUNNABLE",
        "D" => "BLOCKED",
        "X" | "Z" => "TERMINATED",
        _ => "WAITING",
    };
    let priority: i64 = fields.nth(14)?.parse().ok()?;
    let name = Value::from(name);
    Some(format!(
        r#"{{"threadID":{id},"stack":[],"name":{name},"state":"{state}","interrupted":false,"priority":{priority}}}"#
    ))
}

fn read(path: &str) -> String {
    // Without the file the numbers are 0.
    fs::read_to_string(path).unwrap_or_default()
}

/// A line `NAME  123 kB`, in bytes.
fn kibibytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    number.unwrap_or_default().saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_status_of_threads_and_processes() {
        let line = "12 (oxtsdb (x) 1) S 1 12 12 0 -1 4194304 107 0 1 0 0 0 0 0 20 0 9 0 5 0 0";
        let shown: Value = serde_json::from_str(&thread(12, line).unwrap()).unwrap();
        assert_eq!(shown["name"], "oxtsdb (x) 1");
        assert_eq!(
            (&shown["state"], &shown["priority"]),
            (&json!("WAITING"), &json!(20))
        );
        assert_eq!(thread(1, "broken"), None);
        let status = "VmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), 1 << 20);
        assert_eq!(kibibytes("", "VmRSS:"), 0);
        let threads: Vec<Value> = serde_json::from_slice(&threads_to_json()).unwrap();
        assert!(!threads.is_empty());
    }
}
