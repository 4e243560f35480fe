use proptest::prelude::*;

use super::*;

fn tree(number: u16) -> TreeId {
    TreeId::new(i64::from(number)).unwrap()
}

/// Vectors V90 to V98: rows of OpenTSDB 2.4.1 after a tree with three rules has placed two series.
#[test]
fn documents_are_opentsdbs_byte_for_byte() {
    let definition = TreeDocument {
        name: "By DC".into(),
        description: "d".into(),
        enabled: true,
        store_failures: true,
        ..TreeDocument::default()
    };
    assert_eq!(
        definition.encode(),
        br#"{"name":"By DC","description":"d","notes":"","strictMatch":false,"created":0,"enabled":true,"storeFailures":true}"#
    );
    let mut rule = RuleDocument::new(tree(1), RuleType::Tagk);
    rule.field = "dc".into();
    assert_eq!(
        rule.encode(),
        br#"{"type":"TAGK","field":"dc","regex":"","separator":"","description":"","notes":"","level":0,"order":0,"treeId":1,"customField":"","regexGroupIdx":0,"displayFormat":""}"#
    );
    let mut rule = RuleDocument::new(tree(1), RuleType::Metric);
    (rule.level, rule.separator) = (2, r"\.".into());
    assert_eq!(
        rule.encode(),
        br#"{"type":"METRIC","field":"","regex":"","separator":"\\.","description":"","notes":"","level":2,"order":0,"treeId":1,"customField":"","regexGroupIdx":0,"displayFormat":""}"#
    );
    let (mut id, mut branch) = (BranchId::root(tree(1)), BranchDocument::root());
    assert_eq!((id.to_string().as_str(), id.depth()), ("0001", 0));
    assert_eq!(branch.encode(), br#"{"path":{"0":"ROOT"},"displayName":"ROOT"}"#);
    for (name, expected) in [
        ("lax", "00010001A1A3"),
        ("host: web01", "00010001A1A34F07AA47"),
        ("sys", "00010001A1A34F07AA470001BECD"),
        ("cpu", "00010001A1A34F07AA470001BECD000181A8"),
    ] {
        assert!(id.is_parent_of(id.child(name).as_bytes()));
        (id, branch) = (id.child(name), branch.child(name));
        assert_eq!(id.to_string(), expected);
    }
    assert_eq!((id.depth(), id.tree()), (4, tree(1)));
    assert_eq!(
        branch.encode(),
        br#"{"path":{"0":"ROOT","1":"lax","2":"host: web01","3":"sys","4":"cpu"},"displayName":"cpu"}"#
    );
    let leaf = LeafDocument {
        display_name: "user".into(),
        tsuid: "000001000001000001000002000002".into(),
    };
    assert_eq!(
        TreeCell::leaf("user").encode(),
        [b"leaf:", &[0, 0x36, 0xeb, 0xcb][..]].concat()
    );
    assert_eq!(
        leaf.encode(),
        br#"{"displayName":"user","tsuid":"000001000001000001000002000002"}"#
    );
}

/// Vectors V112 and V118.
#[test]
fn failures_have_rows_of_their_own() {
    let tsuid = hex::decode("000006000001000008000002000007").unwrap();
    assert_eq!(tree(3).collision_row_key(), [0, 3, 1]);
    assert_eq!(
        TreeCell::Collision(&tsuid).encode(),
        [b"tree_collision:".as_slice(), &tsuid].concat()
    );
    assert_eq!(tree(2).not_matched_row_key(), [0, 2, 2]);
    assert_eq!(
        TreeCell::NotMatched(&tsuid).encode(),
        [b"tree_not_matched:".as_slice(), &tsuid].concat()
    );
}

#[test]
fn path_keys_ascend_as_numbers() {
    let deep = (1..=11).fold(BranchDocument::root(), |branch, depth| {
        branch.child(&depth.to_string())
    });
    let text = String::from_utf8(deep.encode()).unwrap();
    assert!(
        text.contains(r#""9":"9","10":"10","11":"11"},"displayName":"11""#),
        "{text}"
    );
    assert_eq!(BranchDocument::decode(&deep.encode()), Ok(deep));
}

#[test]
fn readers_accept_other_orders_unknown_fields_and_null() {
    let stored = br#"{"enabled":true,"unknown":[1],"name":null,"notes":"n"}"#;
    let expected = TreeDocument {
        notes: "n".into(),
        enabled: true,
        ..TreeDocument::default()
    };
    assert_eq!(TreeDocument::decode(stored), Ok(expected));
    let stored = br#"{"level":1,"type":"tagk_custom","regex":null,"treeId":2}"#;
    let mut expected = RuleDocument::new(tree(2), RuleType::TagkCustom);
    expected.level = 1;
    assert_eq!(RuleDocument::decode(stored), Ok(expected));
    for wrong in [
        "",
        "[]",
        r#"{"level":1}"#,
        r#"{"type":"TAGV"}"#,
        r#"{"type":"METRIC","level":9999999999}"#,
    ] {
        let error = RuleDocument::decode(wrong.as_bytes()).unwrap_err();
        assert!(
            error.to_string().starts_with("is not the JSON of a rule: "),
            "{wrong}"
        );
    }
    assert!(
        RuleDocument::decode(br#"{"type":"TAGV"}"#)
            .unwrap_err()
            .reason
            .contains("`TAGV`")
    );
}

#[test]
fn ids_are_checked() {
    assert_eq!(
        TreeId::new(0).unwrap_err().to_string(),
        "0 is not the id of a tree, expected 1 to 65535"
    );
    assert_eq!(TreeId::new(65536).unwrap_err().number, 65536);
    assert_eq!(
        (tree(65534).next(), tree(65535).next()),
        (Some(tree(65535)), None)
    );
    assert_eq!(
        "10001a1a3".parse::<BranchId>(),
        Err(BranchIdError::Length {
            branch: "010001A1A3".into(),
            length: 5
        })
    );
    assert_eq!(
        "00010001a1a3".parse::<BranchId>(),
        Ok(BranchId::root(tree(1)).child("lax"))
    );
    assert_eq!("001".parse::<BranchId>(), Ok(BranchId::root(tree(1))));
    assert!(matches!(
        "0000".parse::<BranchId>(),
        Err(BranchIdError::Length { .. })
    ));
    assert!(matches!(
        "00x1".parse::<BranchId>(),
        Err(BranchIdError::Hex { .. })
    ));
    let root = BranchId::root(tree(1));
    let below = root.child("a").child("b");
    assert_eq!(root.child_above(below.as_bytes()), Some(root.child("a")));
    assert_eq!(below.child_above(root.as_bytes()), None);
}

#[test]
fn other_qualifiers_are_not_opentsdbs() {
    for other in [
        "",
        "trees",
        "tree_rule:",
        "tree_rule:1",
        "tree_rule:-1:0",
        "tree_rule:01:0",
        "tree_rule:1:2147483648",
        "branches",
        "leaf:",
        "leaf:abc",
        "leaf:abcde",
        "tree_collision:",
        "tree_not_matched:",
    ] {
        assert_eq!(TreeCell::decode(other.as_bytes()), None, "{other}");
    }
}

fn cell(kind: u8, numbers: (u32, u32), bytes: &[u8]) -> Vec<u8> {
    let (level, order) = (numbers.0 & 0x7fff_ffff, numbers.1 & 0x7fff_ffff);
    match kind {
        0 => TreeCell::Tree.encode(),
        1 => TreeCell::Rule { level, order }.encode(),
        2 => TreeCell::Branch.encode(),
        3 => TreeCell::Leaf(numbers.0.to_be_bytes()).encode(),
        4 => TreeCell::Collision(bytes).encode(),
        _ => TreeCell::NotMatched(bytes).encode(),
    }
}

proptest! {
    #[test]
    fn decoded_qualifiers_encode_to_the_same_bytes(
        kind in 0_u8..6,
        numbers in any::<(u32, u32)>(),
        bytes in proptest::collection::vec(any::<u8>(), 1..40),
        cut in 0_usize..60,
    ) {
        let qualifier = cell(kind, numbers, &bytes);
        prop_assert_eq!(TreeCell::decode(&qualifier).unwrap().encode(), qualifier.clone());
        let shorter = &qualifier[..cut.min(qualifier.len())];
        if let Some(decoded) = TreeCell::decode(shorter) {
            prop_assert_eq!(decoded.encode(), shorter);
        }
    }

    #[test]
    fn branch_ids_round_trip_and_order_below_their_parents(names in proptest::collection::vec(".{0,8}", 0..6), bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
        let mut id = BranchId::root(tree(7));
        for name in &names {
            let child = id.child(name);
            prop_assert!(id < child && id.is_parent_of(child.as_bytes()));
            id = child;
        }
        prop_assert_eq!(id.depth(), names.len());
        prop_assert_eq!(id.to_string().parse(), Ok(id.clone()));
        if let Ok(decoded) = BranchId::from_bytes(&bytes) {
            prop_assert_eq!(decoded.as_bytes(), bytes);
        }
    }

    #[test]
    fn documents_round_trip(
        texts in proptest::array::uniform7(".{0,12}"),
        numbers in any::<(i32, i32, i32)>(),
        flags in any::<(bool, bool, bool, i64)>(),
        kind in 0_usize..5,
    ) {
        let [field, regex, separator, description, notes, custom_field, display_format] = texts;
        let definition = TreeDocument {
            name: field.clone(),
            description: description.clone(),
            notes: notes.clone(),
            strict_match: flags.0,
            created: flags.3,
            enabled: flags.1,
            store_failures: flags.2,
        };
        prop_assert_eq!(TreeDocument::decode(&definition.encode()), Ok(definition));
        let leaf = LeafDocument { display_name: field.clone(), tsuid: regex.clone() };
        prop_assert_eq!(LeafDocument::decode(&leaf.encode()), Ok(leaf));
        let rule = RuleDocument {
            rule_type: RuleType::ALL[kind],
            field, regex, separator, description, notes, custom_field, display_format,
            level: numbers.0,
            order: numbers.1,
            tree_id: 1,
            regex_group_idx: numbers.2,
        };
        prop_assert_eq!(RuleDocument::decode(&rule.encode()), Ok(rule));
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = TreeDocument::decode(&bytes);
        let _ = RuleDocument::decode(&bytes);
        let _ = BranchDocument::decode(&bytes);
        let _ = LeafDocument::decode(&bytes);
        let _ = TreeCell::decode(&bytes);
    }
}
