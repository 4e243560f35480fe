//! Fuzzing on stable Rust, as ordinary tests.
//!
//! ```text
//!   corpus/TARGET/*  ──►  population  ──►  mutate  ──►  decoder  ──►  check: no panic, allocation, time
//!                             ▲                            │
//!                             └────────  new outcome  ◄────┘
//! ```
//!
//! [`run`] first decodes every file of the target's corpus and then, for `OXTSDB_FUZZ_SECONDS` (0.5), mutated ones. There is no
//! coverage without a nightly compiler: an input joins the population if its outcome is new, where an outcome is the size of
//! a result or an error message without its numbers.
//!
//! An input that fails is shortened and stored in the corpus, so that the next run repeats it.
//!
//! This crate sets the global allocator of a test program. It cannot be used together with another one.

mod limits;
mod mutate;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

pub use limits::Failure;

/// The result of a decoder: the number of decoded items, or its error message.
pub type Outcome = Result<usize, String>;

/// Time of a run, and of one that shortens an input.
const DEFAULT_SECONDS: f64 = 0.5;
/// Inputs of the population; another one replaces one of these.
const POPULATION: usize = 1_000;
/// The longest input.
const MAX_INPUT: usize = 64 << 10;

/// Decodes the corpus of a target and mutations of it.
///
/// `decode` must return for any input. Its error messages must not depend on the input except for numbers and hex digits.
///
/// # Panics
///
/// With the shortened input's file, if `decode` panics, allocates more than [`limits`](Failure) allow, or is slow.
pub fn run(target: &str, decode: impl Fn(&[u8]) -> Outcome) {
    run_with(target, |_| 0, decode);
}

/// As [`run`], of a decoder that has a state of `state_bytes` beside what it decodes: the window of a decompressor, a
/// structure for each item however short.
///
/// # Panics
///
/// As [`run`].
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn run_with(target: &str, state_bytes: impl Fn(&[u8]) -> usize, decode: impl Fn(&[u8]) -> Outcome) {
    let folder = match corpus(target) {
        Ok(folder) => folder,
        Err(error) => panic!("{target}: {error:#}"),
    };
    match fuzz(target, &folder, &state_bytes, &decode) {
        Ok(Found { inputs, outcomes }) => println!("{target}: {inputs} inputs, {outcomes} outcomes"),
        Err(error) => panic!("{target}: {error:#}"),
    }
}

/// A run without a failure.
#[derive(Debug)]
struct Found {
    inputs: usize,
    outcomes: usize,
}

fn fuzz(
    target: &str,
    folder: &Path,
    state_bytes: &dyn Fn(&[u8]) -> usize,
    decode: &dyn Fn(&[u8]) -> Outcome,
) -> anyhow::Result<Found> {
    let mut population = files(folder)?;
    anyhow::ensure!(!population.is_empty(), "no files in {}", folder.display());
    let mut outcomes = HashSet::new();
    let mut check = |input: &[u8]| -> anyhow::Result<bool> {
        match limits::check(input, state_bytes(input), decode) {
            Ok(outcome) => Ok(outcomes.insert(class(&outcome))),
            Err(failure) => {
                let shortest = shortened(input, state_bytes, decode);
                let path = folder.join(format!("failed-{:08x}", crc32fast::hash(&shortest)));
                fs::write(&path, &shortest)?;
                anyhow::bail!("{failure}; input: {}", path.display())
            }
        }
    };
    for input in &population {
        check(input)?;
    }
    let seed = seed()?;
    println!("{target}: OXTSDB_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed ^ u64::from(crc32fast::hash(target.as_bytes())));
    let end = Instant::now() + seconds()?;
    let mut inputs = population.len();
    while Instant::now() < end {
        let mut input = mutate::next_input(&population, &mut random);
        input.truncate(MAX_INPUT);
        inputs += 1;
        if check(&input)? {
            if population.len() < POPULATION {
                population.push(input);
            } else {
                let place = random.random_range(0..population.len());
                population[place] = input;
            }
        }
    }
    Ok(Found {
        inputs,
        outcomes: outcomes.len(),
    })
}

/// The class of an outcome, which all outcomes of one kind share.
fn class(outcome: &Outcome) -> String {
    match outcome {
        Ok(items) => format!("{} bits", usize::BITS - items.leading_zeros()),
        Err(message) => {
            // A message quotes its input between backticks, as a number, or as hex.
            let parts = message.split(['`', '"']).step_by(2).collect::<String>();
            let words = parts.split(|c: char| !c.is_ascii_alphabetic());
            words
                .filter(|word| !word.is_empty() && !word.chars().all(|c| c.is_ascii_hexdigit()))
                .take(12)
                .collect::<Vec<_>>()
                .join(" ")
        }
    }
}

/// The shortest input found that fails too.
fn shortened(
    input: &[u8],
    state_bytes: &dyn Fn(&[u8]) -> usize,
    decode: &dyn Fn(&[u8]) -> Outcome,
) -> Vec<u8> {
    let end = Instant::now() + Duration::from_secs(5);
    let mut input = input.to_vec();
    let mut length = input.len() / 2;
    while length > 0 {
        let mut start = 0;
        while start + length <= input.len() && Instant::now() < end {
            let mut shorter = input.clone();
            shorter.drain(start..start + length);
            if limits::check(&shorter, state_bytes(&shorter), decode).is_err() {
                input = shorter;
            } else {
                start += length;
            }
        }
        length /= 2;
    }
    input
}

/// The folder of a target's files, below the folder of the package or of the workspace around it.
fn corpus(target: &str) -> anyhow::Result<PathBuf> {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let package = PathBuf::from(package);
    let mut folders = package
        .ancestors()
        .map(|folder| folder.join("crates/fuzz/corpus"));
    match folders.find(|folder| folder.is_dir()) {
        Some(folder) => Ok(folder.join(target)),
        None => anyhow::bail!("no crates/fuzz/corpus above {}", package.display()),
    }
}

fn files(folder: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    use anyhow::Context as _;
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    let files = paths.iter().map(fs::read).collect::<Result<_, _>>()?;
    Ok(files)
}

fn seconds() -> anyhow::Result<Duration> {
    let seconds = match env::var("OXTSDB_FUZZ_SECONDS") {
        Ok(text) => text
            .parse()
            .map_err(|_| anyhow::anyhow!("OXTSDB_FUZZ_SECONDS: `{text}` is not a number"))?,
        Err(_not_set) => DEFAULT_SECONDS,
    };
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| anyhow::anyhow!("OXTSDB_FUZZ_SECONDS: `{seconds}`: {error}"))
}

fn seed() -> anyhow::Result<u64> {
    match env::var("OXTSDB_TEST_SEED") {
        Ok(text) => text
            .parse()
            .map_err(|_| anyhow::anyhow!("OXTSDB_TEST_SEED: `{text}` is not a number")),
        Err(_not_set) => Ok(u64::from(rand::random::<u32>())),
    }
}
