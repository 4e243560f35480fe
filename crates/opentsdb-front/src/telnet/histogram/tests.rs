//! Histograms over a socket.

use oxtsdb_test_stack::service::Service;

const T: u32 = 1_356_998_400;

#[tokio::test]
async fn stores_histograms_byte_for_byte_as_opentsdb() {
    let service = Service::with_histograms().await;
    let reply = service
        .telnet(&format!(
            "histogram lat.hist {T} 0,1=5:1,2.5=300:u=2:o=7 host=web01\n\
             histogram lat.hist {T}500 0,1=5 host=web01\n\
             histogram lat.hist {} 42 AAEAAAAAP4AAAAUAAA== host=web01\n\
             put lat.hist {T} 1 host=web01\n",
            T + 1
        ))
        .await;
    assert_eq!(reply, "", "a stored histogram is silent");
    let row = "00000150e22700000001000001";
    assert_eq!(
        service.cells().await,
        [
            format!("{row} t:0000 01"),
            format!("{row} t:060000 2a0002000000003f800000053f80000040200000ac020207"),
            format!("{row} t:06000001f4 2a0001000000003f800000050000"),
            format!("{row} t:060001 2a0001000000003f800000050000"),
        ]
    );
}

#[tokio::test]
async fn replies_as_opentsdb_in_the_order_of_the_lines() {
    let service = Service::with_histograms().await;
    // Recorded from OpenTSDB 2.4.1; `None`: it has no reply.
    let lines = [
        (
            "histogram h",
            Some("illegal argument: not enough arguments (need least 5, got 1)"),
        ),
        (
            "histogram h 1",
            Some("illegal argument: not enough arguments (need least 5, got 2)"),
        ),
        (
            "histogram h 1 0,1=5",
            Some("illegal argument: not enough arguments (need least 5, got 3)"),
        ),
        (
            "histogram h 0 0,1=5 host=a",
            Some("illegal argument: invalid timestamp: 0"),
        ),
        (
            "histogram h x 0,1=5 host=a",
            Some("invalid value: Invalid character 'x' in x"),
        ),
        (
            "histogram  1 0,1=5 host=a",
            Some("illegal argument: empty metric name"),
        ),
        ("histogram h 1 0,1 host=a", None),
        ("histogram h 1 0,x=5 host=a", None),
        (
            "histogram h 1  host=a",
            Some("illegal argument: empty histogram value"),
        ),
        (
            "histogram h 1 42 AAE= host=a",
            Some("HBase error: Byte array shorter than 6 bytes detected: [0, 1]"),
        ),
        (
            "histogram h 1 7 AAAAAAAAAAA= host=a",
            Some("HBase error: No codec found mapped to ID 7"),
        ),
        (
            "histogram h 1 300 AAAAAAAAAAA= host=a",
            Some("HBase error: No codec found mapped to ID 300"),
        ),
        (
            "histogram h 1 42 AAEAAAAAP4AAAAUA host=a",
            Some("HBase error: Buffer underflow."),
        ),
        (
            "histogram h 1 42 host=a",
            Some("HBase error: Byte array shorter than 6 bytes detected: \"\\x86\\x8B-\""),
        ),
        (
            "histogram h 1 0,1=5 host",
            Some("illegal argument: invalid tag: host"),
        ),
        (
            "histogram h 1 0,1=5 ho!st=a",
            Some(
                "HBase error: Invalid tag name with value [a] (\"ho!st\"): illegal character: ! (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
            ),
        ),
        (
            "histogram h 99999999999999 0,1=5 host=a",
            Some(
                "HBase error: bad timestamp=99999999999999 when trying to add value=[42, 0, 1, 0, 0, 0, 0, 63, -128, \
                 0, 0, 5, 0, 0]/0 to metric=h, tags={host=a}",
            ),
        ),
        (
            "histogram h 1 0,1=5 host=a host=b",
            Some("illegal argument: duplicate tag: host=b, tags={host=a}"),
        ),
    ];
    let input: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    let replies = service.telnet(&input).await;
    let replies: Vec<&str> = replies.lines().collect();
    assert_eq!(replies.len(), lines.len(), "{replies:#?}");
    for (reply, (line, expected)) in replies.iter().zip(&lines) {
        match expected {
            Some(expected) => assert_eq!(*reply, format!("histogram: {expected}"), "{line}"),
            None => assert!(reply.starts_with("histogram: HBase error: "), "{line}: {reply}"),
        }
    }
    assert_eq!(service.cells().await, [""; 0]);
}

#[tokio::test]
async fn histograms_are_rejected_unless_configured() {
    let service = Service::start().await;
    let reply = service.telnet("histogram h 1 0,1=5 host=a\n").await;
    assert_eq!(
        reply,
        "histogram: illegal argument: Histogram storage has not been enabled. Check the \
         'tsd.core.histograms.config' configuration.\n"
    );
}
