use super::*;
use crate::operation::{by_grpc_path, by_http_path};

const WRITE: &str = "/oxtsdb.data.v1.DataService/Write";
const QUERY: &str = "/oxtsdb.data.v1.DataService/Query";
const RENAME: &str = "/oxtsdb.uid.v1.UidService/RenameUid";

fn error(text: &str) -> String {
    Policy::parse(text).unwrap_err().to_string()
}

fn caller(names: &[&str]) -> Identity {
    Identity::from_names(names.iter().map(|name| (*name).into()).collect())
}

fn decide(policy: &Policy, names: &[&str], path: &str) -> Decision {
    policy.decide(&caller(names), by_grpc_path(path).unwrap())
}

fn grants(policy: &Policy, names: &[&str], path: &str) -> bool {
    decide(policy, names, path) == Decision::Granted(Metrics::All)
}

#[test]
fn refuses_what_no_rule_grants() {
    let policy = Policy::parse("").unwrap();
    assert!(!grants(&policy, &["sub:alice"], WRITE));
    assert!(!policy.serves_telnet());
    let policy = Policy::parse("[[rule]]\nwho=['sub:alice']\nmay=['read']").unwrap();
    assert!(grants(&policy, &["sub:alice"], QUERY));
    assert!(!grants(&policy, &["sub:bob"], QUERY));
    let rules = vec!["rule 1".into()];
    assert_eq!(
        decide(&policy, &["sub:alice"], WRITE),
        Decision::Refused { rules }
    );
}

#[test]
fn grants_by_name_beginning_and_group() {
    let policy = Policy::parse(
        "[groups]\nops=['sub:alice','san:ops-*']\n\
         [[rule]]\nwho=['@ops']\nmay=['administer']\n\
         [[rule]]\nwho=['*']\nmay=['read']\n\
         [[rule]]\nwho=['group:writers']\nmay=['write']",
    )
    .unwrap();
    for operator in ["sub:alice", "san:ops-1"] {
        assert!(grants(&policy, &[operator], RENAME), "{operator}");
    }
    for other in ["san:alice", "sub:alice2", "san:op", "sub:san:ops-1", "anonymous"] {
        assert!(!grants(&policy, &[other], RENAME), "{other}");
    }
    assert!(grants(&policy, &["sub:anyone"], QUERY));
    assert!(!grants(&policy, &["anonymous"], QUERY));
    assert!(!grants(&policy, &["telnet"], QUERY));
    assert!(grants(&policy, &["sub:carol", "group:writers"], WRITE));
    assert!(!grants(&policy, &["sub:carol"], WRITE));
}

#[test]
fn grants_services_methods_and_endpoints() {
    let policy = Policy::parse(
        "[[rule]]\nwho=['sub:a']\nmay=['read','write']\non=['oxtsdb.data.v1.DataService','/api/put']\n\
         [[rule]]\nwho=['sub:b']\nmay=['read']\non=['oxtsdb.data.v1.DataService/Query']",
    )
    .unwrap();
    assert!(grants(&policy, &["sub:a"], WRITE) && grants(&policy, &["sub:a"], QUERY));
    assert!(!grants(
        &policy,
        &["sub:a"],
        "/oxtsdb.uid.v1.UidService/LookupUids"
    ));
    assert!(grants(&policy, &["sub:b"], QUERY));
    assert!(!grants(
        &policy,
        &["sub:b"],
        "/oxtsdb.data.v1.DataService/QueryLast"
    ));
    let http = |path, method: http::Method| {
        let operation = by_http_path(path).unwrap().operation(&method, true);
        policy.decide(&caller(&["sub:a"]), &operation) == Decision::Granted(Metrics::All)
    };
    assert!(http("/api/put", http::Method::POST));
    assert!(!http("/api/rollup", http::Method::POST));
    assert!(!http("/api/query", http::Method::DELETE));
}

