//! Connections to servers that answer as a test says.

use oxtsdb_tls::testing::Authority;
use oxtsdb_tls::{Pem, certificates, private_key};
use rustls::ServerConfig;
use rustls::crypto::ring;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::messages::{CellBlockMeta, Empty, ExceptionResponse, ResponseHeader, ServerName};
use super::frame::PREAMBLE;
use super::*;

/// A server that reads a request and answers with some bytes; it keeps the connection open.
async fn answered(answer: impl Fn(u32) -> Vec<u8> + Send + 'static) -> Result<ServerName, CallError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 6];
        stream.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello, PREAMBLE);
        for _ in 0..2 {
            // The connection's header, then the request.
            let length = stream.read_u32().await.unwrap();
            let mut frame = vec![0; length as usize];
            stream.read_exact(&mut frame).await.unwrap();
        }
        stream.write_all(&answer(1)).await.unwrap();
        std::future::pending::<()>().await;
    });
    let options = ConnectOptions {
        user: "tester".to_owned(),
        tls: None,
        kerberos: None,
        time: Duration::from_secs(5),
        max_reply_bytes: 1000,
    };
    let connection = Connection::open(&address, Service::Client, &options)
        .await
        .unwrap();
    let deadline = Instant::now() + Duration::from_millis(500);
    let called = connection.call(Request::new("Get", &Empty {}), deadline).await;
    let is_open = connection.is_open();
    server.abort();
    match &called {
        Ok(_) => assert!(is_open),
        Err(CallError::Exception(exception)) => assert_eq!(is_open, !exception.class.contains("Fatal")),
        Err(_) => assert!(!is_open, "the connection is not used again"),
    }
    called.map(|(message, _)| message)
}

fn response(header: &ResponseHeader, rest: &[u8]) -> Vec<u8> {
    let body = [header.encode_length_delimited_to_vec().as_slice(), rest].concat();
    [&u32::try_from(body.len()).unwrap().to_be_bytes(), body.as_slice()].concat()
}

fn header(id: u32) -> ResponseHeader {
    ResponseHeader {
        call_id: Some(id),
        ..ResponseHeader::default()
    }
}

#[tokio::test]
async fn a_response_belongs_to_the_call_with_its_number() {
    let name = ServerName {
        host_name: "a".to_owned(),
        port: Some(1),
    };
    let message = name.encode_length_delimited_to_vec();
    let with_others = move |id| {
        let other = response(&header(id + 7), &[0]);
        [other, response(&header(id), &message)].concat()
    };
    assert_eq!(answered(with_others).await.unwrap(), name);
}

/// Cells of several records of TLS, more than the buffers of a socket have.
#[tokio::test]
async fn tls_carries_requests_and_responses_of_any_size() {
    const CELLS: usize = 8 << 20;
    let authority = Authority::new("hbase").unwrap();
    let issued = authority.issue(&["localhost"]).unwrap();
    let chain = certificates(issued.certificate.as_bytes()).unwrap();
    let certificate = chain.first().unwrap().to_vec();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, private_key(issued.key.as_bytes()).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
        stream.read_exact(&mut [0; 6]).await.unwrap();
        let mut lengths = Vec::new();
        for _ in 0..2 {
            let length = stream.read_u32().await.unwrap() as usize;
            stream.read_exact(&mut vec![0; length]).await.unwrap();
            lengths.push(length);
        }
        let meta = CellBlockMeta {
            length: u32::try_from(CELLS).ok(),
        };
        let header = ResponseHeader {
            cell_block_meta: Some(meta),
            ..header(1)
        };
        let cells = vec![7; CELLS];
        let body = response(&header, &[&[0], cells.as_slice()].concat());
        stream.write_all(&body).await.unwrap();
        stream.flush().await.unwrap();
        lengths
    });
    let credentials = Credentials {
        ca: Some(Pem::Bytes(authority.pem().into_bytes())),
        identity: None,
    };
    let options = ConnectOptions {
        user: "tester".to_owned(),
        tls: Some(Arc::new(Connector::new(credentials, &[]).unwrap())),
        kerberos: None,
        time: Duration::from_secs(30),
        max_reply_bytes: 2 * CELLS,
    };
    let connection = Connection::open(&address, Service::Client, &options)
        .await
        .unwrap();
    let peer = connection.tls().unwrap();
    assert_eq!(
        (peer.version.as_str(), &peer.certificate),
        ("TLS 1.3", &certificate)
    );
    let request = Request {
        cells: &vec![1; CELLS],
        ..Request::new("Multi", &Empty {})
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let (_, cells): (Empty, _) = connection.call(request, deadline).await.unwrap();
    assert_eq!((cells.len(), cells.first()), (CELLS, Some(&7)));
    let lengths = server.await.unwrap();
    assert!(lengths[1] > CELLS, "{lengths:?}");
}

#[tokio::test]
async fn exceptions_are_errors_of_their_call() {
    let exception = |class: &'static str, id: Option<u32>| {
        move |_| {
            let exception = ExceptionResponse {
                exception_class_name: Some(class.to_owned()),
                stack_trace: Some("first line\n\tat x".to_owned()),
                ..ExceptionResponse::default()
            };
            let header = ResponseHeader {
                call_id: id,
                exception: Some(exception),
                cell_block_meta: None,
            };
            response(&header, &[])
        }
    };
    for (class, id) in [
        ("java.io.IOException", Some(1)),
        ("x.FatalConnectionException", Some(u32::MAX)),
    ] {
        let error = answered(exception(class, id)).await.unwrap_err();
        let CallError::Exception(thrown) = error else {
            panic!("{error:?}")
        };
        assert_eq!(
            (thrown.class.as_str(), thrown.line.as_str()),
            (class, "first line")
        );
    }
}

#[tokio::test]
async fn no_response_is_longer_than_allowed() {
    let too_long = |id| {
        let start = header(id).encode_length_delimited_to_vec();
        [&u32::MAX.to_be_bytes()[..], &start, &[0; 100]].concat()
    };
    let error = answered(too_long).await.unwrap_err();
    assert!(matches!(error, CallError::TooLarge { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_speak_the_protocol_ends_the_connection() {
    let cells = |id| {
        let header = ResponseHeader {
            cell_block_meta: Some(CellBlockMeta { length: Some(9) }),
            ..header(id)
        };
        response(&header, &[0, 1])
    };
    assert!(matches!(answered(cells).await, Err(CallError::Malformed { .. })));
    for garbage in [
        &b"\0\0\0\x05\xff\xff\xff\xff\xff"[..],
        b"\0\0\0\0",
        b"\0\0\0\x01\0",
    ] {
        let error = answered(|_| garbage.to_vec()).await.unwrap_err();
        assert!(
            matches!(error, CallError::Malformed { .. }),
            "{garbage:?}: {error:?}"
        );
    }
    let error = answered(|_| b"HTTP".to_vec()).await.unwrap_err();
    assert!(
        matches!(error, CallError::Lost { .. }),
        "0x48545450 bytes: {error:?}"
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_the_time_of_the_call() {
    let error = answered(|_| Vec::new()).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error:?}");
}
