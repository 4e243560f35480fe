//! The context of a connection, as GSSAPI has it: both sides prove who they are, and wrap their messages.
//!
//! ```text
//!   client ─► AP-REQ: ticket, authenticator (time, checksum, key of the context) ─► server
//!   client ◄─ AP-REP: the time again, encrypted by the key of the ticket ◄───────── server
//!   wrapped   05 04 | flags | ff | u16 ec | u16 rrc | u64 sequence number | data and checksum, or both encrypted
//! ```
//!
//! kerbcore's own wrapping differs from RFC 4121 without encryption (the key has the usage of encryption, the
//! checksum is of a header with an ec of 0), and accepts messages of the client itself.
//!
//! Source: RFC 4120 sections 5.5 and 7.5; RFC 4121 sections 2, 4.1 and 4.2; RFC 8009 section 6.

use std::time::{SystemTime, UNIX_EPOCH};

use kerbcore::client::{
    AP_OPTS_MUTUAL_REQUIRED, KU_AP_REP_ENC_PART, KU_AP_REQ_AUTH, parse_ap_rep, parse_enc_ap_rep_part,
    unix_to_kerberos_time,
};
use kerbcore::der::{TAG_BIT_STRING, application_tag, encode_integer, encode_sequence, explicit, tlv};
use kerbcore::gss::{
    TOK_ID_AP_REP, TOK_ID_AP_REQ, TOK_ID_KRB_ERROR, initial_context_token, parse_initial_context_token,
};
use kerbcore::messages::KrbError;
use kerbcore::types::{Checksum, EncryptedData, EncryptionKey, KerberosTime, encode_realm};
use kerbcore::{Enctype, KerberosKey};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::ticket::Ticket;

/// The checksum with the options of GSSAPI.
const GSS_CHECKSUM: i32 = 0x8003;

// Its contents, little endian, as an exception: the length of a binding to a channel, and the wanted properties, which are
// mutual authentication (2), no replays (4), order (8), encryption (16) and checksums (32).
const BINDING_LENGTH: [u8; 4] = [16, 0, 0, 0];
const GSS_FLAGS: [u8; 4] = [2 | 4 | 8 | 16 | 32, 0, 0, 0];

const WRAP: [u8; 2] = [5, 4];
const HEADER: usize = 16;

// Flags of a wrapped message.
const BY_ACCEPTOR: u8 = 1;
const SEALED: u8 = 2;
const ACCEPTOR_SUBKEY: u8 = 4;

// Usages of keys for wrapped messages, encrypted or not.
const BY_ACCEPTOR_USAGE: u32 = 22;
const BY_INITIATOR_USAGE: u32 = 24;

/// Random bytes.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's generator fails only if the system has none.
    SystemRandom::new()
        .fill(&mut bytes)
        .unwrap_or_else(|_| std::process::abort());
    bytes
}

/// A moment, as messages have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) time: String,
    pub(super) micros: i32,
}

impl Clock {
    pub(super) fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            time: unix_to_kerberos_time(since_epoch.as_secs()),
            micros: i32::try_from(since_epoch.subsec_micros()).unwrap_or_default(),
        }
    }
}

/// The checksum of data by a key; each encryption type has its own kind.
pub(super) fn checksum(key: &KerberosKey, usage: u32, data: &[u8]) -> Checksum {
    let kind = match key.enctype() {
        Enctype::Aes128CtsHmacSha256_128 => 19,
        Enctype::Aes256CtsHmacSha384_192 => 20,
        other => other.authenticator_cksumtype().unwrap_or_default(),
    };
    Checksum {
        cksumtype: kind,
        checksum: key.checksum(usage, data),
    }
}

/// AP-REQ: presents a ticket.
pub(super) struct ApRequest<'a> {
    pub(super) ticket: &'a Ticket,
    /// The usage of the ticket's key.
    pub(super) usage: u32,
    pub(super) checksum: Checksum,
    pub(super) subkey: Option<&'a KerberosKey>,
    pub(super) sequence: Option<u32>,
    pub(super) options: u32,
}

