//! Exchanges with a KDC: a ticket-granting ticket for a key of a keytab, and tickets for servers.
//!
//! Over TCP, which all KDCs have: u32 length | message. A request goes to one KDC after the other until a KDC responds.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use kerbcore::KerberosKey;
use kerbcore::client::{
    KU_AS_REP_ENC_PART, KU_AS_REQ_PA_ENC_TS, KU_TGS_REP_ENC_PART, KU_TGS_REQ_AUTH, KU_TGS_REQ_AUTH_CKSUM,
    NT_PRINCIPAL, PA_ETYPE_INFO2, PA_TGS_REQ, encode_pa_enc_ts_enc, krbtgt_sname, pa_enc_timestamp,
    parse_enc_kdc_rep_part, parse_etype_info2,
};
use kerbcore::der::{Der, DerError, TAG_SEQUENCE, one_or, tlv};
use kerbcore::messages::{KdcRep, KdcReq, KdcReqBody, KrbError};
use kerbcore::types::{EncryptedData, KerberosTime, PaData, PrincipalName};
use tokio::net::TcpStream;

use super::context::{ApRequest, Clock, checksum};
use super::keytab::{self, ENCRYPTIONS, Key};
use super::principal::Principal;
use super::ticket::Ticket;
use super::{krb5_conf, now, ticket};
use crate::hbase::native::address::with_port;
use crate::hbase::native::framed;

/// The port of a KDC, if an address has none.
const PORT: u16 = 88;

/// The longest response, in bytes.
const MAX_RESPONSE: u32 = 1 << 20;

/// How long one KDC may take to respond.
const TIME: Duration = Duration::from_secs(3);

/// The end of a ticket's life that is requested: the KDC's limit applies.
const AS_LONG_AS_ALLOWED: &str = "20370913024805Z";

const AS_REQ: i32 = 10;
const TGS_REQ: i32 = 12;

// Codes of errors, RFC 4120 section 7.5.9.
const C_PRINCIPAL_UNKNOWN: i32 = 6;
const S_PRINCIPAL_UNKNOWN: i32 = 7;
const ETYPE_NOSUPP: i32 = 14;
const CLIENT_REVOKED: i32 = 18;
const KEY_EXPIRED: i32 = 23;
const PREAUTH_FAILED: i32 = 24;
const PREAUTH_REQUIRED: i32 = 25;
const SVC_UNAVAILABLE: i32 = 29;
const SKEW: i32 = 37;
const WRONG_REALM: i32 = 68;

/// Why there is no ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// By the keytab, or no KDC can be reached: the next attempt may succeed.
    Temporary(String),
    /// A KDC rejects the client or its key.
    Rejected(String),
}

impl Failure {
    pub(super) fn into_text(self) -> String {
        let (Self::Temporary(text) | Self::Rejected(text)) = self;
        format!("Kerberos: {text}")
    }
}

impl From<DerError> for Failure {
    fn from(error: DerError) -> Self {
        Self::Temporary(format!("the response of the KDC is invalid: {error}"))
    }
}

/// A response of a KDC.
struct Response {
    kdc: String,
    message: Vec<u8>,
}

/// The KDCs of a realm.
#[derive(Debug)]
pub(super) struct Kdcs {
    realm: String,
    /// `host[:port]`; none: the KDCs of `krb5.conf`.
    addresses: Vec<String>,
    /// The KDC that responded last; it gets the next request first.
    first: AtomicUsize,
}

impl Kdcs {
    pub(super) fn new(realm: &str, addresses: Vec<String>) -> Self {
        Self {
            realm: realm.to_owned(),
            addresses,
            first: AtomicUsize::new(0),
        }
    }

