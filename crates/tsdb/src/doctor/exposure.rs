//! Ports that others can reach without protection.

use super::finding::{Finding, Level};
use super::server::Server;

pub(super) fn check(server: &Server) -> Vec<Finding> {
    let facts = &server.facts;
    let mut findings = Vec::new();
    for listener in &facts.listeners {
        let port = format!("{} ({})", listener.address, listener.name);
        let new =
            |level, message, advice: &str| Finding::new(level, "exposure", &server.url, message, advice);
        findings.push(match (listener.address.ip().is_loopback(), listener.has_tls, facts.has_policy) {
            (true, ..) => Finding::ok("exposure", &server.url, format!("{port} is for this machine only")),
            (false, true, true) => Finding::ok("exposure", &server.url, format!("{port} has TLS and rights")),
            (false, true, false) if listener.requires_certificates => {
                Finding::ok("exposure", &server.url, format!("{port} needs certificates of clients"))
            }
            (false, true, false) => new(
                Level::Note,
                format!("{port} has TLS, but every caller may do everything"),
                "set --access-policy, or require certificates of clients (--tls-client-ca)",
            ),
            (false, false, true) => new(
                Level::Warning,
                format!("{port} has rights but no TLS: tokens and points can be read on the way"),
                "set --tls-certificate and --tls-key, or let only a proxy or a mesh with TLS reach the port",
            ),
            (false, false, false) => new(
                Level::Warning,
                format!("{port} has neither TLS nor rights: the network alone protects it"),
                "set --tls-certificate and --access-policy, or let only a proxy or a mesh with TLS reach the port",
            ),
        });
    }
    if let Some(admin) = facts.admin.filter(|admin| !admin.ip().is_loopback()) {
        findings.push(Finding::new(
            Level::Note,
            "exposure",
            &server.url,
            format!("{admin} (admin) has no rights, and shows running queries and settings"),
            "let only probes and scrapers reach it",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use oxtsdb_server::admin::deployment::ListenerFacts;

    use super::super::server::tests::server;
    use super::*;

    #[test]
    fn ports_of_other_machines_need_tls_and_rights() {
        let level = |address: &str, has_tls, has_policy| {
            let mut server = server("");
            server.facts.has_policy = has_policy;
            server.facts.listeners = vec![ListenerFacts {
                name: "data".to_owned(),
                address: address.parse().unwrap(),
                has_tls,
                requires_certificates: false,
            }];
            check(&server)[0].level
        };
        assert_eq!(level("127.0.0.1:4243", false, false), Level::Ok);
        assert_eq!(level("[::1]:4243", false, false), Level::Ok);
        assert_eq!(level("0.0.0.0:4243", true, true), Level::Ok);
        assert_eq!(level("0.0.0.0:4243", true, false), Level::Note);
        assert_eq!(level("10.0.0.1:4243", false, true), Level::Warning);
        assert_eq!(level("[::]:4243", false, false), Level::Warning);
    }

    #[test]
    fn ports_that_need_certificates_are_protected() {
        let mut server = server("");
        server.facts.listeners = vec![ListenerFacts {
            name: "data".to_owned(),
            address: "0.0.0.0:4243".parse().unwrap(),
            has_tls: true,
            requires_certificates: true,
        }];
        assert_eq!(check(&server)[0].level, Level::Ok);
    }

    #[test]
    fn admin_listeners_of_other_machines_are_noted() {
        let mut server = server("");
        server.facts.admin = Some("127.0.0.1:4245".parse().unwrap());
        assert_eq!(check(&server), []);
        server.facts.admin = Some("0.0.0.0:4245".parse().unwrap());
        assert_eq!(check(&server)[0].level, Level::Note);
    }
}
