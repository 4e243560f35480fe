//! The setting `--admin-listen`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where the admin listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// It listens at an address; port 0 selects a free port.
    At(SocketAddr),
    /// There is none.
    None,
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let rule = |_| "expected ADDRESS:PORT, for example 127.0.0.1:4245, or `none`".to_owned();
        text.parse().map(Self::At).map_err(rule)
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_and_none() {
        let address: AdminListen = "127.0.0.1:4245".parse().unwrap();
        assert_eq!(address, AdminListen::At(SocketAddr::from(([127, 0, 0, 1], 4245))));
        assert_eq!(address.to_string(), "127.0.0.1:4245");
        assert_eq!("none".parse(), Ok(AdminListen::None));
        assert_eq!(AdminListen::None.to_string(), "none");
        for wrong in ["", "4245", "None", "localhost:4245"] {
            let error = wrong.parse::<AdminListen>().unwrap_err();
            assert!(error.contains("ADDRESS:PORT"), "{wrong}: {error}");
        }
    }
}