    /// The AS exchange: a ticket-granting ticket for a key of a keytab.
    ///
    /// # Errors
    ///
    /// The cause, with the setting that it depends on.
    pub(super) async fn log_in(&self, client: &Principal, keytab: &Path) -> Result<Ticket, Failure> {
        let (keytab, owner) = (keytab.to_owned(), client.clone());
        let file = keytab.clone();
        let keys = reading(move || keytab::keys(&file, &owner)).await?;
        let body = self.body(
            Some(client.name(NT_PRINCIPAL)),
            &self.realm,
            krbtgt_sname(&self.realm),
            &requested_types(&keys),
        );
        let request = |padata| KdcReq {
            msg_type: AS_REQ,
            padata,
            req_body: body.clone(),
        };
        let requested = format!("the client `{client}`");
        let begins = now();
        let mut response = self.exchange(&request(Vec::new())).await?;
        if let Some(error) = error_of(&response)? {
            if error.error_code != PREAUTH_REQUIRED {
                return Err(rejection(&response.kdc, &error, &requested));
            }
            let key = wanted_key(&keys, &error)?;
            let clock = Clock::now();
            let time = key.key.encrypt(
                KU_AS_REQ_PA_ENC_TS,
                &encode_pa_enc_ts_enc(&clock.time, clock.micros),
            );
            let time = EncryptedData {
                etype: key.key.enctype().to_i32(),
                kvno: Some(key.version),
                cipher: time,
            };
            response = self.exchange(&request(vec![pa_enc_timestamp(&time)])).await?;
            if let Some(error) = error_of(&response)? {
                return Err(rejection(&response.kdc, &error, &requested));
            }
        }
        let reply = KdcRep::decode(&response.message)?;
        let encryption = reply.enc_part.etype;
        let version = reply.enc_part.kvno.filter(|version| *version != 0);
        let of_type = keys.iter().filter(|key| key.key.enctype().to_i32() == encryption);
        // Some KDCs count versions in 8 bits.
        let is_version = |key: &&Key| {
            version.is_none_or(|version| key.version == version || key.version & 0xff == version)
        };
        let Some(key) = of_type.filter(is_version).max_by_key(|key| key.version) else {
            return Err(Failure::Rejected(format!(
                "{}: the key of `{client}` has version {} and encryption type {encryption}, which {} does not have \
                 (--hbase-kerberos-keytab)",
                response.kdc,
                version.unwrap_or_default(),
                keytab.display()
            )));
        };
        granted(reply, &key.key, KU_AS_REP_ENC_PART, &body, begins)
    }

    /// The TGS exchange: a ticket for a server.
    ///
    /// # Errors
    ///
    /// As [`Kdcs::log_in`].
    pub(super) async fn ticket(
        &self,
        granting: &Ticket,
        client: &Principal,
        server: &Principal,
    ) -> Result<Ticket, Failure> {
        let begins = now();
        let body = self.body(
            None,
            server.realm(),
            server.name(ticket::NT_SRV_HST),
            &ENCRYPTIONS.map(kerbcore::Enctype::to_i32),
        );
        let request = ApRequest {
            ticket: granting,
            usage: KU_TGS_REQ_AUTH,
            checksum: checksum(&granting.key, KU_TGS_REQ_AUTH_CKSUM, &body.encode()),
            subkey: None,
            sequence: None,
            options: 0,
        };
        let request = KdcReq {
            msg_type: TGS_REQ,
            padata: vec![PaData {
                padata_type: PA_TGS_REQ,
                padata_value: request.encode(&Clock::now()),
            }],
            req_body: body.clone(),
        };
        let response = self.exchange(&request).await?;
        if let Some(error) = error_of(&response)? {
            let requested = format!("the server `{server}` for `{client}`");
            return Err(rejection(&response.kdc, &error, &requested));
        }
        let reply = KdcRep::decode(&response.message)?;
        granted(reply, &granting.key, KU_TGS_REP_ENC_PART, &body, begins)
    }

    fn body(
        &self,
        client: Option<PrincipalName>,
        realm: &str,
        server: PrincipalName,
        encryptions: &[i32],
    ) -> KdcReqBody {
        let [a, b, c, d] = super::context::random();
        KdcReqBody {
            kdc_options: 0,
            cname: client,
            realm: realm.to_owned(),
            sname: Some(server),
            from: None,
            till: KerberosTime(AS_LONG_AS_ALLOWED.to_owned()),
            rtime: None,
            // Positive, as some KDCs read a signed number.
            nonce: u32::from_be_bytes([a & 0x7f, b, c, d]),
            etypes: encryptions.to_vec(),
            addresses: None,
            enc_authorization_data: None,
            additional_tickets: None,
        }
    }

