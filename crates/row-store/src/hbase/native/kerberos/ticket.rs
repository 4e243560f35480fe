//! Tickets of a KDC.

use kerbcore::KerberosKey;
use kerbcore::types::PrincipalName;

/// The type of the name of a server with a host.
pub(super) const NT_SRV_HST: i32 = 3;

/// A ticket with its key.
#[derive(Debug)]
pub(in super::super) struct Ticket {
    pub(super) ticket: kerbcore::messages::Ticket,
    pub(super) key: KerberosKey,
    /// The client and its realm, as the KDC names them.
    pub(super) client: PrincipalName,
    pub(super) realm: String,
    /// The server, for messages.
    pub(super) server: String,
    /// When it was requested and when it ends, in seconds since the epoch.
    pub(super) begins: u64,
    pub(super) ends: u64,
}

impl Ticket {
    /// Whether it has a fifth of its lifetime left.
    pub(super) const fn is_fresh(&self, now: u64) -> bool {
        let lifetime = self.ends.saturating_sub(self.begins);
        now < self.ends.saturating_sub(lifetime / 5)
    }

    /// The server's principal.
    pub(in super::super) fn server(&self) -> &str {
        &self.server
    }

    /// When it ends, in seconds since the epoch.
    pub(in super::super) const fn ends(&self) -> u64 {
        self.ends
    }

    pub(super) const fn is_valid(&self, now: u64) -> bool {
        now < self.ends
    }
}

#[cfg(test)]
impl Ticket {
    /// A ticket for `hbase/a@R.TEST` that no KDC has issued.
    pub(super) fn for_tests(key: KerberosKey) -> Self {
        let server = PrincipalName {
            name_type: NT_SRV_HST,
            name_string: vec!["hbase".to_owned(), "a".to_owned()],
        };
        Self {
            ticket: kerbcore::messages::Ticket {
                tkt_vno: 5,
                realm: "R.TEST".to_owned(),
                sname: server.clone(),
                enc_part: kerbcore::types::EncryptedData {
                    etype: key.enctype().to_i32(),
                    kvno: None,
                    cipher: Vec::new(),
                },
            },
            key,
            client: server,
            realm: "R.TEST".to_owned(),
            server: "hbase/a@R.TEST".to_owned(),
            begins: 0,
            ends: 10,
        }
    }
}
