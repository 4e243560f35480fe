//! The modules of a crate: their files, items and imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::tokens::{Token, tokens};

/// Words that begin items and precede their name.
const ITEMS: [&str; 8] = [
    "const", "enum", "fn", "static", "struct", "trait", "type", "union",
];

/// The index of a module in [`Modules::all`].
pub(super) type ModuleId = usize;

/// The segments of a path.
pub(super) type Segments = Vec<String>;

/// An import of one name, or of all names of a module.
#[derive(Clone, Debug)]
pub(super) struct Import {
    pub(super) path: Segments,
    /// The name in the module; `None`: all names of the path.
    pub(super) name: Option<String>,
    /// Whether it passes the item on.
    pub(super) is_public: bool,
    /// Whether it is the module's, not a function's.
    pub(super) is_outer: bool,
    pub(super) line: usize,
}

/// A module.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: PathBuf,
    pub(super) parent: Option<ModuleId>,
    pub(super) root: ModuleId,
    /// The folder of its children.
    folder: PathBuf,
    pub(super) children: BTreeMap<String, ModuleId>,
    /// The names that it defines.
    pub(super) items: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// The tokens outside of imports and of modules within the file.
    pub(super) code: Vec<Token>,
}

/// The modules of a crate, without tests.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) all: Vec<Module>,
}

/// Reads the text of a file, if it exists.
type Read<'r> = &'r dyn Fn(&Path) -> Option<String>;

impl Modules {
    /// Parses the files of a crate, from its roots.
    ///
    /// # Errors
    ///
    /// The file of a module does not exist.
    pub(super) fn parse(roots: &[PathBuf], read: Read<'_>) -> anyhow::Result<Self> {
        let mut modules = Self::default();
        for root in roots {
            let text = read(root).with_context(|| format!("no file {}", root.display()))?;
            let folder = root.parent().unwrap_or(Path::new("")).to_owned();
            let id = modules.add(root.clone(), None, folder);
            modules.fill(id, without_tests(&tokens(&text)), read)?;
        }
        Ok(modules)
    }

    fn add(&mut self, file: PathBuf, parent: Option<ModuleId>, folder: PathBuf) -> ModuleId {
        let id = self.all.len();
        self.all.push(Module {
            file,
            parent,
            root: parent.map_or(id, |parent| self.all[parent].root),
            folder,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: Vec::new(),
            code: Vec::new(),
        });
        id
    }

    /// Parses the tokens of a module.
    fn fill(&mut self, id: ModuleId, tokens: Vec<Token>, read: Read<'_>) -> anyhow::Result<()> {
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        let mut at = 0;
        let mut depth = 0_usize;
        let mut path_attribute = None;
        while at < tokens.len() {
            match text(at) {
                "#" if matches!(text(at + 1), "[" | "!") => {
                    let open = if text(at + 1) == "!" { at + 2 } else { at + 1 };
                    let end = closing(&tokens, open);
                    if text(open + 1) == "path" {
                        path_attribute = text(open + 3).strip_prefix('"').map(str::to_owned);
                    }
                    self.all[id].code.extend_from_slice(&tokens[at..=end]);
                    at = end + 1;
                    continue;
                }
                // `use<'a>` of a type has no path.
                "use" if text(at + 1) != "<" => {
                    let template = Import {
                        path: Vec::new(),
                        name: None,
                        is_public: is_public(&tokens[..at]),
                        is_outer: depth == 0,
                        line: 0,
                    };
                    at = use_tree(&tokens, at + 1, &template, &mut self.all[id].imports) + 1;
                    continue;
                }
                "mod" if depth == 0 && text(at + 2) == ";" => {
                    let name = text(at + 1).to_owned();
                    self.add_file(id, &name, path_attribute.take(), read)?;
                    at += 3;
                    continue;
                }
                "mod" if depth == 0 && text(at + 2) == "{" => {
                    let name = text(at + 1).to_owned();
                    let end = closing(&tokens, at + 2);
                    let (file, folder) = (self.all[id].file.clone(), self.all[id].folder.join(&name));
                    let child = self.add(file, Some(id), folder);
                    self.all[id].children.entry(name).or_insert(child);
                    self.fill(child, tokens[at + 3..end].to_vec(), read)?;
                    at = end + 1;
                    continue;
                }
                "macro_rules" if depth == 0 => {
                    self.all[id].items.insert(text(at + 2).to_owned());
                }
                item if depth == 0 && ITEMS.contains(&item) => {
                    // `const fn` is an item of the next word.
                    let name = if text(at + 1) == "mut" { at + 2 } else { at + 1 };
                    if tokens.get(name).is_some_and(Token::is_word) {
                        self.all[id].items.insert(text(name).to_owned());
                    }
                }
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                ";" => path_attribute = None,
                _ => {}
            }
            self.all[id].code.push(tokens[at].clone());
            at += 1;
        }
        Ok(())
    }