    /// Sends a request to the KDCs in turn until one responds.
    async fn exchange(&self, request: &KdcReq) -> Result<Response, Failure> {
        let addresses = match &self.addresses[..] {
            [] => {
                let realm = self.realm.clone();
                reading(move || krb5_conf::kdcs(&realm)).await?
            }
            addresses => addresses.to_vec(),
        };
        let request = request.encode();
        let first = self.first.load(Ordering::Relaxed) % addresses.len().max(1);
        let mut findings = Vec::new();
        let in_turn = addresses.iter().enumerate().cycle().skip(first);
        for (index, kdc) in in_turn.take(addresses.len()) {
            let kdc = with_port(kdc, PORT);
            let finding = match tokio::time::timeout(TIME, send(&kdc, &request)).await {
                Ok(Ok(message)) => {
                    let response = Response { kdc, message };
                    match error_of(&response)? {
                        Some(error) if error.error_code == SVC_UNAVAILABLE => "is not available".to_owned(),
                        _ => {
                            self.first.store(index, Ordering::Relaxed);
                            return Ok(response);
                        }
                    }
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no response within {TIME:?}"),
            };
            findings.push(format!("{}: {finding}", with_port(&addresses[index], PORT)));
        }
        Err(Failure::Temporary(format!(
            "no KDC of the realm `{}` responds (--hbase-kerberos-kdc): {}",
            self.realm,
            findings.join("; ")
        )))
    }
}

async fn send(kdc: &str, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(kdc).await?;
    framed::write(&mut stream, request).await?;
    framed::read(&mut stream, MAX_RESPONSE, "a KDC").await
}

/// Reads a file, off the threads of the runtime.
async fn reading<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Failure> {
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.unwrap_or_else(|error| Err(error.to_string()));
    read.map_err(Failure::Temporary)
}

/// The error that a response is; `None`: it is a ticket.
fn error_of(response: &Response) -> Result<Option<KrbError>, DerError> {
    let is_error = response.message.first() == Some(&kerbcore::der::application_tag(30));
    is_error.then(|| KrbError::decode(&response.message)).transpose()
}

/// The error of a rejected request, with the setting that it depends on.
fn rejection(kdc: &str, error: &KrbError, requested: &str) -> Failure {
    let reason = match error.error_code {
        C_PRINCIPAL_UNKNOWN => "it does not know the client (--hbase-kerberos-principal)",
        S_PRINCIPAL_UNKNOWN => {
            "it does not know the server (--hbase-kerberos-server-principal, where `_HOST` is the host by which HBase names the server)"
        }
        ETYPE_NOSUPP => "it has no key of an encryption type that the client supports (17 to 20, AES)",
        CLIENT_REVOKED => "the client is disabled or locked",
        KEY_EXPIRED => "the key of the client has expired",
        PREAUTH_FAILED => "the key in the keytab is not the client's (--hbase-kerberos-keytab)",
        SKEW => "the clocks of this machine and of the KDC differ by too much",
        WRONG_REALM => "it has another realm (--hbase-kerberos-kdc)",
        _ => "",
    };
    let text = error.e_text.as_deref().unwrap_or_default();
    let detail = match (reason, text) {
        ("", text) => text.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, text) => format!("{reason}: {text}"),
    };
    let mut message = format!(
        "the KDC {kdc} rejects {requested}: {detail}, error {}",
        error.error_code
    );
    if error.error_code == SKEW {
        message.push_str(&format!("; the KDC's time is {}", error.stime.0));
    }
    match error.error_code {
        // The clock may be set, and a server may be added.
        SKEW | S_PRINCIPAL_UNKNOWN => Failure::Temporary(message),
        _ => Failure::Rejected(message),
    }
}

/// The encryption types of keys, by preference.
fn encryptions(keys: &[Key]) -> Vec<i32> {
    let of_keys = ENCRYPTIONS
        .iter()
        .filter(|encryption| keys.iter().any(|key| key.key.enctype() == **encryption));
    of_keys.map(|encryption| encryption.to_i32()).collect()
}

/// The encryption types of an AS exchange: the KDC takes the first that it has a key of the client of, and any of them
/// for the key of the ticket.
fn requested_types(keys: &[Key]) -> Vec<i32> {
    let mut requested = encryptions(keys);
    let others = ENCRYPTIONS.map(kerbcore::Enctype::to_i32);
    let others = others.into_iter().filter(|other| !requested.contains(other));
    requested.extend(others.collect::<Vec<_>>());
    requested
}

