//! Failures of the store and the UID service: retries, lost points and their reports.

use super::*;

#[tokio::test]
async fn stores_batches_behind_a_failed_batch_again() {
    let (service, gate) = Service::gated(in_batches_of(1)).await;
    let mut stream = service.connect().await;
    // The third line corrects the second.
    let seconds = [(0, 1), (1, 2), (1, 3), (2, 4)];
    let lines = seconds.map(|(second, value)| format!("put m {} {value} a=b\n", T + second));
    stream.write_all(lines.concat().as_bytes()).await.unwrap();
    gate.until_waiting(4).await;
    gate.release(1);
    gate.until_waiting(3).await;
    // The second fails, and when it is stored again too.
    gate.fail([unavailable()]);
    gate.release(3);
    gate.until_waiting(1).await;
    gate.fail([unavailable()]);
    gate.release(100);
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    let cells = service.cells().await;
    let values: Vec<&str> = cells.iter().filter_map(|cell| cell.split(' ').nth(2)).collect();
    assert_eq!(values, ["01", "03", "04"]);
    assert_eq!(
        gate.passed(),
        1 + 2 + 3,
        "the first, the two behind the failure, these three again"
    );
    assert_eq!(counted(&service).await, [4, 4, 0]);
}

#[tokio::test]
async fn reports_lost_points_in_flight_at_once() {
    let (service, gate) = Service::gated(in_batches_of(10)).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(35).as_bytes()).await.unwrap();
    gate.until_waiting(4).await;
    gate.release(1);
    gate.until_waiting(3).await;
    gate.fail([full()]);
    gate.release(100);
    let lost = "put: HBase error: no space left: disk (10 points are not known to be stored)\n";
    let mut reply = vec![0; lost.len()];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(String::from_utf8(reply).unwrap(), lost);
    // The connection stays open.
    stream.write_all(b"help\nexit\n").await.unwrap();
    assert_eq!(
        read_to_end(&mut stream).await,
        "available commands: stats dropcaches version exit help put rollup histogram \n"
    );
    assert_eq!(counted(&service).await, [35, 25, 10]);
    assert_eq!(service.cells().await.len(), 25);
}

#[tokio::test]
async fn replies_after_the_failures_of_earlier_lines() {
    let (service, gate) = Service::gated(in_batches_of(2)).await;
    gate.release(1);
    // A cached series: its points wait only at the gate.
    assert_eq!(service.telnet(format!("put m {T} 1 a=b\n")).await, "");
    let mut stream = service.connect().await;
    let input = format!("{}bogus\nput m {T} 1 a=b!\nput m {} 9 a=b\n", lines(5), T + 5);
    stream.write_all(input.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    gate.until_waiting(3).await;
    // Of three batches in flight one is lost, and the others have to be stored again.
    gate.fail([full(), unavailable()]);
    gate.release(100);
    assert_eq!(
        read_to_end(&mut stream).await,
        "put: HBase error: no space left: disk (2 points are not known to be stored)\n\
         unknown command: bogus.  Try `help'.\n\
         put: illegal argument: Invalid tag value with key [a] (\"b!\"): illegal character: ! (letters, digits and -_./ are allowed, and what --extra-name-characters adds)\n"
    );
    assert_eq!(counted(&service).await, [8, 5, 2]);
    assert_eq!(service.cells().await.len(), 5);
}

#[tokio::test]
async fn stores_the_lines_of_a_disconnected_client() {
    let with_replies = "bogus\n".to_owned() + &lines(35).replace("a=b\n", "a=b\nbogus\n");
    for input in [lines(35), with_replies] {
        let (service, gate) = gated_in_pairs(in_batches_of(10)).await;
        let mut stream = service.connect().await;
        stream.write_all(input.as_bytes()).await.unwrap();
        gate.until_waiting(if input.contains("bogus") { 1 } else { 2 })
            .await;
        // The connection is reset, not closed.
        let socket = socket2::SockRef::from(&stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        gate.fail([unavailable()]);
        gate.release(100);
        until_statistic(&service, "tsd.datapoints.added", "all", 35).await;
        assert_eq!(service.cells().await.len(), 35);
        until_statistic(&service, "tsd.connectionmgr.connections", "open", 1).await;
    }
}

#[tokio::test]
async fn retries_until_the_store_is_available() {
    let (service, gate) = Service::gated(DataSettings::default()).await;
    gate.release(100);
    gate.fail([unavailable(), unavailable()]);
    assert_eq!(service.telnet(lines(3)).await, "");
    assert_eq!(service.cells().await.len(), 3);
}

#[tokio::test]
async fn reports_lost_points() {
    let (service, gate) = Service::gated(DataSettings::default()).await;
    gate.release(100);
    gate.fail([full()]);
    assert_eq!(
        service.telnet(format!("{}bogus\n", lines(3))).await,
        "put: HBase error: no space left: disk (3 points are not known to be stored)\n\
         unknown command: bogus.  Try `help'.\n"
    );
    assert_eq!(service.cells().await.len(), 0);
}

#[tokio::test]
async fn stores_points_of_known_series_without_the_uid_service() {
    let (service, gate) = Service::with_gated_uids().await;
    gate.release(1);
    assert_eq!(service.telnet(format!("put m {T} 1 a=b\n")).await, "");
    let mut waiting = service.connect().await;
    waiting
        .write_all(format!("put m {T} 1 a=new\nput m {} 2 a=b\nexit\n", T + 1).as_bytes())
        .await
        .unwrap();
    gate.until_waiting(1).await;
    assert_eq!(service.telnet(format!("put m {} 3 a=b\n", T + 2)).await, "");
    assert_eq!(service.cells().await.len(), 2, "the other connection waits alone");
    gate.release(100);
    assert_eq!(read_to_end(&mut waiting).await, "");
    assert_eq!(service.cells().await.len(), 4);
}
