//! Security of connections with HBase's servers: the user or the principal, TLS, certificates.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_access::CertificateSummary;
use oxtsdb_row_store::hbase::{KerberosPeer, Protection, TlsPeer};
use oxtsdb_server::store::HbaseSettings;

use super::super::capacity::validity;
use super::super::finding::{Finding, Level};

const CHECK: &str = "security";

/// Findings about the servers of open connections, and about the client's own certificate.
pub(super) fn check(
    settings: &HbaseSettings,
    tls_peers: &[TlsPeer],
    kerberos_peers: &[KerberosPeer],
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = kerberos_peers.iter().map(server_by_kerberos).collect();
    findings.extend(transport(settings, tls_peers, kerberos_peers));
    findings
}

/// The principal of a server, and the protection of the connection.
fn server_by_kerberos(peer: &KerberosPeer) -> Finding {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = peer.ticket_ends.saturating_sub(now.as_secs());
    let message = format!(
        "Kerberos: the server is `{}`; protection: {}; the ticket is valid for {} h {} min, and renewed by the keytab",
        peer.principal,
        peer.protection,
        left / 3600,
        left % 3600 / 60
    );
    Finding::ok(CHECK, &peer.address, message)
}

/// The user, and the protection of rows on their way to HBase.
fn transport(settings: &HbaseSettings, peers: &[TlsPeer], kerberos_peers: &[KerberosPeer]) -> Vec<Finding> {
    let place = settings.to_string();
    let user = match &settings.kerberos.hbase_kerberos_principal {
        Some(principal) => format!("HBase knows the client as `{principal}`"),
        None => format!("HBase believes the user name `{}`", settings.hbase_user),
    };
    if !settings.tls.hbase_tls {
        // The weakest of all servers.
        let layers = kerberos_peers
            .iter()
            .map(|peer| peer.protection)
            .collect::<Vec<_>>();
        let exposed = match &layers[..] {
            [] => "read and changed",
            layers if layers.contains(&Protection::Authentication) => "read and changed",
            layers if layers.contains(&Protection::Integrity) => "read",
            _ => {
                let message = format!("no TLS, but all requests are encrypted by Kerberos; {user}");
                return vec![Finding::ok(CHECK, &place, message)];
            }
        };
        let advice = match layers.is_empty() {
            true => "set --hbase-tls if HBase has TLS, or let only its servers and clients reach its network",
            false => "set hbase.rpc.protection=privacy in HBase, or --hbase-tls if HBase has TLS",
        };
        let message = format!("no TLS: rows can be {exposed} on the way; {user}");
        return vec![Finding::new(Level::Note, CHECK, &place, message, advice)];
    }
    let client = settings.tls.hbase_tls_certificate.as_deref();
    let presented = match client {
        Some(path) => format!("presents {}", path.display()),
        None => "presents no certificate".to_owned(),
    };
    let mut findings = vec![Finding::ok(
        CHECK,
        &place,
        format!("TLS; the client {presented}; {user}"),
    )];
    findings.extend(peers.iter().map(|peer| {
        let summary = oxtsdb_access::summary(&peer.certificate);
        let advice = "renew the certificate of the server (hbase.rpc.tls.keystore.location)";
        certificate(&peer.address, &format!("{}, ", peer.version), summary, advice)
    }));
    findings.extend(client.map(|path| {
        let advice = "renew the file of --hbase-tls-certificate; it is read again by itself";
        certificate(&path.display().to_string(), "", summary_of(path), advice)
    }));
    findings
}

/// The summary of the first certificate of a file.
fn summary_of(path: &Path) -> Result<CertificateSummary, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let chain = oxtsdb_tls::certificates(&pem)?;
    let first = chain.first().ok_or("has no certificate")?;
    oxtsdb_access::summary(first)
}