/// The newest key of the first encryption type that the KDC has a key of, too.
fn wanted_key<'a>(keys: &'a [Key], error: &KrbError) -> Result<&'a Key, Failure> {
    let mut wanted = Vec::new();
    if let Some(data) = &error.e_data {
        let mut items = Der::new(one_or(data, TAG_SEQUENCE)?);
        while !items.is_empty() {
            let (_, item) = items.read_tlv()?;
            let item = PaData::decode(&tlv(TAG_SEQUENCE, item))?;
            if item.padata_type == PA_ETYPE_INFO2 {
                wanted.extend(
                    parse_etype_info2(&item.padata_value)?
                        .iter()
                        .map(|entry| entry.etype),
                );
            }
        }
    }
    if wanted.is_empty() {
        wanted = encryptions(keys);
    }
    let of_type = |wanted: &i32| {
        let of_type = keys.iter().filter(|key| key.key.enctype().to_i32() == *wanted);
        of_type.max_by_key(|key| key.version)
    };
    wanted.iter().find_map(of_type).ok_or_else(|| {
        Failure::Rejected(format!(
            "the KDC has keys of the client of the encryption types {wanted:?} only, the keytab of {:?} \
             (--hbase-kerberos-keytab)",
            encryptions(keys)
        ))
    })
}

/// The ticket of a response, which has to be the one that was requested.
fn granted(
    reply: KdcRep,
    key: &KerberosKey,
    usage: u32,
    request: &KdcReqBody,
    begins: u64,
) -> Result<Ticket, Failure> {
    let invalid = |detail: &str| Failure::Temporary(format!("the response of the KDC is invalid: {detail}"));
    if reply.enc_part.etype != key.enctype().to_i32() {
        return Err(invalid("it is encrypted by another type of key"));
    }
    let decrypted = key.decrypt(usage, &reply.enc_part.cipher).map_err(|_| {
        Failure::Rejected(
            "the response cannot be decrypted: the key in the keytab is not the client's (--hbase-kerberos-keytab)"
                .to_owned(),
        )
    })?;
    let part = parse_enc_kdc_rep_part(&decrypted)?;
    let requested = request.sname.as_ref().map(|name| &name.name_string);
    if part.nonce != request.nonce {
        return Err(invalid("it has another nonce than the request"));
    }
    if requested != Some(&part.sname.name_string) || part.srealm != request.realm {
        // A ticket of another realm leads on to that realm's KDC.
        return Err(invalid(&format!(
            "the ticket is for `{}@{}`; servers of other realms are not supported (--hbase-kerberos-server-principal)",
            part.sname.name_string.join("/"),
            part.srealm
        )));
    }
    let ends = seconds(&part.endtime).ok_or_else(|| invalid("the end of the ticket's life is no time"))?;
    let key = KerberosKey::from_i32(part.key.keytype, part.key.keyvalue)
        .map_err(|error| invalid(&error.to_string()))?;
    Ok(Ticket {
        server: format!("{}@{}", part.sname.name_string.join("/"), part.srealm),
        ticket: reply.ticket,
        key,
        client: reply.cname,
        realm: reply.crealm,
        begins,
        ends,
    })
}

/// Seconds since the epoch of `YYYYMMDDHHMMSSZ`.
fn seconds(time: &str) -> Option<u64> {
    if time.len() != "YYYYMMDDHHMMSSZ".len() {
        return None;
    }
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", time).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?;
    u64::try_from(time.timestamp().as_second()).ok()
}

#[cfg(test)]
mod tests {
    use kerbcore::client::unix_to_kerberos_time;

    use super::*;

    #[test]
    fn times_are_read() {
        for time in [0, 951_782_400, 1_709_164_800, 1_795_000_000, 4_102_444_800] {
            assert_eq!(seconds(&unix_to_kerberos_time(time)), Some(time));
        }
        for text in [
            "",
            "20370913024805",
            "2037091302480Z",
            "20371313024805Z",
            "éééééééZ",
            "19691231235959Z",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
