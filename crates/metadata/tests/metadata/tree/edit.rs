//! Definitions and rules of trees.

use oxtsdb_metadata::tree::edit::{EditMode, RuleEdit, TreeEdit};
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_metadata::tree::{Tree, define, rule as limits};
use oxtsdb_schema::tree::{RuleType, TreeDocument, TreeId};

use super::{Fixture, documented, rule};

#[tokio::test]
async fn concurrent_creations_get_ids_of_their_own() {
    let fixture = Fixture::start().await;
    let create = (0..12).map(|number| {
        let trees = fixture.trees.clone();
        let definition = TreeDocument {
            name: format!("tree {number}"),
            ..TreeDocument::default()
        };
        tokio::spawn(async move { trees.create(definition, Vec::new()).await.unwrap() })
    });
    let mut ids = Vec::new();
    for created in futures::future::join_all(create).await {
        ids.push(created.unwrap().id.get());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=12).collect::<Vec<u16>>());
    let page = fixture.trees.list(TreeId::new(5).ok(), 3).await.unwrap();
    assert_eq!(
        page.trees.iter().map(|tree| tree.id.get()).collect::<Vec<_>>(),
        [6, 7, 8]
    );
    let nameless = fixture.trees.create(TreeDocument::default(), Vec::new()).await;
    assert!(matches!(nameless, Err(TreeError::NoName)));
}

#[tokio::test]
async fn the_last_id_is_assigned_and_the_next_rejected() {
    let fixture = Fixture::start().await;
    let definition = TreeDocument {
        name: "n".into(),
        ..TreeDocument::default()
    };
    let last = TreeId::new(65534).unwrap();
    assert!(
        fixture
            .trees
            .put_definition(last, None, &definition)
            .await
            .unwrap()
    );
    let create = || fixture.trees.create(definition.clone(), Vec::new());
    assert_eq!(create().await.unwrap().id.get(), 65535);
    assert!(matches!(create().await, Err(TreeError::NoFreeId)));
}

#[tokio::test]
async fn updates_compare_with_what_was_read() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, Vec::new()).await;
    let edit = |description: &str| TreeEdit {
        description: Some(description.to_owned()),
        ..TreeEdit::default()
    };
    let update = |edit: TreeEdit, etag: Option<String>| {
        let trees = fixture.trees.clone();
        async move { trees.update(id, &edit, EditMode::Merge, etag.as_deref()).await }
    };
    let read = fixture.trees.tree(id).await.unwrap();
    let updated = update(edit("first"), Some(read.etag.clone())).await.unwrap();
    assert_eq!(updated.definition.description, "first");
    assert_ne!(updated.etag, read.etag);
    let error = update(edit("second"), Some(read.etag)).await.unwrap_err();
    assert!(
        matches!(error, TreeError::EtagMismatch { ref stored, .. } if *stored == updated.etag),
        "{error}"
    );
    let unknown = TreeId::new(9).unwrap();
    let error = fixture
        .trees
        .update(unknown, &edit("x"), EditMode::Merge, None)
        .await
        .unwrap_err();
    assert!(matches!(error, TreeError::TreeNotFound(tree) if tree == unknown));
    // Concurrent changes of different fields are all applied.
    let notes = TreeEdit {
        notes: Some("notes".into()),
        ..TreeEdit::default()
    };
    let (one, other) = tokio::join!(update(edit("third"), None), update(notes, None));
    one.and(other).unwrap();
    let definition = fixture.trees.tree(id).await.unwrap().definition;
    assert_eq!((&*definition.description, &*definition.notes), ("third", "notes"));
}

