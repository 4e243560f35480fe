//! Random downsampling specifications, and the time zones of calendars.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// All aggregators except `none`.
pub(super) const FUNCTIONS: [&str; 34] = [
    "mult",
    "p90",
    "zimsum",
    "mimmax",
    "sum",
    "p50",
    "p95",
    "ep99r7",
    "pfsum",
    "p75",
    "p99",
    "ep99r3",
    "ep95r7",
    "min",
    "avg",
    "ep75r7",
    "dev",
    "ep95r3",
    "ep75r3",
    "ep50r7",
    "ep90r7",
    "mimmin",
    "p999",
    "ep50r3",
    "ep90r3",
    "ep999r7",
    "last",
    "max",
    "count",
    "diff",
    "median",
    "squareSum",
    "ep999r3",
    "first",
];

/// Time zones with clocks that change at different hours, by different amounts or at midnight; with odd offsets; with a
/// missing day; without changes.
pub(super) const ZONES: [&str; 24] = [
    "UTC",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "America/Asuncion",
    "America/Santiago",
    "America/St_Johns",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Tokyo",
    "Asia/Beirut",
    "Asia/Amman",
    "Asia/Tehran",
    "Asia/Gaza",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "EST",
    "Etc/GMT+5",
    "GMT",
];

/// Units with their usual lengths in milliseconds.
const UNITS: [(&str, i64); 8] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 7 * 86_400_000),
    ("n", 30 * 86_400_000),
    ("y", 365 * 86_400_000),
];

/// Most windows of a query; a fill policy gives each of them a value.
const WINDOWS: f64 = 400.0;

/// A specification for a range of `seconds`.
pub(super) fn specification(random: &mut StdRng, seconds: i64, may_fill: bool) -> String {
    let function = *FUNCTIONS.choose(random).expect("there are some");
    if random.random_ratio(1, 15) {
        return format!("0all-{function}{}", if may_fill { "" } else { "-none" });
    }
    // Whole hours are read and filled.
    let length_ms = seconds.max(2 * 3600) * 1000;
    let windows = WINDOWS.powf(random.random());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "far below 2^53"
    )]
    let interval_ms = (length_ms as f64 / windows) as i64;
    let fitting: Vec<_> = UNITS
        .iter()
        .filter(|(_, unit_ms)| *unit_ms <= interval_ms && interval_ms / unit_ms < 100_000)
        .collect();
    let (unit, unit_ms) = *fitting.choose(random).copied().unwrap_or(&("h", 3_600_000));
    let mut count = (interval_ms / unit_ms).max(1);
    if random.random_ratio(1, 2) {
        // Usual numbers, which divide the next larger unit.
        let round = [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60, 100, 500, 1000, 60_000];
        count = round.into_iter().rfind(|round| *round <= count).unwrap_or(count);
    }
    let calendar = if random.random_ratio(2, 5) { "c" } else { "" };
    let fill = match random.random_range(0..10) {
        0 | 1 if may_fill => "-nan",
        2 | 3 if may_fill => "-zero",
        4 if may_fill => "-null",
        5 => "-none",
        6 if may_fill => "-NaN",
        _ => "",
    };
    format!("{count}{unit}{calendar}-{function}{fill}")
}
