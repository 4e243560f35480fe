//! Watches of names that nothing reads.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::watch_uids_response::event::Event;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName, WatchUidsRequest};
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::raw_grpc::RawChannel;
use oxtsdb_tests::{refusal, until};
use tokio::time::timeout;

use crate::support::{BOUND, MOST_BYTES, Target};

/// Watches that are tried; the server has 128.
const WATCHES: usize = 200;
/// Watches of a connection.
const PER_CONNECTION: usize = 50;
/// Names of a request at most.
const NAMES: usize = 4096;
/// Requests that assign names. Their events exceed the buffers of a watch and of its connection many times.
const REQUESTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn unread_watches_stay_within_the_memory_limit() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    let address = target.tsdb.uid_address();
    let mut watches = Vec::new();
    let mut rejected = 0;
    for _ in 0..WATCHES / PER_CONNECTION {
        let channel = RawChannel::connect_slow_reader(address).await?;
        let mut client = UidServiceClient::with_origin(channel, RawChannel::origin(address)?);
        for _ in 0..PER_CONNECTION {
            match timeout(BOUND, client.watch_uids(WatchUidsRequest::default())).await? {
                Ok(response) => watches.push(response.into_inner()),
                Err(status) => {
                    refusal::check_status(&status)?;
                    rejected += 1;
                }
            }
        }
    }
    println!("  {} watches, {rejected} are rejected", watches.len());
    ensure!(!watches.is_empty() && rejected > 0);
    for request in 0..REQUESTS {
        let name = |number: usize| UidName {
            kind: UidKind::TagValue.into(),
            name: format!("{:0200}", request * NAMES + number),
            tag_key: String::new(),
        };
        let request = GetOrCreateUidsRequest {
            names: (0..NAMES).map(name).collect(),
            explicit: true,
            ..Default::default()
        };
        timeout(BOUND, target.tsdb.uids().get_or_create_uids(request)).await??;
        target.memory.check_below(MOST_BYTES)?;
    }
    // One that reads at last gets what was buffered, then the loss.
    let mut late = watches.pop().context("a watch")?;
    let resync = async {
        loop {
            let response = late.message().await?.context("the watch ended")?;
            let is_resync = |event: &Event| matches!(event, Event::Resync(_));
            if response
                .events
                .iter()
                .filter_map(|event| event.event.as_ref())
                .any(is_resync)
            {
                return anyhow::Ok(());
            }
        }
    };
    timeout(BOUND, resync).await.context("no Resync")??;
    drop((late, watches));
    until("there is room for a watch", || async {
        target.tsdb.uids().watch_uids(WatchUidsRequest::default()).await?;
        Ok(())
    })
    .await?;
    target.check_with(bystander).await
}