/// Whose certificate it is, who issued it, and how long it is valid.
fn certificate(
    server: &str,
    version: &str,
    summary: Result<CertificateSummary, String>,
    advice: &str,
) -> Finding {
    let summary = match summary {
        Ok(summary) => summary,
        Err(reason) => return Finding::new(Level::Warning, CHECK, server, reason, advice),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "shown in days")]
    let left = summary.not_after as f64 - now.as_secs_f64();
    let (level, validity) = validity(left);
    let message = format!(
        "{version}certificate of {}, issued by {}, {validity}",
        summary.subject, summary.issuer
    );
    let advice = if level == Level::Ok { "" } else { advice };
    Finding::new(level, CHECK, server, message, advice)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Settings {
        #[command(flatten)]
        hbase: HbaseSettings,
    }

    fn findings(flags: &[&str], peers: &[TlsPeer]) -> Vec<(Level, String)> {
        let flags = ["settings", "--hbase-masters=m", "--hbase-user=tsd"]
            .iter()
            .chain(flags);
        let settings = Settings::try_parse_from(flags).unwrap().hbase;
        let findings = check(&settings, peers, &[]).into_iter();
        findings.map(|finding| (finding.level, finding.message)).collect()
    }

    #[test]
    fn plain_text_is_noted_with_the_user() {
        let [(level, message)] = &findings(&[], &[])[..] else {
            panic!("one finding")
        };
        assert_eq!(*level, Level::Note);
        assert!(
            message.contains("no TLS") && message.contains("`tsd`"),
            "{message}"
        );
    }

    #[test]
    fn what_kerberos_protects_is_named_with_the_principals() {
        let flags = [
            "settings",
            "--hbase-masters=m",
            "--hbase-kerberos-principal=tsd@R",
            "--hbase-kerberos-keytab=k",
        ];
        let settings = Settings::try_parse_from(flags).unwrap().hbase;
        for (protection, level, text) in [
            (
                Protection::Authentication,
                Level::Note,
                "rows can be read and changed",
            ),
            (Protection::Integrity, Level::Note, "rows can be read on the way"),
            (Protection::Privacy, Level::Ok, "all requests are encrypted"),
        ] {
            let peer = KerberosPeer {
                address: "rs1:16020".to_owned(),
                principal: "hbase/rs1@R".to_owned(),
                protection,
                ticket_ends: 0,
            };
            let [server, transport] = &check(&settings, &[], &[peer])[..] else {
                panic!("two findings")
            };
            let named = format!("`hbase/rs1@R`; protection: {protection}");
            assert!(server.message.contains(&named), "{}", server.message);
            assert_eq!(transport.level, level);
            assert!(transport.message.contains(text), "{}", transport.message);
            assert!(transport.message.ends_with("as `tsd@R`"), "{}", transport.message);
        }
    }

    #[test]
    fn certificates_of_both_sides_are_named() {
        let tls =
            oxtsdb_tls::certificates(include_bytes!("../../../../client/tests/tls/server.pem")).unwrap();
        let peer = TlsPeer {
            address: "rs1:16020".to_owned(),
            version: "TLS 1.2".to_owned(),
            certificate: tls[0].to_vec(),
        };
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../client/tests/tls/server.pem");
        let client = format!("--hbase-tls-certificate={file}");
        let flags = ["--hbase-tls", "--hbase-tls-ca=ca.pem", &client];
        let results = findings(&flags, std::slice::from_ref(&peer));
        assert_eq!(results.len(), 3);
        assert!(
            results.iter().all(|(level, _)| *level == Level::Ok),
            "{results:?}"
        );
        assert!(
            results[0].1.contains(file) && results[0].1.contains("`tsd`"),
            "{results:?}"
        );
        assert!(
            results[1].1.starts_with("TLS 1.2, certificate of CN="),
            "{results:?}"
        );
        assert!(results[2].1.starts_with("certificate of CN="), "{results:?}");
        let damaged = TlsPeer {
            certificate: vec![0],
            ..peer
        };
        assert_eq!(findings(&flags, &[damaged])[1].0, Level::Warning);
    }
}
