use oxtsdb_schema::UidWidths;

use super::*;

const TSUID: &str = "000001000001000001000002000002";

fn subject(name: &str) -> Subject {
    let custom = name.strip_prefix("c-").map(|value| {
        Arc::new(BTreeMap::from([
            ("owner".to_owned(), value.to_owned()),
            ("empty".to_owned(), String::new()),
        ]))
    });
    Subject {
        name: name.into(),
        custom,
    }
}

fn series(metric: &str, tags: &[(&str, &str)]) -> SeriesFacts {
    SeriesFacts {
        tsuid: Tsuid::parse(TSUID, &UidWidths::default()).unwrap(),
        metric: subject(metric),
        tags: tags
            .iter()
            .map(|(tagk, tagv)| (subject(tagk), subject(tagv)))
            .collect(),
    }
}

fn web01() -> SeriesFacts {
    series("sys.cpu.user", &[("host", "web01"), ("dc", "lax")])
}

/// A rule from its level, its order, its type and its fields.
fn rule(level: i32, order: i32, rule_type: RuleType, fields: &[(&str, &str)]) -> RuleDocument {
    let mut rule = RuleDocument::new(TreeId::FIRST, rule_type);
    (rule.level, rule.order) = (level, order);
    for (name, text) in fields {
        let text = (*text).to_owned();
        match *name {
            "field" => rule.field = text,
            "custom" => rule.custom_field = text,
            "regex" => rule.regex = text,
            "group" => rule.regex_group_idx = text.parse().unwrap(),
            "separator" => rule.separator = text,
            "format" => rule.display_format = text,
            other => panic!("{other}"),
        }
    }
    rule
}

fn tagk(level: i32, field: &str) -> RuleDocument {
    rule(level, 0, RuleType::Tagk, &[("field", field)])
}

fn metric(level: i32, fields: &[(&str, &str)]) -> RuleDocument {
    rule(level, 0, RuleType::Metric, fields)
}

fn rule_set(strict: bool, rules: &[RuleDocument]) -> RuleSet {
    RuleSet::compile(TreeId::FIRST, strict, rules).unwrap()
}

/// The place as `branch/branch/leaf`.
fn path(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Place(place) => [&place.branches[..], std::slice::from_ref(&place.leaf)]
            .concat()
            .join("/"),
        other => panic!("{other:?}"),
    }
}

fn placed(rules: &[RuleDocument], series: &SeriesFacts) -> String {
    path(&rule_set(false, rules).place(series))
}

#[test]
fn the_documented_tree_places_a_series() {
    let rules = [
        tagk(0, "dc"),
        rule(
            1,
            0,
            RuleType::Tagk,
            &[("field", "host"), ("format", "host: {value}")],
        ),
        metric(2, &[("separator", r"\.")]),
    ];
    assert_eq!(placed(&rules, &web01()), "lax/host: web01/sys/cpu/user");
}

#[test]
fn the_first_rule_of_a_level_that_yields_a_name_counts() {
    let rules = [
        tagk(0, "rack"),
        rule(0, 1, RuleType::Tagk, &[("field", "host"), ("regex", "^db(.*)")]),
        rule(0, 2, RuleType::Tagk, &[("field", "dc")]),
        rule(0, 3, RuleType::Tagk, &[("field", "host")]),
        metric(7, &[]),
    ];
    assert_eq!(placed(&rules, &web01()), "lax/sys.cpu.user");
    let db = series("m", &[("host", "db7")]);
    assert_eq!(placed(&rules, &db), "7/m");
}

