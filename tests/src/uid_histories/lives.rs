//! The life of each UID: its changes, and from their possible orders its names over time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Change, Instant, Operation, Violation};

/// Steps that a search for a chain tries before it gives up, and accepts.
const MAX_TRIES: usize = 200_000;

/// A time at which a UID had a name.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) name: String,
    pub(super) uid: u64,
    /// From the earliest instant to the latest.
    pub(super) possible: (Instant, Instant),
    /// From the latest instant of its begin to the earliest of its end; empty if the first is not before the second.
    pub(super) certain: (Instant, Instant),
}

/// A rename (`to`) or delete of a UID.
#[derive(Clone, Debug)]
struct Step {
    start: Instant,
    end: Instant,
    from: String,
    to: Option<String>,
    is_certain: bool,
}

impl Step {
    /// Whether it can follow when the UID has `name`. The retry of a rename finds the new name, and is acknowledged.
    fn follows(&self, name: &str) -> bool {
        self.from == name || (self.is_certain && self.to.as_deref() == Some(name))
    }
}

/// All that happened to one UID.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    /// Requests that assigned it.
    created: Vec<(String, Instant, Instant)>,
    steps: Vec<Step>,
    /// Names that requests resolved to this UID, and the start of the first request.
    requested: BTreeMap<String, Instant>,
    /// Names that it was seen with, and the end of the first response.
    seen: BTreeMap<String, Instant>,
}

pub(super) fn collect<'a>(
    operation: &'a Operation,
    lives: &mut BTreeMap<u64, Life>,
    lost: &mut BTreeMap<&'a str, Instant>,
) {
    let Operation { start, end, action } = operation;
    let mut seen = |uid: u64, name: &str| {
        let life = lives.entry(uid).or_default();
        let first = life.seen.entry(name.to_owned()).or_insert(*end);
        *first = (*first).min(*end);
    };
    match action {
        Action::GetOrCreate { name, outcome } => match outcome {
            Some((uid, created)) => {
                seen(*uid, name);
                let life = lives.entry(*uid).or_default();
                if *created {
                    life.created.push((name.clone(), *start, *end));
                }
                let first = life.requested.entry(name.clone()).or_insert(*start);
                *first = (*first).min(*start);
            }
            None => {
                let first = lost.entry(name).or_insert(*start);
                *first = (*first).min(*start);
            }
        },
        Action::Rename { from, to, outcome } => step(lives, *outcome, (*start, *end), from, Some(to)),
        Action::Delete { name, outcome } => step(lives, *outcome, (*start, *end), name, None),
        Action::LookupUid { name, uid } => {
            if let Some(uid) = uid {
                seen(*uid, name);
            }
        }
        Action::LookupName { uid, name } => {
            if let Some(name) = name {
                seen(*uid, name);
            }
        }
    }
}

fn step(
    lives: &mut BTreeMap<u64, Life>,
    outcome: Change,
    (start, end): (Instant, Instant),
    from: &str,
    to: Option<&String>,
) {
    let (uid, end, is_certain) = match outcome {
        Change::Done(uid) => (uid, end, true),
        Change::Unknown(uid) => (uid, Instant::MAX, false),
        Change::NotFound | Change::Rejected => return,
    };
    lives.entry(uid).or_default().steps.push(Step {
        start,
        end,
        from: from.to_owned(),
        to: to.cloned(),
        is_certain,
    });
}

/// The names of a UID over time. If several orders of its changes are valid, their union is possible and nothing certain.
pub(super) fn tenures_of(
    uid: u64,
    life: &Life,
    lost: &BTreeMap<&str, Instant>,
) -> Result<Vec<Tenure>, Violation> {
    let mut steps = life.steps.clone();
    steps.sort_by_key(|step| step.start);
    let mut search = Search {
        steps: &steps,
        is_used: vec![false; steps.len()],
        chain: Vec::new(),
        orders: Vec::new(),
        tries: 0,
    };
    let mut tenures = Vec::new();
    let mut chains = 0;
    for (name, start, end) in first_names(uid, life, lost)? {
        search.run(&name);
        chains += search.orders.len();
        for chain in search.orders.drain(..) {
            tenures.extend(along(uid, (&name, start, end), &chain, &steps));
        }
    }
    if search.tries >= MAX_TRIES {
        return Ok(anything(uid, life));
    }
    if chains == 0 {
        return Err(Violation(format!(
            "the changes of UID {uid} have no order in which each one changes the name that the UID has: \
             created as {:?}, then {steps:?}",
            life.created
        )));
    }
    if chains > 1 {
        tenures.iter_mut().for_each(|tenure| tenure.certain = NEVER);
    }
    Ok(tenures)
}

/// An empty interval.
const NEVER: (Instant, Instant) = (Instant::MAX, 0);