#[tokio::test]
async fn rules_are_replaced_and_deleted_together() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, documented()).await;
    let places = |tree: &Tree| tree.rules.keys().copied().collect::<Vec<_>>();
    let changed = vec![rule(1, RuleType::Tagk, "rack"), rule(5, RuleType::Metric, "")];
    let tree = fixture.trees.set_rules(id, changed.clone(), false).await.unwrap();
    assert_eq!(places(&tree), [(0, 0), (1, 0), (2, 0), (5, 0)]);
    assert_eq!(tree.rules[&(1, 0)].field, "rack");
    let tree = fixture.trees.set_rules(id, changed, true).await.unwrap();
    assert_eq!(places(&tree), [(1, 0), (5, 0)]);
    let absent = fixture
        .trees
        .delete_rules(id, Some(&[(1, 0), (2, 0)]))
        .await
        .unwrap_err();
    assert!(matches!(
        absent,
        TreeError::RuleNotFound {
            level: 2,
            order: 0,
            ..
        }
    ));
    let tree = fixture.trees.delete_rules(id, Some(&[(1, 0)])).await.unwrap();
    assert_eq!(places(&tree), [(5, 0)]);
    fixture.trees.delete_rules(id, None).await.unwrap();
    assert!(fixture.trees.tree(id).await.unwrap().rules.is_empty());
    let mut bad = rule(3, RuleType::Metric, "");
    bad.regex = "(".into();
    let error = fixture
        .trees
        .set_rules(id, vec![rule(0, RuleType::Metric, ""), bad], true)
        .await;
    assert!(matches!(error, Err(TreeError::InvalidRule(error)) if (error.tree, error.level) == (1, 3)));
    assert!(
        fixture.trees.tree(id).await.unwrap().rules.is_empty(),
        "all or none"
    );
    let many = (0..1001).map(|level| rule(level, RuleType::Metric, "")).collect();
    let error = fixture.trees.set_rules(id, many, false).await;
    assert!(matches!(error, Err(TreeError::TooManyRules { count: 1001, .. })));
}

#[tokio::test]
async fn the_rules_of_a_tree_have_a_size() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(true, Vec::new()).await;
    let too_large = |result| matches!(result, Err(TreeError::RulesTooLarge(tree)) if tree == id);
    // Small as text, large as programs.
    let mut programs: Vec<_> = (0..300).map(|level| rule(level, RuleType::Metric, "")).collect();
    for rule in &mut programs {
        rule.regex = r"(\p{L}+)".into();
    }
    assert!(too_large(
        fixture.trees.set_rules(id, programs.clone(), true).await
    ));
    // Stored by another program, the tree gets no series, but the others do.
    fixture.trees.write_rules(id, &programs, &[]).await.unwrap();
    let other = fixture.tree(false, vec![rule(0, RuleType::Metric, "")]).await;
    let enabled = fixture.trees.enabled().await.unwrap();
    assert_eq!(enabled.iter().map(|tree| tree.id).collect::<Vec<_>>(), [other]);
    // Large as text, in several changes.
    let mut texts: Vec<_> = (0..63).map(|level| rule(level, RuleType::Metric, "")).collect();
    for rule in &mut texts {
        rule.notes = "n".repeat(limits::MAX_TEXT_BYTES);
    }
    fixture.trees.set_rules(id, texts, true).await.unwrap();
    let edit = RuleEdit {
        level: 100,
        rule_type: Some(RuleType::Metric),
        notes: Some("n".repeat(limits::MAX_TEXT_BYTES)),
        ..RuleEdit::default()
    };
    let edited = fixture.trees.edit_rule(id, &edit, EditMode::Merge).await;
    assert!(matches!(edited, Err(TreeError::RulesTooLarge(_))));
    // A page ends after a megabyte.
    let page = fixture.trees.list(None, 2).await.unwrap();
    assert_eq!((page.trees.len(), page.next_after), (1, Some(id)));
    let page = fixture.trees.list(page.next_after, 2).await.unwrap();
    assert_eq!((page.trees.len(), page.next_after), (1, None));
}

#[tokio::test]
async fn a_rule_is_edited_by_compare_and_put() {
    let fixture = Fixture::start().await;
    let id = fixture.tree(false, documented()).await;
    let edit = RuleEdit {
        level: 1,
        notes: Some("n".into()),
        ..RuleEdit::default()
    };
    let merge = || fixture.trees.edit_rule(id, &edit, EditMode::Merge);
    let define::RuleChange::Stored(stored) = merge().await.unwrap() else {
        panic!("the notes are new");
    };
    assert_eq!((&*stored.notes, &*stored.field), ("n", "host"));
    assert_eq!(merge().await.unwrap(), define::RuleChange::Unchanged);
    let replaced = fixture
        .trees
        .edit_rule(id, &edit, EditMode::Replace)
        .await
        .unwrap();
    assert_eq!(replaced, define::RuleChange::NoType);
}
