use std::io::ErrorKind;

use anyhow::ensure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::*;
use crate::until;

/// A server that sends back what it gets.
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

async fn ask(client: &mut TcpStream, text: &str) -> anyhow::Result<String> {
    client.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; text.len()];
    client.read_exact(&mut answer).await?;
    Ok(String::from_utf8(answer)?)
}

#[tokio::test]
async fn bytes_pass_until_they_are_stalled_and_then_go_on() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut client, "one").await?, "one");

    proxy.set(Direction::ToClient, Flow::Stall);
    client.write_all(b"two").await?;
    until("the request went through", || async {
        ensure!(proxy.bytes(Direction::ToServer) == 6);
        Ok(())
    })
    .await?;
    assert_eq!(proxy.bytes(Direction::ToClient), 3);
    proxy.set(Direction::ToClient, Flow::Slow(NonZeroU32::MIN));
    let mut answer = [0; 3];
    client.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"two");
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_never_comes_and_a_cut_ends_the_connection() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    proxy.set(Direction::ToClient, Flow::Lose);
    client.write_all(b"lost").await?;
    until("the answer is lost", || async {
        ensure!(proxy.bytes(Direction::ToClient) == 4);
        Ok(())
    })
    .await?;
    proxy.set(Direction::ToClient, Flow::Pass);
    assert_eq!(ask(&mut client, "kept").await?, "kept");

    proxy.cut();
    let mut rest = Vec::new();
    // An end or a reset, whichever the system makes of it.
    let _ = client.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "{rest:?}");
    Ok(())
}

#[tokio::test]
async fn a_refusing_proxy_keeps_connections_and_takes_new_ones_later() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let mut proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut client, "one").await?, "one");
    proxy.refuse().await;
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut client, "two").await?, "two");
    proxy.accept().await?;
    let mut another = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut another, "three").await?, "three");
    Ok(())
}

#[tokio::test]
async fn the_end_of_one_direction_is_handed_on() -> anyhow::Result<()> {
    let (server, _serving) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    client.write_all(b"all of it").await?;
    client.shutdown().await?;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await?;
    assert_eq!(answer, "all of it");
    Ok(())
}
