//! The setting `--admin-listen`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The suffix of an address that another port may replace.
const OR_FREE: &str = " or free";

/// Where the admin listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// It listens at an address; port 0 selects a free port.
    At(SocketAddr),
    /// It listens at an address, or at another port if the address is in use: the default, so that two servers start
    /// on one machine.
    AtOrFree(SocketAddr),
    /// There is none.
    None,
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let rule = |_| {
            "expected ADDRESS:PORT, for example 127.0.0.1:4245, `ADDRESS:PORT or free`, or `none`".to_owned()
        };
        match text.strip_suffix(OR_FREE) {
            Some(address) => address.parse().map(Self::AtOrFree).map_err(rule),
            None => text.parse().map(Self::At).map_err(rule),
        }
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::AtOrFree(address) => write!(f, "{address}{OR_FREE}"),
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
        let text = "127.0.0.1:4245 or free";
        let address: AdminListen = text.parse().unwrap();
        assert_eq!(
            address,
            AdminListen::AtOrFree(SocketAddr::from(([127, 0, 0, 1], 4245)))
        );
        assert_eq!(address.to_string(), text);
        assert_eq!("none".parse(), Ok(AdminListen::None));
        assert_eq!(AdminListen::None.to_string(), "none");
        for wrong in ["", "4245", "None", "localhost:4245", "free", "4245 or free"] {
            let error = wrong.parse::<AdminListen>().unwrap_err();
            assert!(error.contains("ADDRESS:PORT"), "{wrong}: {error}");
        }
    }
}
