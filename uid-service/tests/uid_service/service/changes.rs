//! Renames and deletes: codes and reasons.

use oxtsdb_client::{Code, Error, ErrorReason, UidClient};
use oxtsdb_schema::Uid;
use oxtsdb_schema::UidKind::{Metric, Tagk};
use uid_service::UidSettings;

use crate::support::{Service, Wrapped};

fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> (Code, ErrorReason) {
    let error = result.unwrap_err();
    (error.code(), error.reason().expect("a reason"))
}

#[tokio::test]
async fn renames_and_deletes_a_mapping() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = Service::start(store, &UidSettings::default()).await;
        service.assign(Tagk, &["host"]).await;
        let uid = Uid::from_bytes(&[0, 0, 1]).unwrap();
        let client = &service.client;
        let renamed = client.rename(Tagk, "host", "hôte", Some(uid)).await.unwrap();
        assert_eq!(
            (renamed.kind, renamed.name.as_str(), renamed.uid),
            (Tagk, "hôte", uid)
        );
        assert_eq!(client.lookup_uids(&[(Tagk, "hôte")]).await.unwrap(), [Ok(uid)]);
        assert_eq!(client.delete(Tagk, "hôte", None).await.unwrap(), renamed);
        let gone = client.lookup_uids(&[(Tagk, "hôte")]).await.unwrap();
        assert!(gone[0].is_err());
    }
}

#[tokio::test]
async fn rejections_have_codes_and_reasons() {
    let service = Service::start(Wrapped::atomic(), &UidSettings::default()).await;
    service.assign(Metric, &["one", "two"]).await;
    let client: &UidClient = &service.client;
    let other = Uid::from_bytes(&[0, 0, 9]).unwrap();
    let wide = Uid::from_bytes(&[0, 0, 0, 1]).unwrap();
    let rename = async |from, to, uid| failure(client.rename(Metric, from, to, uid).await);
    let delete = async |name, uid| failure(client.delete(Metric, name, uid).await);
    assert_eq!(
        rename("one", "two", None).await,
        (Code::AlreadyExists, ErrorReason::NameTaken)
    );
    for rejected in [rename("three", "four", None).await, delete("three", None).await] {
        assert_eq!(rejected, (Code::NotFound, ErrorReason::NameNotFound));
    }
    for rejected in [
        rename("one", "a b", None).await,
        rename("", "four", None).await,
        delete("", None).await,
    ] {
        assert_eq!(rejected, (Code::InvalidArgument, ErrorReason::InvalidName));
    }
    assert_eq!(
        rename("one", "one", None).await,
        (Code::InvalidArgument, ErrorReason::InvalidField)
    );
    for rejected in [
        rename("one", "four", Some(other)).await,
        delete("one", Some(other)).await,
    ] {
        assert_eq!(rejected, (Code::Aborted, ErrorReason::UidMismatch));
    }
    for rejected in [
        rename("one", "four", Some(wide)).await,
        delete("one", Some(wide)).await,
    ] {
        assert_eq!(rejected, (Code::InvalidArgument, ErrorReason::InvalidUidWidth));
    }
    service.put(&[0, 0, 1], "name", Metric, b"third").await;
    assert_eq!(
        rename("one", "four", None).await,
        (Code::DataLoss, ErrorReason::CorruptCell)
    );
}

#[tokio::test]
async fn dropped_caches_read_what_other_programs_have_changed() {
    let service = Service::start(Wrapped::atomic(), &UidSettings::default()).await;
    service.assign(Metric, &["one"]).await;
    // The second request looks it up, and caches it.
    assert_eq!(service.assign(Metric, &["one"]).await, ["000001"]);
    service.put(b"one", "id", Metric, &[0, 0, 7]).await;
    assert_eq!(service.assign(Metric, &["one"]).await, ["000001"], "cached");
    service.client.drop_caches().await.unwrap();
    assert_eq!(service.assign(Metric, &["one"]).await, ["000007"]);
}
