//! Resolves imports and paths to the files that define their items.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::Edge;
use super::modules::{ModuleId, Modules};
use super::tokens::Token;

/// The target of a path.
#[derive(Clone, Debug)]
enum Target {
    Module(ModuleId),
    /// An item of a module.
    Item(ModuleId, String),
    /// An item of another crate, or a name that is not resolved.
    Outside,
}

/// Returns the uses of items of other files.
pub(super) fn edges(modules: &Modules) -> Vec<Edge> {
    let mut edges: BTreeMap<(PathBuf, PathBuf), BTreeSet<(String, usize)>> = BTreeMap::new();
    for id in 0..modules.all.len() {
        let from = &modules.all[id].file;
        for (target, line) in targets(modules, id) {
            if let Target::Item(owner, item) = target
                && modules.all[owner].file != *from
            {
                let files = (from.clone(), modules.all[owner].file.clone());
                edges.entry(files).or_default().insert((item, line));
            }
        }
    }
    let edges = edges.into_iter();
    edges
        .map(|((from, to), items)| Edge { from, to, items })
        .collect()
}

/// The targets of a module's imports and of the paths in its code, with their lines.
fn targets(modules: &Modules, id: ModuleId) -> Vec<(Target, usize)> {
    let module = &modules.all[id];
    let mut targets = Vec::new();
    for import in &module.imports {
        let target = modules.resolve(id, &import.path, true);
        match (&import.name, target) {
            (Some(name), target) => {
                if !import.is_public || has_use(&module.code, name) {
                    targets.push((target, import.line));
                }
            }
            (None, Target::Module(other)) => {
                let words: BTreeSet<&str> = module.code.iter().map(|token| token.text.as_str()).collect();
                for word in words.into_iter().filter(|word| !module.items.contains(*word)) {
                    let target = modules.lookup(other, word, &mut Vec::new());
                    targets.push((target.unwrap_or(Target::Outside), import.line));
                }
            }
            // The variants of an enumeration.
            (None, target) => targets.push((target, import.line)),
        }
    }
    let text = |at: usize| module.code.get(at).map_or("", |token| token.text.as_str());
    let mut at = 0;
    while let Some(token) = module.code.get(at) {
        let is_inner = at > 0 && matches!(text(at - 1), "::" | ".");
        if !token.is_word() || text(at + 1) != "::" || is_inner {
            at += 1;
            continue;
        }
        let mut path = vec![token.text.clone()];
        at += 1;
        while text(at) == "::" && module.code.get(at + 1).is_some_and(Token::is_word) {
            path.push(text(at + 1).to_owned());
            at += 2;
        }
        targets.push((modules.resolve(id, &path, false), token.line));
    }
    targets
}

/// Whether code uses a name that it also passes on. A function is called or part of a path: variables may have its name.
fn has_use(code: &[Token], name: &str) -> bool {
    let is_type = name.starts_with(char::is_uppercase);
    code.iter().enumerate().any(|(at, token)| {
        let before = at.checked_sub(1).map_or("", |before| code[before].text.as_str());
        let behind = code.get(at + 1).map_or("", |token| token.text.as_str());
        let is_called = !matches!(before, "." | "fn") && matches!(behind, "::" | "(" | "!");
        token.text == name && (is_type || is_called)
    })
}

impl Modules {
    /// Resolves a path in a module. The first name of an import may be of another crate.
    fn resolve(&self, id: ModuleId, path: &[String], is_import: bool) -> Target {
        self.resolve_seen(id, path, is_import, &mut Vec::new())
            .unwrap_or(Target::Outside)
    }

    /// `seen` are the names that are being resolved, so that imports of each other end.
    fn resolve_seen(
        &self,
        id: ModuleId,
        path: &[String],
        is_import: bool,
        seen: &mut Vec<(ModuleId, String)>,
    ) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(self.all[id].root),
            "self" => Target::Module(id),
            "super" => {
                let mut parent = self.all[id].parent?;
                while let Some(("super", behind)) =
                    rest.split_first().map(|(first, rest)| (first.as_str(), rest))
                {
                    parent = self.all[parent].parent?;
                    rest = behind;
                }
                Target::Module(parent)
            }
            name => match self.lookup(id, name, seen) {
                Some(target) => target,
                None if is_import => return Some(Target::Outside),
                None => return None,
            },
        };
        for name in rest {
            let Target::Module(module) = target else { break };
            target = match self.lookup(module, name, seen) {
                Some(target) => target,
                // A macro may have made it.
                None if self.all[module]
                    .imports
                    .iter()
                    .all(|import| import.name.is_some()) =>
                {
                    Target::Item(module, name.clone())
                }
                None => return None,
            };
        }
        Some(target)
    }

    /// The target of a name in a module.
    fn lookup(&self, id: ModuleId, name: &str, seen: &mut Vec<(ModuleId, String)>) -> Option<Target> {
        let key = (id, name.to_owned());
        if seen.contains(&key) {
            return None;
        }
        let module = &self.all[id];
        if module.items.contains(name) {
            return Some(Target::Item(id, name.to_owned()));
        }
        if let Some(child) = module.children.get(name) {
            return Some(Target::Module(*child));
        }
        seen.push(key);
        let outer = || module.imports.iter().filter(|import| import.is_outer);
        let named = outer().find(|import| import.name.as_deref() == Some(name));
        let target = match named {
            Some(import) => self.resolve_seen(id, &import.path, true, seen),
            None => outer().filter(|import| import.name.is_none()).find_map(|import| {
                match self.resolve_seen(id, &import.path, true, seen)? {
                    Target::Module(other) => self.lookup(other, name, seen),
                    _ => None,
                }
            }),
        };
        seen.pop();
        target
    }
}