/// The names that a UID may have been created with, and when.
fn first_names(
    uid: u64,
    life: &Life,
    lost: &BTreeMap<&str, Instant>,
) -> Result<Vec<(String, Instant, Instant)>, Violation> {
    match life.created.as_slice() {
        [created] => return Ok(vec![created.clone()]),
        [] => {}
        several => {
            return Err(Violation(format!(
                "UID {uid} was assigned {} times: {several:?}",
                several.len()
            )));
        }
    }
    // The response to the request that assigned it was lost, perhaps to an attempt before the last one.
    let latest = life
        .seen
        .values()
        .chain(life.steps.iter().map(|step| &step.end))
        .min();
    let latest = latest.copied().unwrap_or(Instant::MAX);
    let names: BTreeSet<&str> = life
        .seen
        .keys()
        .chain(life.steps.iter().map(|step| &step.from))
        .map(String::as_str)
        .collect();
    let names = names.into_iter().filter_map(|name| {
        let requests = [lost.get(name), life.requested.get(name)];
        let start = requests.into_iter().flatten().min()?;
        Some((name.to_owned(), *start, latest))
    });
    let names: Vec<_> = names.filter(|(_, start, end)| start <= end).collect();
    if names.is_empty() {
        return Err(Violation(format!(
            "UID {uid} was never assigned, but has the names {:?}",
            life.seen
        )));
    }
    Ok(names)
}

/// A search for all valid orders of the changes of one UID.
struct Search<'a> {
    /// By their start.
    steps: &'a [Step],
    is_used: Vec<bool>,
    /// The current order.
    chain: Vec<usize>,
    orders: Vec<Vec<usize>>,
    tries: usize,
}

impl Search<'_> {
    /// Finds the orders that begin with a UID that has `name`.
    fn run(&mut self, name: &str) {
        self.tries += 1;
        if self.tries >= MAX_TRIES {
            return;
        }
        let mut unused = (0..self.steps.len()).filter(|index| !self.is_used[*index]);
        if unused.all(|index| !self.steps[index].is_certain) {
            self.orders.push(self.chain.clone());
        }
        let unused = (0..self.steps.len()).filter(|index| !self.is_used[*index]);
        // No step can follow one that began after its end.
        let first_end = unused
            .clone()
            .map(|index| self.steps[index].end)
            .min()
            .unwrap_or(0);
        let next: Vec<usize> = unused
            .filter(|index| self.steps[*index].follows(name) && self.steps[*index].start <= first_end)
            .collect();
        for index in next {
            self.is_used[index] = true;
            self.chain.push(index);
            match &self.steps[index].to {
                Some(name) => self.run(name),
                None => self.run_deleted(),
            }
            self.chain.pop();
            self.is_used[index] = false;
        }
    }

    /// Nothing follows a delete.
    fn run_deleted(&mut self) {
        let mut unused = (0..self.steps.len()).filter(|index| !self.is_used[*index]);
        if unused.all(|index| !self.steps[index].is_certain) {
            self.orders.push(self.chain.clone());
        }
    }
}

/// The tenures of one order of changes.
fn along(uid: u64, first: (&str, Instant, Instant), chain: &[usize], steps: &[Step]) -> Vec<Tenure> {
    let (name, start, end) = first;
    // The earliest and the latest instant of the creation and of each step.
    let mut earliest = vec![start];
    let mut latest = vec![end];
    let mut names = vec![Some(name.to_owned())];
    for step in chain.iter().map(|index| &steps[*index]) {
        earliest.push(step.start.max(earliest.last().copied().unwrap_or_default()));
        latest.push(step.end);
        names.push(step.to.clone());
    }
    for index in (1..latest.len()).rev() {
        latest[index - 1] = latest[index - 1].min(latest[index]);
    }
    let mut tenures = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let Some(name) = name else { continue };
        let next = |instants: &[Instant]| instants.get(index + 1).copied().unwrap_or(Instant::MAX);
        tenures.push(Tenure {
            name,
            uid,
            possible: (earliest[index], next(&latest)),
            certain: (latest[index], next(&earliest)),
        });
    }
    tenures
}

/// A UID with changes in too many possible orders: any name at any time.
fn anything(uid: u64, life: &Life) -> Vec<Tenure> {
    let names: BTreeSet<&String> = life
        .seen
        .keys()
        .chain(life.created.iter().map(|(name, ..)| name))
        .chain(
            life.steps
                .iter()
                .flat_map(|step| [Some(&step.from), step.to.as_ref()])
                .flatten(),
        )
        .collect();
    let tenure = |name: &String| Tenure {
        name: name.clone(),
        uid,
        possible: (0, Instant::MAX),
        certain: NEVER,
    };
    names.into_iter().map(tenure).collect()
}