#[test]
fn a_group_of_the_first_match_is_the_name() {
    let group = |regex, index| {
        let rules = [
            metric(0, &[("regex", regex), ("group", index)]),
            tagk(1, "host"),
            tagk(2, "dc"),
        ];
        placed(&rules, &web01())
    };
    assert_eq!(group(r"(\w+)\.(\w+)", "0"), "sys/web01/lax");
    assert_eq!(group(r"(\w+)\.(\w+)", "1"), "cpu/web01/lax");
    for (regex, index) in [
        (r"(\w+)\.(\w+)", "2"),
        ("cpu", "0"),
        ("(x)?sys", "0"),
        ("(nothing)", "0"),
        ("(x*)sys", "0"),
    ] {
        assert_eq!(group(regex, index), "web01/lax", "{regex} {index} yields nothing");
    }
}

#[test]
fn tokens_of_the_format_are_replaced() {
    let format = |rule_type, format| {
        let fields = [
            ("field", "host"),
            ("custom", "owner"),
            ("regex", "(.)[0-9]?"),
            ("format", format),
        ];
        placed(
            &[rule(0, 0, rule_type, &fields), tagk(1, "dc")],
            &series("c-jane", &[("host", "w1"), ("dc", "lax")]),
        )
    };
    assert_eq!(
        format(RuleType::Tagk, "{ovalue}-{value}-{tag_name}"),
        "w1-w-host/lax"
    );
    assert_eq!(format(RuleType::Tagk, "{tsuid}"), format!("{TSUID}/lax"));
    assert_eq!(
        format(RuleType::MetricCustom, "{tag_name}={value}"),
        "owner=j/lax"
    );
    assert_eq!(format(RuleType::Metric, "a{tag_name}{value}{value}"), "acc/lax");
    assert_eq!(format(RuleType::Metric, "fixed"), "fixed/lax");
}

#[test]
fn custom_fields_are_those_of_metric_key_or_value() {
    let of = |rule_type, field, custom| {
        let series = series("c-jane", &[("c-joe", "c-ann"), ("dc", "lax")]);
        let rules = [
            rule(0, 0, rule_type, &[("field", field), ("custom", custom)]),
            tagk(1, "dc"),
            metric(2, &[]),
        ];
        placed(&rules, &series)
    };
    // OpenTSDB does not compare the field with the metric.
    assert_eq!(of(RuleType::MetricCustom, "any", "owner"), "jane/lax/c-jane");
    assert_eq!(of(RuleType::TagkCustom, "c-joe", "owner"), "joe/lax/c-jane");
    assert_eq!(of(RuleType::TagvCustom, "c-ann", "owner"), "ann/lax/c-jane");
    assert_eq!(of(RuleType::TagkCustom, "c-ann", "owner"), "lax/c-jane");
    assert_eq!(of(RuleType::TagvCustom, "lax", "owner"), "lax/c-jane");
    assert_eq!(of(RuleType::TagvCustom, "c-ann", "empty"), "lax/c-jane");
    let rules = rule_set(
        false,
        &[rule(
            0,
            0,
            RuleType::TagkCustom,
            &[("field", "a"), ("custom", "b")],
        )],
    );
    assert_eq!(
        rules.custom_fields().collect::<Vec<_>>(),
        [(RuleType::TagkCustom, "b")]
    );
}

#[test]
fn a_value_is_split_as_java_splits() {
    let split = |name| {
        let rules = [tagk(0, "dc"), metric(1, &[("separator", r"\.")]), tagk(2, "host")];
        placed(&rules, &series(name, &[("host", "web01"), ("dc", "lax")]))
    };
    assert_eq!(split("a.b"), "lax/a/b/web01");
    assert_eq!(split("a..b."), "lax/a/b/web01", "empty parts yield nothing");
    assert_eq!(split(".a"), "lax/a/web01");
    assert_eq!(split("..."), "lax/web01");
    assert_eq!(split("ab"), "lax/ab/web01");
    // Where a part is empty, the next rule of the level has its turn.
    let rules = [
        metric(0, &[("separator", r"\.")]),
        rule(0, 1, RuleType::Tagk, &[("field", "dc")]),
        tagk(1, "host"),
    ];
    assert_eq!(
        placed(&rules, &series("a..b", &[("host", "w"), ("dc", "lax")])),
        "a/lax/b/w"
    );
}

