//! `tsdb tree` and `tsdb uid treesync`: definitions, placing, printing, deletes.

use crate::harness::Server;

const POINTS: &str = "sys.cpu.user 1346846400 1 host=web01 dc=lax\n\
    sys.cpu.nice 1346846400 1 host=web01 dc=lax\n\
    sys.cpu.user 1346846400 1 host=web02 dc=lga\n\
    sys.load 1346846400 1 host=web02\n";

const TREE: &str = r"
name = 'By DC'
strict_match = true
store_failures = true

[[rules]]
level = 0
type = 'TAGK'
field = 'dc'

[[rules]]
level = 1
type = 'TAGK'
field = 'host'

[[rules]]
level = 2
type = 'METRIC'
separator = '\.'
";

#[test]
fn a_tree_is_created_filled_printed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run_with(&["import", "-"], POINTS).ok();
    let file = folder.path().join("tree.toml");
    std::fs::write(&file, TREE).unwrap();
    let file = file.to_str().unwrap();

    assert_eq!(server.run(&["tree", "create", "--file", file]).ok(), "1\n");
    assert_eq!(
        server.run(&["tree", "rules", "1"]).ok(),
        "0:0 TAGK field=dc\n1:0 TAGK field=host\n2:0 METRIC separator=\\.\n"
    );
    let list = server.run(&["tree", "list"]).ok();
    assert!(list.contains("By DC"), "{list}");

    let place = server.run(&["tree", "test", "1", "sys.cpu.user{host=web01,dc=lax}"]);
    assert_eq!(
        place.ok(),
        "sys.cpu.user{host=web01,dc=lax}\tlax/web01/sys/cpu/user\n"
    );
    let none = server
        .run(&["tree", "test", "1", "sys.load{host=web02}"])
        .failed(1);
    assert!(
        none.stdout.starts_with("sys.load{host=web02}\tno place: "),
        "{none:?}"
    );
    assert_eq!(
        server.run(&["tree", "show", "1"]).ok(),
        "",
        "a test stores nothing"
    );

    let none = server.run(&["uid", "treesync", "--tree", "1"]);
    assert!(none.stderr.contains("--all-series"), "{none:?}");
    let sync = ["uid", "treesync", "--tree", "1", "--all-series"];
    let first = server.run(&sync).ok();
    assert!(
        first.starts_with("series: 4\nplaced: 3\nalready placed: 0\n") && first.contains("not matched: 1\n"),
        "{first}"
    );
    let second = server.run(&sync).ok();
    assert!(
        second.starts_with("series: 4\nplaced: 0\nalready placed: 3\n"),
        "{second}"
    );
    assert_eq!(
        server.run(&["tree", "show", "1", "lax", "--depth", "3"]).ok(),
        "lax/\n\
         └── web01/\n\
         \u{20}   └── sys/\n\
         \u{20}       └── cpu/…\n"
    );
    let not_matched = server.run(&["tree", "not-matched", "1"]).ok();
    assert!(
        not_matched.ends_with("\t[1:0:0:TAGK]\n") && not_matched.lines().count() == 1,
        "{not_matched}"
    );

    let deleted = server.run(&["tree", "delete", "1", "--definition"]).ok();
    assert!(
        deleted.contains(" 3 leaves, 1 collisions and series that did not match, the definition"),
        "{deleted}"
    );
}

#[test]
fn an_unknown_tree_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let rules = folder.path().join("rules.json");
    std::fs::write(&rules, r#"[{"type": "METRIC"}]"#).unwrap();
    let rules = rules.to_str().unwrap();
    for arguments in [
        &["tree", "show", "7"][..],
        &["tree", "rules", "7"],
        &["tree", "rules", "7", "--file", rules],
        &["tree", "rules", "7", "--delete", "0:0"],
        &["tree", "enable", "7"],
        &["tree", "disable", "7"],
        &["tree", "test", "7", "000001000001000001"],
        &["tree", "collisions", "7"],
        &["tree", "not-matched", "7"],
        &["tree", "delete", "7"],
        &["tree", "delete", "7", "--definition"],
        &["uid", "treesync", "--tree", "7"],
        &["uid", "treepurge", "7"],
    ] {
        let failed = server.run(arguments).failed(1);
        assert!(
            failed.stderr.contains("NOT_FOUND: tree 7 does not exist") && failed.stdout.is_empty(),
            "{arguments:?}: {failed:?}"
        );
    }
    for (arguments, message) in [
        (["tree", "show", "0"], "tree_id"),
        (["tree", "show", "65536"], "tree_id"),
        (["tree", "show", "x"], "invalid value 'x' for '<ID>'"),
    ] {
        let failed = server.run(&arguments);
        assert!(failed.stderr.contains(message), "{arguments:?}: {failed:?}");
    }
}

#[test]
fn a_bad_rule_is_named_with_its_part() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(&["tree", "create", "hosts"]).ok();
    for (rule, parts) in [
        (
            r#"{"type": "METRIC", "level": 3, "regex": "a("}"#,
            ["3:0", "regex", "index 1"],
        ),
        (
            r#"{"type": "METRIC", "level": 3, "separator": "x["}"#,
            ["3:0", "separator", "index 1"],
        ),
        (
            r#"{"type": "METRIC", "level": 3, "order": 2, "regex": "(?=a)"}"#,
            ["3:2", "regex", "look"],
        ),
        (
            r#"{"type": "METRIC", "level": 3, "regex": "(a)", "regex_group_idx": 2}"#,
            ["3:0", "regex_group", "2"],
        ),
        (
            r#"{"type": "TAGK", "level": 3}"#,
            ["3:0", "field", "needs a field"],
        ),
        (
            r#"{"type": "TAGV_CUSTOM", "level": 3, "field": "host"}"#,
            ["3:0", "custom_field", "needs"],
        ),
    ] {
        let definition = format!(r#"{{"name": "x", "rules": [{{"type": "METRIC"}}, {rule}]}}"#);
        for arguments in [
            &["tree", "create", "--file", "-"][..],
            &["tree", "rules", "1", "--file", "-"],
        ] {
            let failed = server.run_with(arguments, &definition).failed(1);
            for part in ["INVALID_ARGUMENT"].iter().chain(&parts) {
                assert!(failed.stderr.contains(part), "{rule}: {part}: {}", failed.stderr);
            }
        }
    }
    assert_eq!(
        server.run(&["tree", "rules", "1"]).ok(),
        "",
        "all rules are stored, or none"
    );
    let unknown = server.run_with(
        &["tree", "create", "--file", "-"],
        r#"{"name": "x", "rules": [{"type": "TAGV"}]}"#,
    );
    assert!(unknown.failed(1).stderr.contains("TAGV"));
}
