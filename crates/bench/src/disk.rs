//! Time of a durable write to disk.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Median and 99th percentile of writing 4 KiB into a preallocated file and `fdatasync`.
pub(crate) fn sync_times(folder: &Path) -> anyhow::Result<(Duration, Duration)> {
    const ROUNDS: u32 = 500;
    let path = folder.join("sync-probe");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&path)?;
    file.write_all(&vec![0; 4096 * ROUNDS as usize])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let started = Instant::now();
        file.write_all(&[u8::try_from(round % 256)?; 4096])?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}