#[test]
fn levels_without_a_name_are_skipped() {
    let nothing = |level| tagk(level, "rack");
    for (rules, expected) in [
        (vec![nothing(0), tagk(1, "dc"), tagk(2, "host")], "lax/web01"),
        (
            vec![tagk(0, "dc"), nothing(1), nothing(2), tagk(3, "host")],
            "lax/web01",
        ),
        (
            vec![tagk(0, "dc"), tagk(1, "host"), nothing(2), nothing(3)],
            "lax/web01",
        ),
        (
            vec![
                tagk(0, "dc"),
                nothing(1),
                tagk(2, "host"),
                nothing(3),
                metric(4, &[]),
            ],
            "lax/web01/sys.cpu.user",
        ),
    ] {
        assert_eq!(placed(&rules, &web01()), expected);
    }
}

#[test]
fn branches_with_the_name_of_their_parent_are_merged() {
    let rules = [
        tagk(0, "a"),
        tagk(1, "b"),
        tagk(2, "x"),
        tagk(3, "c"),
        tagk(4, "d"),
    ];
    let same = |tags: &[(&str, &str)]| placed(&rules, &series("m", tags));
    assert_eq!(
        same(&[("a", "n"), ("b", "n"), ("c", "n"), ("d", "leaf")]),
        "n/leaf"
    );
    assert_eq!(
        same(&[("a", "n"), ("b", "o"), ("c", "n"), ("d", "leaf")]),
        "n/o/n/leaf"
    );
    assert_eq!(same(&[("a", "n"), ("d", "n")]), "n/n", "a leaf is not merged");
    assert_eq!(same(&[("a", "ROOT"), ("b", "o"), ("d", "leaf")]), "o/leaf");
    assert_eq!(same(&[("a", "ROOT"), ("d", "leaf")]), "leaf");
    assert_eq!(same(&[("a", "o"), ("b", "ROOT"), ("d", "leaf")]), "o/ROOT/leaf");
}

#[test]
fn one_name_is_no_place() {
    let nothing = [tagk(0, "rack"), tagk(1, "dc")];
    assert_eq!(
        rule_set(false, &nothing).place(&web01()),
        Outcome::TooFewNames(Some("lax".into()))
    );
    assert_eq!(
        rule_set(false, &[tagk(0, "rack")]).place(&web01()),
        Outcome::TooFewNames(None)
    );
    assert_eq!(rule_set(true, &[]).place(&web01()), Outcome::TooFewNames(None));
}

#[test]
fn a_strict_tree_rejects_series_that_fail_a_level() {
    let rules = [
        tagk(0, "dc"),
        tagk(1, "rack"),
        rule(1, 3, RuleType::Tagk, &[("field", "row")]),
        metric(2, &[]),
    ];
    let Outcome::NotMatched { failed, .. } = rule_set(true, &rules).place(&web01()) else {
        panic!("level 1 fails");
    };
    let failed: Vec<String> = failed.iter().map(RuleKey::to_string).collect();
    assert_eq!(failed, ["[1:1:3:TAGK]"], "the last rule of the level");
    assert_eq!(path(&rule_set(false, &rules).place(&web01())), "lax/sys.cpu.user");
}

#[test]
fn sizes_are_bounded() {
    let dots = series(&"a.b.".repeat(200), &[("k", "v")]);
    let split = rule_set(false, &[metric(0, &[("separator", r"\.")])]);
    assert_eq!(split.place(&dots), Outcome::TooLarge(TooLarge::Names));
    let repeat = "{value}".repeat(5000);
    let large = rule_set(false, &[metric(0, &[("format", &repeat)]), tagk(1, "k")]);
    assert_eq!(large.place(&dots), Outcome::TooLarge(TooLarge::Bytes));
    let many = rule_set(
        false,
        &[metric(0, &[("separator", "[.]?"), ("format", &"x".repeat(1000))])],
    );
    assert_eq!(
        many.place(&series("abcdefghijklmnopqrstuvwxyz", &[])),
        Outcome::TooLarge(TooLarge::Bytes)
    );
}

