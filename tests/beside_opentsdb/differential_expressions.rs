//! OpenTSDB and OxTSDB return the same results for random expressions over the same tables.

use oxtsdb_tests::differential::Run;
use oxtsdb_tests::differential::comparison::{Kind, check};
use oxtsdb_tests::differential::expressions::{KNOWN, calls, difference, formulas};
use oxtsdb_tests::differential::servers::Servers;
use oxtsdb_tests::format::Format;
use oxtsdb_tests::rig::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn expression_results_equal_opentsdbs() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let run = Run::from_environment("OXTSDB_DIFFERENTIAL_EXPRESSIONS", 1000)?;
    println!("differential_expressions: OXTSDB_DIFFERENTIAL_SEED={}", run.seed);
    let servers = Servers::start(&rig, &run, "expressions", &Format::default()).await?;
    let calls = Kind {
        name: "gexp",
        request: &calls::request,
        difference,
        known: &KNOWN,
    };
    let formulas = Kind {
        name: "exp",
        request: &formulas::request,
        ..calls
    };
    let mut unknown = calls.compare(&servers, &run).await;
    unknown.extend(formulas.compare(&servers, &run).await);
    check(&unknown)
}
