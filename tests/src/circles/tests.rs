use std::collections::BTreeMap;

use super::*;

/// The edges of a library with these files and texts, as `from to item`.
fn crate_of(files: &[(&str, &str)]) -> Vec<Edge> {
    let files: BTreeMap<PathBuf, String> = files
        .iter()
        .map(|(path, text)| (path.into(), (*text).to_owned()))
        .collect();
    edges(&["lib.rs".into()], &|path| files.get(path).cloned()).unwrap()
}

fn shown(edges: &[Edge]) -> Vec<String> {
    let edge = |edge: &Edge| {
        let items: Vec<_> = edge.items.iter().map(|(item, _)| item.as_str()).collect();
        format!(
            "{} {} {}",
            edge.from.display(),
            edge.to.display(),
            items.join(",")
        )
    };
    edges.iter().map(edge).collect()
}

#[test]
fn imports_lead_to_the_file_that_defines_the_item() {
    let edges = crate_of(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::{A, inner::deep::Deep};\n"),
        (
            "a.rs",
            "pub mod inner;\npub struct A;\npub(crate) use inner::deep::{\n    Deep as D,\n};",
        ),
        ("a/inner/mod.rs", "pub mod deep;"),
        (
            "a/inner/deep.rs",
            "pub enum Deep { X }\npub fn f() { super::super::A; }",
        ),
        (
            "b.rs",
            "use crate::{A, a::D};\nuse std::fmt;\nfn g() { crate::a::inner::deep::f(); D::X; }",
        ),
    ]);
    assert_eq!(
        shown(&edges),
        [
            "a/inner/deep.rs a.rs A",
            "b.rs a/inner/deep.rs Deep,Deep,f",
            "b.rs a.rs A"
        ]
    );
    let items = [("Deep", 1), ("Deep", 3), ("f", 3)];
    let items = items.map(|(item, line)| (item.to_owned(), line));
    assert_eq!(edges[1].items, items.into());
}

#[test]
fn tests_comments_and_texts_are_no_uses() {
    let edges = crate_of(&[
        ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod tests;"),
        (
            "a.rs",
            "/// [`crate::b::B`]\nconst T: &str = \"crate::b::B\";\n#[cfg(test)]\nuse crate::b::B;\n#[cfg(test)]\nmod tests { use crate::b::B; }",
        ),
        ("b.rs", "pub struct B { #[cfg(test)] a: crate::a::A, b: u8 }"),
    ]);
    assert_eq!(shown(&edges), [""; 0]);
}

#[test]
fn globs_and_functions_of_modules_are_uses() {
    let edges = crate_of(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use crate::b::*;\nfn f() -> B { todo!() }"),
        ("b.rs", "pub struct B;\npub struct Unused;"),
        ("c.rs", "use crate::a;\nuse super::b;\nfn g() { a::f(); }"),
    ]);
    assert_eq!(shown(&edges), ["a.rs b.rs B", "c.rs a.rs f"]);
}

/// The files of each circle.
fn files_of_circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let circles = circles(&crate_of(files));
    let files = |circle: &Circle| {
        let files: BTreeSet<String> = circle
            .edges
            .iter()
            .map(|edge| edge.from.display().to_string())
            .collect();
        files.into_iter().collect()
    };
    circles.iter().map(files).collect()
}

#[test]
fn siblings_that_use_each_other_are_a_circle() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        ("b.rs", "use crate::c::C;\npub struct B(C);"),
        ("c.rs", "pub struct C(Vec<super::a::A>);"),
    ];
    assert_eq!(files_of_circles(&files), [["a.rs", "b.rs", "c.rs"]]);
    let circle = circles(&crate_of(&files)).remove(0).to_string();
    assert!(circle.contains("  b.rs -> c.rs: C (line 1)\n"), "{circle}");
}

#[test]
fn the_edges_of_the_shortest_circle_are_first() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        ("b.rs", "pub struct B(super::c::C);"),
        ("c.rs", "pub struct C(super::a::A, super::b::B);"),
    ];
    let circle = circles(&crate_of(&files)).remove(0);
    assert_eq!(
        shown(&circle.edges),
        ["b.rs c.rs C", "c.rs b.rs B", "a.rs b.rs B", "c.rs a.rs A"]
    );
}

#[test]
fn a_parent_and_its_children_are_one_module() {
    let parent = (
        "a.rs",
        "mod x;\nmod y;\npub struct A;\nfn f() { x::f(); y::f(); }",
    );
    let alone = [
        ("lib.rs", "mod a;"),
        parent,
        ("a/x.rs", "pub fn f() { super::y::f(); super::A; }"),
        ("a/y.rs", "pub fn f() { super::A; }"),
    ];
    assert_eq!(files_of_circles(&alone), [[""; 0]; 0]);
    let siblings = [
        alone[0],
        parent,
        alone[2],
        ("a/y.rs", "pub fn f() { super::x::f(); }"),
    ];
    assert_eq!(files_of_circles(&siblings), [["a/x.rs", "a/y.rs"]]);
}

#[test]
fn a_circle_through_a_child_counts() {
    let files = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "mod x;\npub struct A;\nfn f() { x::f(); }"),
        ("a/x.rs", "pub fn f() { crate::b::f(); }"),
        ("b.rs", "pub fn f() { crate::a::A; }"),
    ];
    assert_eq!(files_of_circles(&files), [["a.rs", "a/x.rs", "b.rs"]]);
}