#[test]
fn messages_are_opentsdbs() {
    let rules = [
        tagk(0, "dc"),
        tagk(1, "rack"),
        rule(
            2,
            0,
            RuleType::Tagk,
            &[("field", "host"), ("regex", "(web)"), ("group", "1")],
        ),
        rule(
            2,
            1,
            RuleType::MetricCustom,
            &[("field", "m"), ("custom", "owner")],
        ),
        metric(3, &[("separator", r"\."), ("format", "{tag_name}{value}")]),
    ];
    let (outcome, messages) = rule_set(false, &rules).test(&web01());
    assert_eq!(path(&outcome), "lax/sys/cpu/user");
    let wrong = "Display rule [1:3:0:METRIC] was of the wrong type to match on {tag_name}";
    let expected = [
        "Processing rule: [1:0:0:TAGK]",
        "Matched tagk [dc] for rule: [1:0:0:TAGK]",
        "Processing rule: [1:1:0:TAGK]",
        "No match on tagk [rack] for rule: [1:1:0:TAGK]",
        "Processing rule: [1:2:0:TAGK]",
        "Matched tagk [host] for rule: [1:2:0:TAGK]",
        "Regex group index [1] for rule [1:2:0:TAGK] was out of bounds [1]",
        "Processing rule: [1:2:1:METRIC_CUSTOM]",
        "No match on custom tag [owner] for rule: [1:2:1:METRIC_CUSTOM]",
        "Processing rule: [1:3:0:METRIC]",
        wrong,
        "Processing rule: [1:3:0:METRIC]",
        wrong,
        "Processing rule: [1:3:0:METRIC]",
        wrong,
        "Depth [7] Adding leaf [name: user tsuid: 000001000001000001000002000002] to parent branch [Name: [cpu]]",
        "Depth [6] Adding branch: Name: [cpu] to parent: Name: [sys]",
        "Depth [5] Skipping a non-matched branch, returning: Name: [sys]",
        "Depth [4] Skipping a non-matched branch, returning: Name: [sys]",
        "Depth [3] Adding branch: Name: [sys] to parent: Name: [lax]",
    ];
    assert_eq!(messages, expected);
    let (_, messages) = rule_set(true, &[tagk(0, "rack"), tagk(1, "dc")]).test(&web01());
    assert_eq!(
        messages[4..],
        [
            "Depth [3] Parent branch was empty, rolling back",
            "Depth [2] Adding leaf [name: lax tsuid: 000001000001000001000002000002] to parent branch [ID: [0001] Name: [ROOT]]",
            "TSUID failed to match one or more rule levels, will not add: 000001000001000001000002000002",
        ]
    );
}

proptest::proptest! {
    #[test]
    fn a_place_has_the_names_in_order(names in proptest::collection::vec("[ab]?", 0..8)) {
        let tags: Vec<(String, String)> =
            names.iter().enumerate().map(|(index, name)| (format!("k{index}"), name.clone())).collect();
        let tags: Vec<(&str, &str)> = tags.iter().map(|(tagk, tagv)| (tagk.as_str(), tagv.as_str())).collect();
        let rules: Vec<RuleDocument> = (0_i32..).zip(&tags).map(|(level, (tagk, _))| super::tests::tagk(level, tagk)).collect();
        let mut named: Vec<String> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
        let leaf = named.pop();
        match rule_set(false, &rules).place(&series("m", &tags)) {
            Outcome::Place(place) => {
                named.dedup();
                proptest::prop_assert_eq!(place.branches, named);
                proptest::prop_assert_eq!(Some(place.leaf), leaf);
            }
            Outcome::TooFewNames(name) => {
                proptest::prop_assert!(named.is_empty());
                proptest::prop_assert_eq!(name, leaf);
            }
            other => proptest::prop_assert!(false, "{:?}", other),
        }
    }
}
