//! `tsdb compact` and `--compact-rows-after` where there are no rows to compact: the embedded store says so.

use anyhow::ensure;
use oxtsdb_tests::{Options, Tsdb, program_path};

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_has_no_rows_to_compact() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let target = format!("http://{}", tsdb.data_address());
    let output = tokio::process::Command::new(program_path("tsdb")?)
        .args(["compact", "--target", &target])
        .output()
        .await?;
    let errors = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{}: {errors}", output.status);
    ensure!(output.stdout.is_empty(), "{:?}", output.stdout);
    ensure!(
        errors.contains("the embedded store has no rows to compact"),
        "{errors}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_background_job_is_rejected_on_the_embedded_store() -> anyhow::Result<()> {
    let error = Tsdb::failed_start(Options::default().flag("--compact-rows-after", "600")).await?;
    ensure!(
        error.contains("--compact-rows-after: the embedded store has no rows to compact"),
        "{error}"
    );
    let error = Tsdb::failed_start(Options::default().flag("--compact-rows-after", "59")).await?;
    ensure!(
        error.contains("--compact-rows-after 59: expected 60 to"),
        "{error}"
    );
    Ok(())
}
