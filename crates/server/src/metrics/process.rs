//! Figures of the process, with the names that all clients of Prometheus use.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Reads proc(5).
#[derive(Debug)]
pub(super) struct ProcessCollector {
    started: SystemTime,
}

impl Default for ProcessCollector {
    fn default() -> Self {
        Self {
            started: SystemTime::now(),
        }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)
        };
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        gauge(
            "process_start_time_seconds",
            "When the process started, in seconds since the epoch",
            started.as_secs_f64(),
        )?;
        let status = read("status");
        gauge(
            "process_resident_memory_bytes",
            "Resident memory",
            kibibytes(&status, "VmRSS:") * 1024.0,
        )?;
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory",
            kibibytes(&status, "VmSize:") * 1024.0,
        )?;
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        gauge(
            "process_open_fds",
            "Open descriptors",
            f64::from(u32::try_from(open).unwrap_or(u32::MAX)),
        )?;
        gauge(
            "process_max_fds",
            "The soft limit of descriptors",
            max_descriptors(&read("limits")),
        )?;
        let ticks = f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100));
        let seconds = cpu_ticks(&read("stat")) / ticks;
        encoder
            .encode_descriptor(
                "process_cpu_seconds",
                "Time of processors, of the program and of the system for it",
                None,
                MetricType::Counter,
            )?
            .encode_counter::<NoLabelSet, _, u64>(&seconds, None)
    }
}

/// A file of the process; empty if it cannot be read, so that figures are 0.
fn read(name: &str) -> String {
    fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default()
}

/// A line `NAME  123 kB`.
fn kibibytes(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    number.unwrap_or_default()
}

/// `Max open files  SOFT  HARD  files`.
fn max_descriptors(limits: &str) -> f64 {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    soft.unwrap_or_default()
}

/// The fields `utime` and `stime` behind `ID (NAME) STATE`; the name may have brackets.
fn cpu_ticks(stat: &str) -> f64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_forms_of_proc() {
        let stat = "12 (oxtsdb (x) 1) S 1 12 12 0 -1 4194304 107 0 1 0 250 50 7 8 20 0 9 0 5 0 0";
        assert_eq!(cpu_ticks(stat), 300.0);
        assert_eq!(cpu_ticks(""), 0.0);
        let limits = "Limit  Soft  Hard  Units\nMax open files            1024      4096      files\n";
        assert_eq!(max_descriptors(limits), 1024.0);
        assert_eq!(max_descriptors(""), 0.0);
        assert_eq!(
            kibibytes("VmSize:\t 8 kB\nVmRSS:\t    1024 kB\n", "VmRSS:"),
            1024.0
        );
    }
}