impl ApRequest<'_> {
    pub(super) fn encode(&self, clock: &Clock) -> Vec<u8> {
        let ticket = self.ticket;
        let subkey = self.subkey.map(|key| EncryptionKey {
            keytype: key.enctype().to_i32(),
            keyvalue: key.key().to_vec(),
        });
        let authenticator = [
            explicit(0, &encode_integer(5)),
            explicit(1, &encode_realm(&ticket.realm)),
            explicit(2, &ticket.client.encode()),
            explicit(3, &self.checksum.encode()),
            explicit(4, &encode_integer(i64::from(clock.micros))),
            explicit(5, &KerberosTime(clock.time.clone()).encode()),
            subkey.map(|key| explicit(6, &key.encode())).unwrap_or_default(),
            self.sequence
                .map(|number| explicit(7, &encode_integer(i64::from(number))))
                .unwrap_or_default(),
        ];
        let authenticator = tlv(application_tag(2), &encode_sequence(&authenticator.concat()));
        let encrypted = EncryptedData {
            etype: ticket.key.enctype().to_i32(),
            kvno: None,
            cipher: ticket.key.encrypt(self.usage, &authenticator),
        };
        let [a, b, c, d] = self.options.to_be_bytes();
        let request = [
            explicit(0, &encode_integer(5)),
            explicit(1, &encode_integer(14)),
            explicit(2, &tlv(TAG_BIT_STRING, &[0, a, b, c, d])),
            explicit(3, &ticket.ticket.encode()),
            explicit(4, &encrypted.encode()),
        ];
        tlv(application_tag(14), &encode_sequence(&request.concat()))
    }
}

/// A context that waits for the server's token.
#[derive(Debug)]
pub(in super::super) struct Pending<'a> {
    ticket: &'a Ticket,
    subkey: KerberosKey,
    clock: Clock,
    sequence: u32,
}

impl<'a> Pending<'a> {
    /// Begins a context; returns the first token.
    ///
    /// # Errors
    ///
    /// A key of the context cannot be made.
    pub(in super::super) fn begin(ticket: &'a Ticket) -> Result<(Self, Vec<u8>), String> {
        let enctype = ticket.key.enctype();
        let mut key = random::<32>().to_vec();
        key.truncate(enctype.key_len());
        let subkey = KerberosKey::new(enctype, key).map_err(|error| error.to_string())?;
        let [a, b, c, d] = random();
        let pending = Self {
            ticket,
            subkey,
            clock: Clock::now(),
            // Positive, as some servers read a signed number.
            sequence: u32::from_be_bytes([a & 0x3f, b, c, d]),
        };
        // Without a binding it is 0.
        let contents = [&BINDING_LENGTH[..], &[0; 16], &GSS_FLAGS].concat();
        let request = ApRequest {
            ticket,
            usage: KU_AP_REQ_AUTH,
            checksum: Checksum {
                cksumtype: GSS_CHECKSUM,
                checksum: contents,
            },
            subkey: Some(&pending.subkey),
            sequence: Some(pending.sequence),
            options: AP_OPTS_MUTUAL_REQUIRED,
        };
        let token = initial_context_token(TOK_ID_AP_REQ, &request.encode(&pending.clock));
        Ok((pending, token))
    }

