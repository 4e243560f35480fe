//! Kerberos: tickets for HBase's servers, by a keytab.
//!
//! ```text
//!   keytab ─► AS exchange ─► ticket-granting ticket ─► TGS exchange ─► ticket for a server ─► SASL (`sasl`)
//!             `kdc`                                    `kdc`                                   `context`
//! ```
//!
//! The crate kerbcore has the cryptography and the encoding of messages. Tickets are renewed when a connection is
//! opened after four fifths of their lifetime, by new exchanges with the keytab as it is then; an open connection needs no
//! ticket. While the KDC cannot be reached, a ticket is used until it expires.
//!
//! Source: RFC 4120, RFC 4121, RFC 4752; Hadoop 3.4, `UserGroupInformation`; HBase 2.6.1, `SecurityInfo`.

mod context;
mod kdc;
mod keytab;
mod krb5_conf;
mod principal;
#[cfg(test)]
mod tests;
mod ticket;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

#[cfg(test)]
pub(super) use self::context::testing;
pub(super) use self::context::{Incoming, Outgoing, Pending};
use self::kdc::{Failure, Kdcs};
pub use self::principal::Principal;
pub(super) use self::ticket::Ticket;

/// How long a rejection by the KDC counts: many attempts with a wrong key may lock an account.
const REJECTION: Duration = Duration::from_secs(30);

/// Who the client is, and by which names and keys it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KerberosConfig {
    /// The client.
    pub principal: Principal,
    /// A keytab with a key of it, as `ktutil` and `kadmin` write it; read for each login.
    pub keytab: PathBuf,
    /// HBase's servers (`hbase.regionserver.kerberos.principal`, `hbase.master.kerberos.principal`); the instance `_HOST`
    /// stands for the host of the server.
    pub server_principal: Principal,
    /// Addresses of KDCs, as `host[:port]`; none: the KDCs of the realm in `krb5.conf`.
    pub kdcs: Vec<String>,
}

/// Tickets of a client.
#[derive(Debug)]
pub(super) struct Kerberos {
    config: KerberosConfig,
    kdcs: Kdcs,
    /// Held during exchanges: one caller gets a ticket for all.
    tickets: tokio::sync::Mutex<Tickets>,
}

#[derive(Debug, Default)]
struct Tickets {
    /// The ticket-granting ticket.
    granting: Option<Arc<Ticket>>,
    /// By the server's principal.
    of_servers: HashMap<String, Arc<Ticket>, FxBuildHasher>,
    /// The last rejection by the KDC.
    rejection: Option<(Instant, String)>,
}

impl Kerberos {
    pub(super) fn new(config: KerberosConfig) -> Self {
        Self {
            kdcs: Kdcs::new(&config.principal.realm, config.kdcs.clone()),
            config,
            tickets: tokio::sync::Mutex::default(),
        }
    }

    /// The client.
    pub(super) const fn principal(&self) -> &Principal {
        &self.config.principal
    }

    /// Gets a ticket-granting ticket, unless there is one.
    ///
    /// # Errors
    ///
    /// The cause, and the setting that it depends on.
    pub(super) async fn log_in(&self) -> Result<(), String> {
        let mut tickets = self.tickets.lock().await;
        self.granting(&mut tickets).await.map(|_| ())
    }

    /// A ticket for the server of a host.
    ///
    /// # Errors
    ///
    /// As [`Kerberos::log_in`].
    pub(super) async fn ticket(&self, host: &str) -> Result<Arc<Ticket>, String> {
        let server = self.config.server_principal.of_host(host);
        let name = server.to_string();
        let mut tickets = self.tickets.lock().await;
        let held = tickets.of_servers.get(&name).cloned();
        if let Some(ticket) = held.clone().filter(|ticket| ticket.is_fresh(now())) {
            return Ok(ticket);
        }
        let renewed = async {
            let granting = self.granting(&mut tickets).await?;
            let granted = self.kdcs.ticket(&granting, &self.config.principal, &server).await;
            granted.map_err(Failure::into_text)
        };
        match (renewed.await, held) {
            (Ok(ticket), _) => {
                let ticket = Arc::new(ticket);
                tickets.of_servers.retain(|_, other| other.is_valid(now()));
                tickets.of_servers.insert(name, Arc::clone(&ticket));
                Ok(ticket)
            }
            (Err(reason), Some(ticket)) if ticket.is_valid(now()) => {
                tracing::warn!(server = name, %reason, "the ticket could not be renewed and is used until it expires");
                Ok(ticket)
            }
            (Err(reason), _) => Err(reason),
        }
    }

    /// The ticket-granting ticket.
    async fn granting(&self, tickets: &mut Tickets) -> Result<Arc<Ticket>, String> {
        if let Some(ticket) = tickets.granting.clone().filter(|ticket| ticket.is_fresh(now())) {
            return Ok(ticket);
        }
        let rejected = tickets.rejection.as_ref();
        let reason = match rejected.filter(|(at, _)| at.elapsed() < REJECTION) {
            Some((_, reason)) => reason.clone(),
            None => match self
                .kdcs
                .log_in(&self.config.principal, &self.config.keytab)
                .await
            {
                Ok(ticket) => {
                    tickets.rejection = None;
                    return Ok(Arc::clone(tickets.granting.insert(Arc::new(ticket))));
                }
                Err(failure) => {
                    let is_rejection = matches!(failure, Failure::Rejected(_));
                    let reason = failure.into_text();
                    if is_rejection {
                        tickets.rejection = Some((Instant::now(), reason.clone()));
                    }
                    reason
                }
            },
        };
        match &tickets.granting {
            Some(ticket) if ticket.is_valid(now()) => Ok(Arc::clone(ticket)),
            _ => Err(reason),
        }
    }
}

/// Seconds since the epoch.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
