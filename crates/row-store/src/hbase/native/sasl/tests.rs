//! What servers respond that reject a client, and streams of wrapped messages in pieces. With a real HBase:
//! `tests/hbase/kerberos.sh`.

use super::super::kerberos::testing;
use super::*;

/// The result of a handshake with a server that responds with these bytes and closes.
async fn rejected(response: &[u8]) -> String {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    server.write_all(response).await.unwrap();
    let (mut read, mut write) = tokio::io::split(client);
    let answering = async move {
        // The preamble and the token are taken before the end.
        let mut start = [0; 6];
        server.read_exact(&mut start).await.unwrap();
        assert_eq!(start, PREAMBLE);
        let length = server.read_u32().await.unwrap();
        let mut token = vec![0; length as usize];
        server.read_exact(&mut token).await.unwrap();
        assert_eq!(token[0], 0x60);
    };
    let ticket = testing::ticket(18);
    let (result, ()) = tokio::join!(handshake(&mut read, &mut write, &ticket), answering);
    result.err().unwrap()
}

#[tokio::test]
async fn a_server_says_why_it_rejects() {
    let text = |text: &str| {
        [
            &u32::try_from(text.len()).unwrap().to_be_bytes()[..],
            text.as_bytes(),
        ]
        .concat()
    };
    let error = [
        1_u32.to_be_bytes().to_vec(),
        text("javax.security.sasl.SaslException"),
        text("GSS initiate failed"),
    ];
    let simple = [0_i32.to_be_bytes(), SWITCH_TO_SIMPLE.to_be_bytes()];
    let huge = [0_i32.to_be_bytes(), i32::MAX.to_be_bytes()];
    for (response, expected) in [
        (
            error.concat(),
            "rejects the ticket for `hbase/a@R.TEST`: javax.security.sasl.SaslException: GSS",
        ),
        (simple.concat(), "has no Kerberos (hbase.security.authentication)"),
        (huge.concat(), "invalid length"),
        (vec![0x15, 3, 3, 0, 2], "requires TLS (--hbase-tls)"),
        (vec![], "closed the connection during the handshake"),
        (vec![0; 8], "does not prove to be"),
    ] {
        let error = rejected(&response).await;
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// A client's streams and the other ends, with a layer.
fn streams(protection: Protection, most: usize) -> (Read, Write, tokio::io::DuplexStream, testing::Server) {
    // Everything arrives in pieces.
    let (client, server) = tokio::io::duplex(7);
    let (read, write) = tokio::io::split(client);
    let (context, of_server) = testing::contexts(18);
    let layer = Layer {
        protection,
        outgoing: context.outgoing,
        incoming: context.incoming,
        most: 2 * OVERHEAD,
    };
    let (read, write) = layer.over((Box::new(read), Box::new(write)), most);
    (read, write, server, of_server)
}

#[tokio::test]
async fn what_is_wrapped_arrives_in_pieces_of_any_size() {
    for (protection, seals) in [(Protection::Integrity, false), (Protection::Privacy, true)] {
        let (mut read, mut write, mut stream, mut server) = streams(protection, 1 << 20);
        let sent: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let echo = async {
            let mut whole = Vec::new();
            while whole.len() < sent.len() {
                let length = stream.read_u32().await.unwrap();
                // The server's limit.
                assert!(length as usize <= 2 * OVERHEAD, "{length}");
                let mut token = vec![0; length as usize];
                stream.read_exact(&mut token).await.unwrap();
                whole.extend(server.incoming.unwrap(&token, seals).unwrap());
            }
            assert_eq!(whole, sent);
            // An empty message is no end.
            for part in [&b""[..], &whole[..1], &whole[1..]] {
                let token = server.outgoing.wrap(part, seals);
                framed::write(&mut stream, &token).await.unwrap();
            }
            stream
        };
        let client = async {
            write.write_all(&sent).await.unwrap();
            write.flush().await.unwrap();
            let mut received = vec![0; sent.len()];
            read.read_exact(&mut received).await.unwrap();
            assert_eq!(received, sent);
        };
        let (stream, ()) = tokio::join!(echo, client);
        drop(stream);
        assert_eq!(read.read(&mut [0; 1]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn messages_that_are_not_the_servers_end_the_stream() {
    for response in [&b"\0\0\0\x03abc"[..], b"\x7f\xff\xff\xff", b"\0\0\0\x09abc"] {
        let (mut read, _write, mut stream, _server) = streams(Protection::Privacy, 1000);
        let sending = async {
            stream.write_all(response).await.unwrap();
            drop(stream);
        };
        let mut buffer = [0; 1];
        let (result, ()) = tokio::join!(read.read(&mut buffer), sending);
        let kind = result.unwrap_err().kind();
        assert!(
            matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof),
            "{kind:?}"
        );
    }
}