#[test]
fn limits_metrics_by_prefix() {
    let policy = Policy::parse(
        "[[rule]]\nname='sys'\nwho=['sub:a']\nmay=['write']\nmetrics=['sys.','sys.cpu','net']\n\
         [[rule]]\nname='app'\nwho=['sub:a']\nmay=['write']\nmetrics=['app.']\non=['grpc']",
    )
    .unwrap();
    let Decision::Granted(Metrics::Prefixes { prefixes, rules }) = decide(&policy, &["sub:a"], WRITE) else {
        panic!("granted for some metrics");
    };
    assert_eq!(rules, ["sys".into(), "app".into()]);
    for metric in ["sys.", "sys.cpu.user", "sys.mem", "net", "network", "app.x"] {
        assert!(prefixes.cover(metric), "{metric}");
    }
    for metric in ["", "sys", "ne", "apple", "a", "zzz", "sz"] {
        assert!(!prefixes.cover(metric), "{metric}");
    }
    // Operations that do not check metrics are not granted by such a rule.
    let assign = "/oxtsdb.uid.v1.UidService/GetOrCreateUids";
    assert!(!grants(&policy, &["sub:a"], assign));
}

#[test]
fn errors_name_the_entry_and_the_field() {
    let rule = |rest: &str| {
        error(&format!(
            "[[rule]]\nname='r'\nwho=['sub:a']\nmay=['read']\n{rest}"
        ))
    };
    assert_eq!(
        rule("on=['oxtsdb.data.v1.DataService/Querry']"),
        "r: on: unknown gRPC method `oxtsdb.data.v1.DataService/Querry`, did you mean \
         `oxtsdb.data.v1.DataService/Query`?"
    );
    assert_eq!(
        rule("on=['/api/fetch']"),
        "r: on: unknown HTTP endpoint `/api/fetch`"
    );
    assert_eq!(
        rule("on=['telnet/diediedie']"),
        "r: on: unknown telnet command `telnet/diediedie`"
    );
    assert_eq!(rule("on=['Data']"), "r: on: unknown gRPC service `Data`");
    assert_eq!(
        rule("on=['/api/put']"),
        "r: on: `/api/put` needs write, which `may` does not have"
    );
    assert_eq!(
        rule("metrics=['a']\non=['/api/config']"),
        "r: on: `/api/config` does not check metrics, a rule with `metrics` cannot grant it"
    );
    assert_eq!(
        rule("metrics=[]"),
        "r: metrics: has 0 elements, expected 1 to 1000"
    );
    assert_eq!(
        rule("metrics=['']"),
        "r: metrics: an element has 0 characters, expected 1 to 1000"
    );
    assert!(
        rule("deny=true").starts_with("line 5: unknown field `deny`"),
        "{}",
        rule("deny=true")
    );
    assert_eq!(
        error("[[rule]]\nwho=['alice']\nmay=['read']"),
        "rule 1: who: `alice` is no caller, expected san:NAME, sub:NAME, group:NAME, anonymous, telnet or *"
    );
    assert_eq!(
        error("[[rule]]\nwho=['sub:*a*']\nmay=['read']"),
        "rule 1: who: `sub:*a*` has a `*` before its end"
    );
    assert_eq!(
        error("[groups]\nops=['sub:a']\n[[rule]]\nwho=['@opps']\nmay=['read']"),
        "rule 1: who: unknown group `@opps`, did you mean `ops`?"
    );
    assert_eq!(
        error("[[rule]]\nwho=['sub:a']\nmay=['all']"),
        "rule 1: may: `all` is not a right, expected read, write or administer"
    );
    assert_eq!(
        error("[[rule]]\nname='x'\nwho=['sub:a']\nmay=['administer']\nmetrics=['a']\non=['grpc']"),
        "x: metrics: none of the operations of this rule checks metrics"
    );
    assert_eq!(
        error("telnet='on'"),
        "file: telnet: `on` is unknown, expected off or loopback"
    );
}
