//! Logins at a KDC that rejects them, and wrapped messages between both sides of a context. What a real KDC and HBase do:
//! `tests/hbase/kerberos.sh`.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use kerbcore::der::encode_sequence;
use kerbcore::messages::KrbError;
use kerbcore::types::KerberosTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::context::testing;
use super::keytab::ENCRYPTIONS;
use super::keytab::tests::{entry, keytab};
use super::*;

/// A KDC that responds to each request with an error; returns its address and the number of requests.
async fn kdc(error_code: i32) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let response = KrbError {
        stime: KerberosTime("20261129120000Z".to_owned()),
        susec: 0,
        error_code,
        realm: "R.TEST".to_owned(),
        sname: kerbcore::client::krbtgt_sname("R.TEST"),
        e_text: Some("BY_TEST".to_owned()),
        e_data: Some(encode_sequence(&[])),
    };
    let response = response.encode();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let length = stream.read_u32().await.unwrap();
            let mut request = vec![0; length as usize];
            stream.read_exact(&mut request).await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            stream
                .write_u32(u32::try_from(response.len()).unwrap())
                .await
                .unwrap();
            stream.write_all(&response).await.unwrap();
        }
    });
    (address, requests)
}

fn client(folder: &Path, kdcs: Vec<String>) -> Kerberos {
    let principal: Principal = "oxtsdb@R.TEST".parse().unwrap();
    let file = folder.join("oxtsdb.keytab");
    std::fs::write(&file, keytab(&[entry("oxtsdb@R.TEST", (1, 18), None)])).unwrap();
    Kerberos::new(KerberosConfig {
        server_principal: Principal::of_hbase(&principal),
        principal,
        keytab: file,
        kdcs,
    })
}

#[tokio::test]
async fn a_rejected_key_is_not_sent_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let (address, requests) = kdc(24).await;
    let kerberos = client(folder.path(), vec![address]);
    for _ in 0..3 {
        let error = kerberos.log_in().await.unwrap_err();
        assert!(
            error.contains("(--hbase-kerberos-keytab): BY_TEST, error 24"),
            "{error}"
        );
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_kdc_that_required_a_proof_and_rejects_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // It always responds that it requires a proof.
    let (address, requests) = kdc(25).await;
    let error = client(folder.path(), vec![address.clone()])
        .log_in()
        .await
        .unwrap_err();
    assert!(error.contains(&address) && error.contains("error 25"), "{error}");
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_clock_that_differs_is_named_with_the_time_of_the_kdc() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _) = kdc(37).await;
    let error = client(folder.path(), vec![address]).log_in().await.unwrap_err();
    assert!(
        error.contains("clocks") && error.contains("20261129120000Z"),
        "{error}"
    );
}

#[tokio::test]
async fn kdcs_are_asked_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed_address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let (unavailable, _) = kdc(29).await;
    let (address, requests) = kdc(6).await;
    let kdcs = vec![closed_address.clone(), unavailable.clone(), address];
    let error = client(folder.path(), kdcs).log_in().await.unwrap_err();
    assert!(error.contains("does not know the client"), "{error}");
    assert_eq!(requests.load(Ordering::Relaxed), 1);

    let kdcs = vec![closed_address.clone(), unavailable.clone()];
    let error = client(folder.path(), kdcs).log_in().await.unwrap_err();
    for text in [
        "no KDC of the realm `R.TEST` responds",
        &closed_address,
        &unavailable,
    ] {
        assert!(error.contains(text), "{text}: {error}");
    }
}

#[test]
fn wrapped_messages_are_read_in_their_order() {
    for encryption in ENCRYPTIONS.map(kerbcore::Enctype::to_i32) {
        for seals in [false, true] {
            let (mut client, mut server) = testing::contexts(encryption);
            for data in [&b""[..], b"a", &[7; 1000]] {
                let token = server.outgoing.wrap(data, seals);
                assert_eq!(client.incoming.unwrap(&token, seals).unwrap(), data);
                let token = client.outgoing.wrap(data, seals);
                assert_eq!(server.incoming.unwrap(&token, seals).unwrap(), data);
            }
            let first = server.outgoing.wrap(b"first", seals);
            let second = server.outgoing.wrap(b"second", seals);
            assert_eq!(client.incoming.unwrap(&second, seals), Err("it is out of order"));
            client.incoming.unwrap(&first, seals).unwrap();
            assert_eq!(client.incoming.unwrap(&first, seals), Err("it is out of order"));
        }
    }
}

#[test]
fn messages_of_others_are_errors() {
    for encryption in ENCRYPTIONS.map(kerbcore::Enctype::to_i32) {
        for seals in [false, true] {
            let (mut client, mut server) = testing::contexts(encryption);
            let own = client.outgoing.wrap(b"data", seals);
            assert_eq!(client.incoming.unwrap(&own, seals), Err("it is not the server's"));
            let token = server.outgoing.wrap(b"data", seals);
            // The rotation, at 6 and 7, may be by the length of the body, which changes nothing.
            for index in (0..token.len()).filter(|index| !matches!(index, 6 | 7)) {
                let mut changed = token.clone();
                changed[index] ^= 1;
                let result = client.incoming.unwrap(&changed, seals);
                assert!(result.is_err(), "{encryption} {index}: {result:?}");
            }
            for length in 0..token.len() {
                assert!(
                    client.incoming.unwrap(&token[..length], seals).is_err(),
                    "{length}"
                );
            }
            client.incoming.unwrap(&token, seals).unwrap();
        }
        let (mut client, mut server) = testing::contexts(encryption);
        let plain = server.outgoing.wrap(b"data", false);
        assert_eq!(client.incoming.unwrap(&plain, true), Err("it is not encrypted"));
    }
}

#[test]
fn a_server_that_proves_nothing_is_an_error() {
    let ticket = testing::ticket(18);
    for token in [&b""[..], b"\x60\x80", &[0x60; 40], b"HTTP/1.1 400 Bad Request"] {
        let (pending, _) = Pending::begin(&ticket).unwrap();
        let error = pending.complete(token).unwrap_err();
        assert!(error.contains("does not prove to be `hbase/a@R.TEST`"), "{error}");
    }
    let foreign = testing::reply(&testing::ticket(18), "20261129120000Z", 1);
    let (pending, _) = Pending::begin(&ticket).unwrap();
    assert!(pending.complete(&foreign).is_err());
    // The key is right, but it is the response to another request.
    let replayed = testing::reply(&ticket, "20000101000000Z", 1);
    let (pending, _) = Pending::begin(&ticket).unwrap();
    let error = pending.complete(&replayed).unwrap_err();
    assert!(error.contains("another request"), "{error}");
}
