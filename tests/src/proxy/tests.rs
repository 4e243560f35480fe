use std::io::ErrorKind;

use anyhow::ensure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::*;
use crate::until;

/// An echo server.
async fn echo() -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    Ok((address, serving))
}

async fn roundtrip(client: &mut TcpStream, text: &str) -> anyhow::Result<String> {
    client.write_all(text.as_bytes()).await?;
    let mut response = vec![0; text.len()];
    client.read_exact(&mut response).await?;
    Ok(String::from_utf8(response)?)
}

#[tokio::test]
async fn stall_holds_bytes_until_it_ends() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(roundtrip(&mut client, "one").await?, "one");

    proxy.set(Direction::ToClient, Flow::Stall);
    client.write_all(b"two").await?;
    until("the request passes", || async {
        ensure!(proxy.bytes(Direction::ToServer) == 6);
        Ok(())
    })
    .await?;
    assert_eq!(proxy.bytes(Direction::ToClient), 3);
    proxy.set(Direction::ToClient, Flow::Slow(NonZeroU32::MIN));
    let mut response = [0; 3];
    client.read_exact(&mut response).await?;
    assert_eq!(&response, b"two");
    Ok(())
}

#[tokio::test]
async fn discards_responses_and_cuts_connections() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    proxy.set(Direction::ToClient, Flow::Lose);
    client.write_all(b"lost").await?;
    until("the response is discarded", || async {
        ensure!(proxy.bytes(Direction::ToClient) == 4);
        Ok(())
    })
    .await?;
    proxy.set(Direction::ToClient, Flow::Pass);
    assert_eq!(roundtrip(&mut client, "kept").await?, "kept");

    proxy.cut();
    let mut rest = Vec::new();
    // An end or a reset, whichever the system makes of it.
    let _ = client.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "{rest:?}");
    Ok(())
}

#[tokio::test]
async fn refuses_new_connections_and_keeps_existing_ones() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let mut proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(roundtrip(&mut client, "one").await?, "one");
    proxy.refuse().await;
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(roundtrip(&mut client, "two").await?, "two");
    proxy.accept().await?;
    let mut another = TcpStream::connect(proxy.address()).await?;
    assert_eq!(roundtrip(&mut another, "three").await?, "three");
    Ok(())
}

#[tokio::test]
async fn propagates_a_half_close() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    client.write_all(b"all of it").await?;
    client.shutdown().await?;
    let mut response = String::new();
    client.read_to_string(&mut response).await?;
    assert_eq!(response, "all of it");
    Ok(())
}
