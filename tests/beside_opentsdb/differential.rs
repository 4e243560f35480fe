//! OpenTSDB and OxTSDB return the same results for random queries on the same tables, and on the embedded store with the
//! same points.

use oxtsdb_tests::differential::comparison::{Kind, check};
use oxtsdb_tests::differential::request::Request;
use oxtsdb_tests::differential::servers::Servers;
use oxtsdb_tests::differential::{Run, known, response};
use oxtsdb_tests::format::Format;
use oxtsdb_tests::rig::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn results_equal_opentsdbs() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let run = Run::from_environment("OXTSDB_DIFFERENTIAL_QUERIES", 10_000)?;
    println!("differential: OXTSDB_DIFFERENTIAL_SEED={}", run.seed);
    let servers = Servers::start(&rig, &run, "differential", &Format::default()).await?;
    let requests = Kind {
        name: "differential",
        request: &|random| Request::new(random, &servers.tsuids),
        difference: |_, theirs, ours| response::difference(theirs, ours),
        known: &known::KNOWN,
    };
    check(&requests.compare(&servers, &run).await)
}
