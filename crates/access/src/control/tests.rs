use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn control(policy: &str) -> (AccessControl, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, policy).unwrap();
    let options = AccessOptions {
        policy: Some(path),
        ..AccessOptions::default()
    };
    (AccessControl::open(options).unwrap(), folder)
}

fn headers(authorization: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, authorization.parse().unwrap());
    headers
}

#[test]
fn without_a_policy_nothing_is_checked() {
    let control = AccessControl::default();
    let mut headers = headers("Bearer x");
    let identity = control.identify(&mut headers, None).unwrap();
    assert!(headers.contains_key(AUTHORIZATION), "it may be for somebody else");
    let access = control.admit_grpc(&identity, "/oxtsdb.data.v1.DataService/Write");
    assert!(access.unwrap().metrics.is_none());
    assert!(control.admit_grpc(&identity, "/a.service/Of_another").is_ok());
    assert!(control.admit_telnet(Ipv4Addr::new(10, 0, 0, 1).into()).is_ok());
}

#[test]
fn health_needs_no_right_and_unknown_methods_cannot_be_granted() {
    let (control, _folder) = control("[[rule]]\nwho=['anonymous']\nmay=['read','write','administer']");
    let anonymous = Identity::anonymous();
    let admit = |path: &str| control.admit_grpc(&anonymous, path);
    assert!(admit("/grpc.health.v1.Health/Check").is_ok());
    assert!(admit("/oxtsdb.data.v1.DataService/Write").is_ok());
    for unknown in [
        "/oxtsdb.data.v1.DataService/write",
        "/grpc.health.v1.HealthX/Check",
        "/",
        "",
    ] {
        let refusal = admit(unknown).unwrap_err();
        assert!(
            matches!(refusal, Refusal::NotGranted { .. }),
            "{unknown}: {refusal}"
        );
    }
    assert_eq!(control.refusals().all()[1], ("not_granted", 4));
}

#[test]
fn callers_without_administration_see_their_own_queries() {
    let rules =
        "[[rule]]\nwho=['anonymous']\nmay=['read']\n[[rule]]\nwho=['telnet']\nmay=['read','administer']";
    let (control, _folder) = control(rules);
    let queries_of = |identity: &Identity, path| control.admit_grpc(identity, path).unwrap().queries_of;
    let (reader, operator) = (Identity::anonymous(), Identity::telnet());
    for path in [
        "/oxtsdb.data.v1.DataService/Query",
        "/oxtsdb.data.v1.DataAdminService/ListQueries",
    ] {
        assert_eq!(queries_of(&reader, path).as_deref(), Some("anonymous"));
        assert_eq!(queries_of(&operator, path), None);
    }
    let cancel = "/oxtsdb.data.v1.DataAdminService/CancelQuery";
    assert!(control.admit_grpc(&reader, cancel).is_err());
    assert!(queries_of(&operator, cancel).is_none());
    assert!(
        AccessControl::default()
            .admit_grpc(&reader, cancel)
            .unwrap()
            .queries_of
            .is_none()
    );
}

#[test]
fn refused_metrics_are_shown_without_control_characters() {
    let (control, _folder) = control("[[rule]]\nwho=['anonymous']\nmay=['write']\nmetrics=['app.']");
    let access = control.admit_grpc(&Identity::anonymous(), "/oxtsdb.data.v1.DataService/Write");
    let scope = access.unwrap().metrics.unwrap();
    assert!(scope.check("app.m").is_ok());
    let refusal = scope
        .check("x\n2026-01-01 ERROR forged\u{1b}[0m")
        .unwrap_err()
        .to_string();
    assert_eq!(
        refusal,
        "`anonymous` may not write metric `x\\n2026-01-01 ERROR forged\\u{1b}[0m`"
    );
    let long = scope.check(&"x".repeat(10_000)).unwrap_err().to_string();
    assert!(long.len() < 300 && long.ends_with("…`"), "{long}");
}

#[test]
fn metrics_of_tsuids_are_refused_alike_with_and_without_a_name() {
    let (control, _folder) = control("[[rule]]\nwho=['anonymous']\nmay=['read']\nmetrics=['app.']");
    let access = control.admit_grpc(&Identity::anonymous(), "/oxtsdb.data.v1.DataService/Query");
    let scope = access.unwrap().metrics.unwrap();
    assert_eq!(scope.check_uid("000001", Some("app.m")), Ok(()));
    let refusals = [Some("secret.m"), None].map(|metric| scope.check_uid("00002A", metric).unwrap_err());
    assert_eq!(refusals[0], refusals[1]);
    assert_eq!(
        refusals[0].to_string(),
        "`anonymous` may not read the metric with UID 00002A"
    );
    assert_eq!(
        scope.refuse_global_annotations().to_string(),
        "`anonymous` may read some metrics only, not global annotations"
    );
    let counts = control.refusals().all();
    assert_eq!((counts[1], counts[2]), (("not_granted", 1), ("metric", 2)));
}

#[test]
fn tokens_are_removed_and_not_repeated() {
    let (control, _folder) = control("");
    let mut headers = headers("Bearer very-secret");
    let refusal = control.identify(&mut headers, None).unwrap_err();
    assert!(!headers.contains_key(AUTHORIZATION));
    assert_eq!(
        refusal.to_string(),
        "invalid credentials: the server accepts no tokens (--jwks)"
    );
    let status = refusal.to_status();
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
    assert_eq!(control.refusals().all()[0], ("unauthenticated", 1));
    let broken = PeerCertificate::from_der(b"no certificate");
    assert!(control.identify(&mut HeaderMap::new(), Some(&broken)).is_err());
}

#[test]
fn telnet_is_for_the_same_machine() {
    let (control, _folder) = control("telnet='loopback'");
    for local in [
        Ipv4Addr::LOCALHOST.into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
    ] {
        assert_eq!(control.admit_telnet(local), Ok(()));
    }
    let other = control
        .admit_telnet(Ipv4Addr::new(10, 0, 0, 1).into())
        .unwrap_err();
    assert!(other.to_string().contains("of the same machine only"), "{other}");
}
