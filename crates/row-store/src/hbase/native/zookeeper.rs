//! Reads a znode: what a cluster's quorum says about it. The session ends with the read.
//!
//! Source: ZooKeeper 3.8, `zookeeper.jute`: `ConnectRequest`, `GetDataRequest`, `ReplyHeader`.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use tokio::net::TcpStream;

use super::framed;

/// The longest response, in bytes: a znode has 1 MiB at most.
const MAX_RESPONSE: u32 = 2 << 20;

const GET_DATA: i32 = 4;
const CLOSE: i32 = -11;
const NO_NODE: i32 = -101;

/// The data of a znode.
///
/// # Errors
///
/// One line, without the address of the server.
pub(super) async fn read(server: &str, path: &str, time: Duration) -> Result<Vec<u8>, String> {
    let read = tokio::time::timeout(time, read_znode(server, path));
    match read.await {
        Ok(Ok(data)) => data,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {time:?}")),
    }
}

async fn read_znode(server: &str, path: &str) -> std::io::Result<Result<Vec<u8>, String>> {
    let mut stream = TcpStream::connect(server).await?;
    let mut connect = Vec::new();
    connect.put_i32(0);
    connect.put_i64(0);
    connect.put_i32(10_000);
    connect.put_i64(0);
    connect.put_i32(16);
    connect.put_bytes(0, 16);
    // The session may be read-only.
    connect.put_u8(1);
    framed::write(&mut stream, &connect).await?;
    framed::read(&mut stream, MAX_RESPONSE, "ZooKeeper").await?;

    let mut get = Vec::new();
    get.put_i32(1);
    get.put_i32(GET_DATA);
    get.put_i32(i32::try_from(path.len()).unwrap_or(i32::MAX));
    get.put_slice(path.as_bytes());
    get.put_u8(0);
    framed::write(&mut stream, &get).await?;
    let response = framed::read(&mut stream, MAX_RESPONSE, "ZooKeeper").await?;
    let mut close = Vec::new();
    close.put_i32(2);
    close.put_i32(CLOSE);
    framed::write(&mut stream, &close).await?;
    Ok(data_of(&response, path))
}

/// The data in a response: its number, a transaction, an error, and bytes behind their length.
fn data_of(mut response: &[u8], path: &str) -> Result<Vec<u8>, String> {
    const SHORT: &str = "the response is too short";
    if response.len() < 16 {
        return Err(SHORT.to_owned());
    }
    response.advance(4 + 8);
    match response.get_i32() {
        0 => {}
        NO_NODE => return Err(format!("znode `{path}` does not exist")),
        error => return Err(format!("znode `{path}`: ZooKeeper's error {error}")),
    }
    let length = response
        .try_get_i32()
        .ok()
        .and_then(|length| usize::try_from(length).ok());
    let data = length.and_then(|length| response.get(..length));
    data.map(<[u8]>::to_vec).ok_or_else(|| SHORT.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response_of(error: i32, rest: &[u8]) -> Vec<u8> {
        [&[0; 12], error.to_be_bytes().as_slice(), rest].concat()
    }

    #[test]
    fn the_data_is_behind_the_error() {
        assert_eq!(
            data_of(&response_of(0, b"\0\0\0\x02abstat"), "/a").unwrap(),
            b"ab"
        );
        let missing = data_of(&response_of(NO_NODE, b""), "/hbase/master").unwrap_err();
        assert_eq!(missing, "znode `/hbase/master` does not exist");
        for hostile in [&b""[..], b"\0\0\0\x09ab", b"\xff\xff\xff\xff", b"\0\0"] {
            assert!(data_of(&response_of(0, hostile), "/a").is_err());
        }
        assert!(data_of(b"short", "/a").is_err());
    }
}
