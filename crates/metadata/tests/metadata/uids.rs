use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_client::UidClient;
use oxtsdb_metadata::uids::Uids;
use oxtsdb_metadata::uids::changes::{ChangedSince, Mark};
use oxtsdb_schema::UidKind;
use oxtsdb_test_stack::TestStack;
use tokio::sync::{Notify, Semaphore};
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service as _;

/// Holds responses of one method back until a test releases them.
#[derive(Clone)]
struct HeldResponses(Arc<Held>);

struct Held {
    method: &'static str,
    arrived: Notify,
    permits: Semaphore,
}

impl HeldResponses {
    fn for_method(method: &'static str) -> Self {
        Self(Arc::new(Held {
            method,
            arrived: Notify::new(),
            permits: Semaphore::new(0),
        }))
    }

    fn client(&self, routes: Routes) -> UidClient {
        let held = self.clone();
        UidClient::in_process(tower::service_fn(move |request: http::Request<Body>| {
            let (mut routes, held) = (routes.clone(), Arc::clone(&held.0));
            async move {
                let is_held = request.uri().path().ends_with(held.method);
                let response = routes.call(request).await?;
                if is_held {
                    held.arrived.notify_one();
                    held.permits.acquire().await.unwrap().forget();
                }
                Ok::<_, Infallible>(response)
            }
        }))
    }

    async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    fn release(&self) {
        self.0.permits.add_permits(1);
    }
}

/// Waits until a change after the mark is removed from the caches.
async fn until_changed(uids: &Uids, mark: Mark) {
    let is_changed = || match uids.changes().since(mark) {
        ChangedSince::Nothing => false,
        ChangedSince::Uids(sets) => !sets.is_empty(),
        ChangedSince::Everything => true,
    };
    let changed = async {
        while !is_changed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), changed)
        .await
        .unwrap();
}

const OLD: (UidKind, &str) = (UidKind::Metric, "old");

#[tokio::test]
async fn a_result_that_arrives_after_a_rename_is_not_cached() {
    for method in ["GetOrCreateUids", "LookupUids", "LookupNames"] {
        let held = HeldResponses::for_method(method);
        let stack = TestStack::with_uid_client(|routes| held.client(routes)).await;
        let uids = &stack.service.uids;
        let look_up = async {
            if method == "GetOrCreateUids" {
                return uids
                    .assign_for(&[OLD], |_| None, None)
                    .await
                    .unwrap()
                    .remove(0)
                    .unwrap();
            }
            let assigned = stack.uid_client.get_or_create_uids(&[OLD], true).await;
            let uid = assigned.unwrap().remove(0).unwrap().uid;
            if method == "LookupUids" {
                assert_eq!(uids.uids(&[OLD], None).await.unwrap(), [Some(uid)]);
            } else {
                uids.names(OLD.0, &[uid], None).await.unwrap();
            }
            uid
        };
        let rename = async {
            held.arrived().await;
            let mark = uids.changes().mark();
            let renamed = stack.uid_client.rename(OLD.0, OLD.1, "new", None).await;
            until_changed(uids, mark).await;
            held.release();
            renamed.unwrap().uid
        };
        let (looked_up, renamed) = tokio::join!(look_up, rename);
        assert_eq!(
            looked_up, renamed,
            "{method}: the result is that of before the rename"
        );
        assert_eq!(uids.cached(OLD.0, OLD.1), None, "{method}");
        held.release();
        let names = uids.names(OLD.0, &[renamed], None).await.unwrap();
        assert_eq!(names, [Some("new".into())], "{method}");
        held.release();
        let again = uids
            .assign_for(&[OLD], |_| None, None)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_ne!(again, renamed, "{method}: the old name has another UID now");
    }
}
