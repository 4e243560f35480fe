//! Definitions and rules of trees.

use anyhow::ensure;
use oxtsdb_tests::random;
use serde_json::json;

use super::both::{Both, text};

const RULE_ROUNDS: usize = 20;

/// Each edit compares what is stored with what the editor would have written: a difference in bytes would fail it.
#[tokio::test]
async fn trees_defined_by_one_are_edited_by_the_other() -> anyhow::Result<()> {
    let both = Both::start("trees").await?;
    let mut random = random::seeded("trees")?;
    let sides = both.sides();
    for (number, side) in sides.iter().enumerate() {
        let tree = side
            .post("/api/tree", &json!({"name": format!("tree {number}")}))
            .await?;
        ensure!(tree["treeId"] == number + 1, "{tree}");
        let rule = json!({"treeId": number + 1, "level": 0, "order": 0, "type": "TAGK", "field": "dc"});
        side.post("/api/tree/rule", &rule).await?;
    }
    for round in 0..RULE_ROUNDS {
        let (editor, reader) = (&sides[round % 2], &sides[(round + 1) % 2]);
        for tree in [1, 2] {
            let edit = json!({
                "treeId": tree, "name": format!("n{}", text(&mut random)), "notes": format!("{round}{}", text(&mut random)),
                "description": text(&mut random), "enabled": round % 3 == 0,
            });
            editor.post("/api/tree", &edit).await?;
            let rule = json!({
                "treeId": tree, "level": round % 4, "order": 0, "type": "TAGK", "field": "host",
                "notes": format!("{round}{}", text(&mut random)), "displayFormat": format!("{{value}}{}", text(&mut random)),
                "regex": "^(.*?)\\.",
            });
            editor.post("/api/tree/rule", &rule).await?;
            let path = format!("/api/tree?treeid={tree}");
            let (written, read) = (editor.get(&path).await?, reader.get(&path).await?);
            ensure!(
                written == read,
                "{} has {written}, {} {read}",
                editor.name,
                reader.name
            );
            ensure!(read["notes"] == edit["notes"], "{edit}: {read}");
        }
    }
    for (number, side) in sides.iter().enumerate() {
        let other = &sides[1 - number];
        let tree = format!("/api/tree?treeid={}", 2 - number);
        side.delete(&format!("{tree}&definition=true")).await?;
        other.status_until(&tree, 404).await?;
    }
    let cells = both.cells(&both.tables.tree).await?;
    ensure!(cells.is_empty(), "{cells:?}");
    Ok(())
}
