//! Lines that telnet rejects, with OpenTSDB's texts.

use oxtsdb_tests::read_back;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::{Tsdb, until};

use super::points::*;

#[tokio::test(flavor = "multi_thread")]
async fn telnet_rejects_bad_lines_with_opentsdbs_messages() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let mut telnet = tsdb.telnet().await?;
    let cases: &[(&str, &str)] = &[
        (
            "put m 1500000000 1",
            "put: illegal argument: not enough arguments (need least 4, got 3)",
        ),
        ("put m 0 1 host=a", "put: illegal argument: invalid timestamp: 0"),
        (
            "put m x 1 host=a",
            "put: invalid value: Invalid character 'x' in x",
        ),
        (
            "put m 1500000000 x host=a",
            "put: invalid value: Invalid character 'x' in x",
        ),
        ("put m 1500000000  host=a", "put: illegal argument: empty value"),
        (
            "put  1500000000 1 host=a",
            "put: illegal argument: empty metric name",
        ),
        (
            "put m 1500000000 1 host",
            "put: illegal argument: invalid tag: host",
        ),
        (
            "put m 1500000000 1 host=a host=b",
            "put: illegal argument: duplicate tag: host=b, tags={host=a}",
        ),
        ("nonsense 1 2 3", "unknown command: nonsense.  Try `help'."),
        ("", "unknown command: .  Try `help'."),
    ];
    for (number, (line, reply)) in cases.iter().enumerate() {
        let number = i64::try_from(number)?;
        let good = Sample::int(GOOD, &[("path", "telnet")], T + number * 1000, number).to_telnet_line();
        // The good line comes first and with a bad one in a packet: one must not harm the other.
        telnet.send(format!("{good}{line}\n").as_bytes()).await?;
        assert_eq!(telnet.line().await?, *reply, "`{line}`");
    }
    until("the good lines are stored", || {
        check_good(&tsdb, "telnet", cases.len())
    })
    .await?;

    for line in [
        "put m 1500000000 1 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1",
        "put m 1500000000 NaN host=a",
        "put m 1500000000 Infinity host=a",
        "put m 1500000000 99999999999999999999 host=a",
        "put m 99999999999999 1 host=a",
        "put a:b 1500000000 1 host=a",
        "put m 1500000000 1 ho:st=a",
        "put m 1500000000 1 host=a:b",
    ] {
        telnet.send(format!("{line}\n").as_bytes()).await?;
        let reply = telnet.line().await?;
        assert!(reply.starts_with("put: "), "`{line}`: `{reply}`");
    }
    telnet.send(b"exit\n").await?;
    assert_eq!(telnet.rest().await?, "");
    assert!(
        read_back::series_of_or_none(&mut tsdb.data(), "m")
            .await?
            .is_empty()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_telnet_line_is_not_stored() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let mut telnet = tsdb.telnet().await?;
    // The second line would be a point even so; its value could go on, so it is none.
    let whole = Sample::int(GOOD, &[("path", "half")], T, 0).to_telnet_line();
    let next = Sample::int(GOOD, &[("path", "half")], T + 1000, 1).to_telnet_line();
    telnet
        .send(format!("{whole}{}", next.trim_end()).as_bytes())
        .await?;
    telnet.finish().await?;
    until("the whole line is stored", || check_good(&tsdb, "half", 1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_telnet_line_over_the_limit_closes_the_connection() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    for ended in [false, true] {
        let mut telnet = tsdb.telnet().await?;
        let mut line = format!("put m 1500000000 1 host={}", "x".repeat(5000));
        if ended {
            line.push('\n');
        }
        telnet.send(line.as_bytes()).await?;
        let reply = telnet.rest().await?;
        assert!(
            !reply.is_empty() && reply.ends_with('\n'),
            "an error before the end: `{reply}`"
        );
    }
    assert!(
        read_back::series_of_or_none(&mut tsdb.data(), "m")
            .await?
            .is_empty()
    );
    Ok(())
}
