//! Finds circles of files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use super::{Circle, Edge};

/// The files that each file uses.
type Graph<'e> = BTreeMap<&'e Path, BTreeSet<&'e Path>>;

/// Returns the circles of edges, without circles of a file and files below it.
pub(super) fn circles(edges: &[Edge]) -> Vec<Circle> {
    let mut graph = Graph::new();
    for edge in edges {
        graph.entry(&edge.from).or_default().insert(&edge.to);
        graph.entry(&edge.to).or_default();
    }
    let circle = |files: BTreeSet<&Path>| {
        let has = |path: &Path| files.contains(path);
        let between = edges.iter().filter(|edge| has(&edge.from) && has(&edge.to));
        let mut edges: Vec<Edge> = between.cloned().collect();
        let shortest = shortest(&edges);
        edges.sort_by_key(|edge| {
            shortest
                .iter()
                .position(|step| step == edge)
                .unwrap_or(usize::MAX)
        });
        Circle { edges }
    };
    counted(&graph).into_iter().map(circle).collect()
}

/// The sets of files that reach each other, without sets in which one file is the parent of all others.
fn counted<'e>(graph: &Graph<'e>) -> Vec<BTreeSet<&'e Path>> {
    let mut circles = Vec::new();
    for files in components(graph) {
        let parent = files
            .iter()
            .copied()
            .find(|file| files.iter().all(|other| file == other || is_below(other, file)));
        match parent {
            None => circles.push(files),
            Some(parent) => {
                let rest = files.iter().copied().filter(|file| *file != parent);
                circles.extend(counted(&part(graph, rest.collect())));
            }
        }
    }
    circles
}

/// The graph of some of its files.
fn part<'e>(graph: &Graph<'e>, files: BTreeSet<&'e Path>) -> Graph<'e> {
    let uses = |file: &&'e Path| graph[file].intersection(&files).copied().collect();
    files.iter().map(|file| (*file, uses(file))).collect()
}

/// Whether the module of a file is below another file's.
fn is_below(file: &Path, other: &Path) -> bool {
    let folder = match other.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => other.parent().unwrap_or(other).to_owned(),
        _ => other.with_extension(""),
    };
    file.starts_with(folder)
}

/// The sets of two or more files that reach each other.
fn components<'e>(graph: &Graph<'e>) -> Vec<BTreeSet<&'e Path>> {
    let reachable: BTreeMap<&Path, BTreeSet<&Path>> = graph
        .keys()
        .map(|file| (*file, reachable_from(graph, file)))
        .collect();
    let mut components = Vec::new();
    let mut done = BTreeSet::new();
    for file in graph.keys().copied() {
        let mutual = reachable[file].iter().copied();
        let mut files: BTreeSet<&Path> = mutual.filter(|other| reachable[other].contains(file)).collect();
        files.insert(file);
        if files.len() > 1 && done.insert(file) {
            done.extend(files.iter().copied());
            components.push(files);
        }
    }
    components
}

/// The files that a file uses, directly or through others.
fn reachable_from<'e>(graph: &Graph<'e>, file: &'e Path) -> BTreeSet<&'e Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        open.extend(graph[file].iter().copied().filter(|used| reached.insert(*used)));
    }
    reached
}

/// The shortest chain of edges from a file back to itself.
fn shortest(edges: &[Edge]) -> Vec<Edge> {
    let chains = edges.iter().filter_map(|edge| {
        let mut chain = chain(edges, &edge.to, &edge.from)?;
        chain.insert(0, edge.clone());
        Some(chain)
    });
    chains.min_by_key(Vec::len).unwrap_or_default()
}

/// The fewest edges from a file to another.
fn chain(edges: &[Edge], from: &Path, to: &Path) -> Option<Vec<Edge>> {
    let mut reached: BTreeMap<&Path, Option<&Edge>> = BTreeMap::from([(from, None)]);
    let mut open = VecDeque::from([from]);
    while let Some(file) = open.pop_front() {
        for edge in edges.iter().filter(|edge| edge.from == file) {
            if !reached.contains_key(edge.to.as_path()) {
                reached.insert(&edge.to, Some(edge));
                open.push_back(&edge.to);
            }
        }
    }
    let mut chain = Vec::new();
    let mut file = to;
    while let Some(edge) = reached.get(file)? {
        chain.insert(0, (*edge).clone());
        file = &edge.from;
    }
    Some(chain)
}