    /// Adds a module that has a file of its own.
    fn add_file(
        &mut self,
        parent: ModuleId,
        name: &str,
        path: Option<String>,
        read: Read<'_>,
    ) -> anyhow::Result<()> {
        let folder = self.all[parent].folder.join(name);
        let candidates = match path {
            Some(path) => vec![self.all[parent].file.with_file_name(path)],
            None => vec![folder.with_extension("rs"), folder.join("mod.rs")],
        };
        let source = candidates
            .into_iter()
            .find_map(|file| read(&file).map(|text| (file, text)));
        let Some((file, text)) = source else {
            bail!("no file of module {name} of {}", self.all[parent].file.display());
        };
        let child = self.add(file, Some(parent), folder);
        // Of several under conditions the first has the name.
        self.all[parent].children.entry(name.to_owned()).or_insert(child);
        self.fill(child, without_tests(&tokens(&text)), read)
    }
}

/// The index of the bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len().saturating_sub(1)
}

/// Whether tokens end in `pub` or `pub(…)`.
fn is_public(before: &[Token]) -> bool {
    let mut before = before.iter().rev().map(|token| token.text.as_str());
    match before.next() {
        Some("pub") => true,
        Some(")") => before.skip_while(|text| *text != "(").nth(1) == Some("pub"),
        _ => false,
    }
}

/// Parses the tree of an import from `at`, and returns the index behind it.
fn use_tree(tokens: &[Token], mut at: usize, prefix: &Import, imports: &mut Vec<Import>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut import = prefix.clone();
    loop {
        import.line = tokens.get(at).map_or(0, |token| token.line);
        match text(at) {
            "" => return at,
            "::" => {
                // A path that begins so is of another crate.
                if import.path.is_empty() {
                    import.path.push("::".to_owned());
                }
                at += 1;
            }
            "{" => {
                at += 1;
                while !matches!(text(at), "}" | "") {
                    at = use_tree(tokens, at, &import, imports);
                    if text(at) == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "*" => {
                imports.push(import);
                return at + 1;
            }
            segment => {
                if segment != "self" || import.path.is_empty() {
                    import.path.push(segment.to_owned());
                }
                at += 1;
                if text(at) == "::" {
                    continue;
                }
                import.name = import.path.last().cloned();
                if text(at) == "as" {
                    import.name = Some(text(at + 1).to_owned());
                    at += 2;
                }
                imports.push(import);
                return at;
            }
        }
    }
}

/// Removes items that are compiled for tests only.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if text(at) == "#" && text(at + 1) == "[" {
            let end = closing(tokens, at + 1);
            let words: Vec<&str> = (at + 2..end).map(text).collect();
            let is_test = matches!(
                words.as_slice(),
                ["cfg", "(", "test" | "doctest", ")"] | ["cfg", "(", "all", "(", "test", ..]
            );
            if is_test {
                at = behind_item(tokens, end + 1);
                continue;
            }
        }
        kept.push(tokens[at].clone());
        at += 1;
    }
    kept
}

/// The index behind the item, field or statement that begins at `at`.
fn behind_item(tokens: &[Token], mut at: usize) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    while text(at) == "#" {
        at = closing(tokens, at + 1) + 1;
    }
    let mut word = at;
    while matches!(text(word), "pub" | "(" | ")" | "crate" | "super" | "in" | "self") {
        word += 1;
    }
    let is_constant = text(word) == "const" && !matches!(text(word + 1), "async" | "fn" | "unsafe");
    let ends_in_semicolon = is_constant || matches!(text(word), "let" | "static" | "type" | "use");
    let is_field = text(word + 1) == ":";
    while at < tokens.len() {
        match text(at) {
            "{" | "(" | "[" => {
                let end = closing(tokens, at);
                if text(at) == "{" && !ends_in_semicolon && !is_field {
                    return end + 1;
                }
                at = end + 1;
            }
            ";" => return at + 1,
            "," if is_field => return at + 1,
            "}" | ")" | "]" => return at,
            _ => at += 1,
        }
    }
    at
}
