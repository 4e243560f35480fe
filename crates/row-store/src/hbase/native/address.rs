//! Addresses of servers, as settings and HBase write them: `host[:port]`.

/// The host of `host:port`.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// The address with a port, if it has none.
pub(super) fn with_port(address: &str, port: u16) -> String {
    match address.rsplit_once(':') {
        // An IPv6 address in brackets has colons of its own.
        Some((_, port)) if !port.ends_with(']') => address.to_owned(),
        _ => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_added() {
        for (given, whole) in [
            ("kdc", "kdc:88"),
            ("kdc:1", "kdc:1"),
            ("[::1]", "[::1]:88"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(with_port(given, 88), whole);
        }
    }
}