    /// Reads the server's token, by which it proves that it has the key of the ticket.
    ///
    /// # Errors
    ///
    /// It does not, or it rejects the ticket.
    pub(in super::super) fn complete(self, token: &[u8]) -> Result<Context, String> {
        let server = self.ticket.server();
        let unproven =
            |detail: &dyn std::fmt::Display| format!("the server does not prove to be `{server}`: {detail}");
        let (kind, message) =
            parse_initial_context_token(token).map_err(|_| unproven(&"its token is not one of Kerberos"))?;
        match kind {
            TOK_ID_AP_REP => {}
            TOK_ID_KRB_ERROR => {
                let error = KrbError::decode(&message).map_err(|error| unproven(&error))?;
                return Err(format!(
                    "the server `{server}` rejects the ticket: {}, error {}",
                    error.e_text.unwrap_or_default(),
                    error.error_code
                ));
            }
            _ => return Err(unproven(&"its token is no AP-REP")),
        }
        let encrypted = parse_ap_rep(&message).map_err(|error| unproven(&error))?;
        let part = self
            .ticket
            .key
            .decrypt(KU_AP_REP_ENC_PART, &encrypted.cipher)
            .map_err(|error| unproven(&error))?;
        let part = parse_enc_ap_rep_part(&part).map_err(|error| unproven(&error))?;
        if (&part.ctime, part.cusec) != (&self.clock.time, self.clock.micros) {
            return Err(unproven(&"it responds to another request"));
        }
        let acceptor_subkey = part
            .subkey
            .map(|key| KerberosKey::from_i32(key.keytype, key.keyvalue))
            .transpose()
            .map_err(|error| unproven(&error))?;
        let flags = if acceptor_subkey.is_some() {
            ACCEPTOR_SUBKEY
        } else {
            0
        };
        let key = acceptor_subkey.unwrap_or(self.subkey);
        Ok(Context {
            outgoing: Outgoing {
                key: key.clone(),
                usage: BY_INITIATOR_USAGE,
                flags,
                sequence: u64::from(self.sequence),
            },
            incoming: Incoming {
                key,
                usage: BY_ACCEPTOR_USAGE,
                role: BY_ACCEPTOR,
                sequence: u64::from(part.seq_number.unwrap_or_default()),
            },
        })
    }
}

/// A context: each direction wraps by itself.
#[derive(Debug)]
pub(in super::super) struct Context {
    pub(in super::super) outgoing: Outgoing,
    pub(in super::super) incoming: Incoming,
}

/// Wraps messages of the client.
#[derive(Debug)]
pub(in super::super) struct Outgoing {
    key: KerberosKey,
    usage: u32,
    flags: u8,
    sequence: u64,
}

/// Unwraps messages of the server, in their order.
#[derive(Debug)]
pub(in super::super) struct Incoming {
    key: KerberosKey,
    usage: u32,
    /// Of the other side.
    role: u8,
    sequence: u64,
}

fn header(flags: u8, sequence: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&WRAP);
    header[2] = flags;
    header[3] = 0xff;
    header[8..].copy_from_slice(&sequence.to_be_bytes());
    header
}

impl Outgoing {
    /// Wraps data, with encryption if `seals`.
    pub(in super::super) fn wrap(&mut self, data: &[u8], seals: bool) -> Vec<u8> {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        if seals {
            let header = header(self.flags | SEALED, sequence);
            let sealed = self.key.encrypt(self.usage, &[data, &header].concat());
            return [&header[..], &sealed].concat();
        }
        // The checksum is of a header without its length.
        let mut header = header(self.flags, sequence);
        let checksum = self.key.checksum(self.usage, &[data, &header].concat());
        let length = u16::try_from(checksum.len()).unwrap_or_default();
        header[4..6].copy_from_slice(&length.to_be_bytes());
        [&header[..], data, &checksum].concat()
    }
}

