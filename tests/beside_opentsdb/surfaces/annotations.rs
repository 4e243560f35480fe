//! Annotations.

use anyhow::ensure;
use oxtsdb_tests::random;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::both::{Both, custom, text};

const ROUNDS: usize = 40;
const HOUR: i64 = 1_356_998_400;
const SERIES: &str = "000001000001000001";

/// TSUID and start, in seconds, milliseconds, and multiples of 1000 of both.
const LOCAL: [(&str, i64); 4] = [
    (SERIES, HOUR + 10),
    (SERIES, (HOUR + 20) * 1000 + 1),
    (SERIES, (HOUR + 30) * 1000),
    (SERIES, 1_356_999_000),
];
const GLOBAL: [(&str, i64); 2] = [("", HOUR + 40), ("", (HOUR + 50) * 1000 + 500)];

/// Each edit compares what is stored with what the editor would have written: a difference in bytes would fail it.
#[tokio::test]
async fn annotations_written_by_one_are_edited_by_the_other() -> anyhow::Result<()> {
    let both = Both::start("annotations").await?;
    let mut random = random::seeded("annotations")?;
    let sides = both.sides();
    let hour = HOUR.unsigned_abs();
    sides[0].point("m", hour, &json!({"host": "web"})).await?;
    edit_in_turns(&both, &LOCAL, &mut random).await?;
    // OpenTSDB's check of table tsdb ends at its first global annotation.
    both.rig.data_fsck(&both.opentsdb).await?.check(1)?;
    edit_in_turns(&both, &GLOBAL, &mut random).await?;
    let path = format!("/api/annotations?start_time={HOUR}&end_time={}", HOUR + 3599);
    let globals = sides[0].get(&path).await?;
    // OpenTSDB omits annotations that end behind the range, in whichever unit.
    ensure!(
        globals
            .as_array()
            .is_some_and(|annotations| !annotations.is_empty()),
        "{globals}"
    );
    ensure!(globals == sides[1].get(&path).await?);
    for options in [
        "",
        "&global_annotations",
        "&no_annotations",
        "&no_annotations&global_annotations",
        "&ms&show_tsuids",
    ] {
        let path = format!("/api/query?start={HOUR}&end={}&m=sum:m{options}", HOUR + 3599);
        let (theirs, ours) = (sides[0].get(&path).await?, sides[1].get(&path).await?);
        ensure!(theirs == ours, "{path}: OpenTSDB returns {theirs}, OxTSDB {ours}");
    }
    for (number, (tsuid, start)) in LOCAL.into_iter().chain(GLOBAL).enumerate() {
        if !is_ms(start) {
            let path = format!("/api/annotation?tsuid={tsuid}&start_time={start}");
            sides[number % 2].delete(&path).await?;
            sides[(number + 1) % 2].status_until(&path, 404).await?;
        }
    }
    Ok(())
}

async fn edit_in_turns(both: &Both, places: &[(&str, i64)], random: &mut StdRng) -> anyhow::Result<()> {
    let sides = both.sides();
    for round in 0..ROUNDS {
        let (editor, reader) = (&sides[round % 2], &sides[(round + 1) % 2]);
        for (tsuid, start) in places {
            let edit = edit(round, tsuid, *start, random);
            let edited = if random.random_bool(0.5) {
                editor.post("/api/annotation", &edit).await?
            } else {
                editor.put("/api/annotation", &edit).await?
            };
            ensure!(edited["notes"] == edit["notes"], "{edit}: {edited}");
            let cells = both.cells(&both.tables.data).await?;
            let stored = cells.values().any(|value| is_annotation(value, &edited));
            ensure!(stored, "{} did not store {edited}", editor.name);
            if !is_ms(*start) {
                let path = format!("/api/annotation?tsuid={tsuid}&start_time={start}");
                let read = reader.get(&path).await?;
                ensure!(
                    read == edited,
                    "{} reads {read}, {} wrote {edited}",
                    reader.name,
                    editor.name
                );
            }
        }
    }
    Ok(())
}

/// Random values. The notes differ in each round: nothing stays unchanged.
fn edit(round: usize, tsuid: &str, start: i64, random: &mut StdRng) -> Value {
    let mut edit = json!({"startTime": start, "notes": format!("{round}{}", text(random))});
    if !tsuid.is_empty() {
        edit["tsuid"] = json!(tsuid);
    }
    if random.random_bool(0.5) {
        edit["description"] = json!(text(random));
        edit["endTime"] = json!(start + random.random_range(0..100));
    }
    if random.random_bool(0.7) {
        edit["custom"] = custom(random);
    }
    edit
}

/// Whether a time is milliseconds: those in a query string are cut to seconds.
fn is_ms(start: i64) -> bool {
    start > HOUR * 10
}

/// Whether a stored value is the annotation.
fn is_annotation(value: &[u8], annotation: &Value) -> bool {
    serde_json::from_slice::<Value>(value).is_ok_and(|stored| {
        ["notes", "description", "startTime", "endTime"]
            .iter()
            .all(|field| stored[*field] == annotation[*field])
    })
}