impl Incoming {
    /// Unwraps a message, which has to be encrypted if `seals`.
    ///
    /// # Errors
    ///
    /// It is not the server's next message.
    pub(in super::super) fn unwrap(&mut self, token: &[u8], seals: bool) -> Result<Vec<u8>, &'static str> {
        let Some((&head, body)) = token.split_first_chunk::<HEADER>() else {
            return Err("it is too short");
        };
        let [a, b, flags, 0xff, ec0, ec1, rrc0, rrc1, sequence @ ..] = head else {
            return Err("it is not wrapped");
        };
        if [a, b] != WRAP {
            return Err("it is not wrapped");
        }
        if flags & BY_ACCEPTOR != self.role {
            return Err("it is not the server's");
        }
        if u64::from_be_bytes(sequence) != self.sequence {
            return Err("it is out of order");
        }
        let is_sealed = flags & SEALED != 0;
        if seals && !is_sealed {
            return Err("it is not encrypted");
        }
        let extra = usize::from(u16::from_be_bytes([ec0, ec1]));
        let rotation = usize::from(u16::from_be_bytes([rrc0, rrc1]));
        let mut body = body.to_vec();
        if !body.is_empty() {
            let length = body.len();
            body.rotate_left(rotation % length);
        }
        let data = if is_sealed {
            let mut data = self
                .key
                .decrypt(self.usage, &body)
                .map_err(|_| "it cannot be decrypted")?;
            let at = data.len().checked_sub(HEADER + extra).ok_or("it is too short")?;
            // The header within has no rotation.
            let mut expected = head;
            expected[6..8].fill(0);
            if data[at + extra..] != expected {
                return Err("its header was changed");
            }
            data.truncate(at);
            data
        } else {
            let at = body.len().checked_sub(extra).ok_or("it is too short")?;
            let received = body.split_off(at);
            let mut signed = head;
            signed[4..8].fill(0);
            let expected = self.key.checksum(self.usage, &[&body[..], &signed].concat());
            if !is_equal(&expected, &received) {
                return Err("its checksum is wrong");
            }
            body
        };
        self.sequence = self.sequence.wrapping_add(1);
        Ok(data)
    }
}

/// Compares in a time that does not depend on the contents.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    a.len() == b.len() && std::hint::black_box(difference) == 0
}

/// Both sides of a context, without a KDC.
#[cfg(test)]
pub(in super::super) mod testing {
    use kerbcore::gss::{TOK_ID_AP_REP, initial_context_token};

    use super::*;

    /// The server's side.
    pub(in super::super::super) type Server = Context;

    fn key(encryption: i32) -> KerberosKey {
        let length = Enctype::from_i32(encryption).unwrap().key_len();
        KerberosKey::from_i32(encryption, random::<32>()[..length].to_vec()).unwrap()
    }

    pub(in super::super::super) fn contexts(encryption: i32) -> (Context, Server) {
        let key = key(encryption);
        let side = |usages: (u32, u32), flags, role, sequences: (u64, u64)| Context {
            outgoing: Outgoing {
                key: key.clone(),
                usage: usages.0,
                flags,
                sequence: sequences.0,
            },
            incoming: Incoming {
                key: key.clone(),
                usage: usages.1,
                role,
                sequence: sequences.1,
            },
        };
        (
            side((BY_INITIATOR_USAGE, BY_ACCEPTOR_USAGE), 0, BY_ACCEPTOR, (5, 900)),
            side((BY_ACCEPTOR_USAGE, BY_INITIATOR_USAGE), BY_ACCEPTOR, 0, (900, 5)),
        )
    }

    /// A ticket for `hbase/a@R.TEST`.
    pub(in super::super::super) fn ticket(encryption: i32) -> Ticket {
        Ticket::for_tests(key(encryption))
    }

    /// The token of a server that has the key of a ticket.
    pub(in super::super::super) fn reply(ticket: &Ticket, time: &str, micros: i64) -> Vec<u8> {
        let part = [
            explicit(0, &KerberosTime(time.to_owned()).encode()),
            explicit(1, &encode_integer(micros)),
        ];
        let part = tlv(application_tag(27), &encode_sequence(&part.concat()));
        let encrypted = EncryptedData {
            etype: ticket.key.enctype().to_i32(),
            kvno: None,
            cipher: ticket.key.encrypt(KU_AP_REP_ENC_PART, &part),
        };
        let reply = [
            explicit(0, &encode_integer(5)),
            explicit(1, &encode_integer(15)),
            explicit(2, &encrypted.encode()),
        ];
        let reply = tlv(application_tag(15), &encode_sequence(&reply.concat()));
        initial_context_token(TOK_ID_AP_REP, &reply)
    }
}
