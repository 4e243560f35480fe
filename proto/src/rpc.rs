//! Which method a request is for.

use prost::Message;

/// The request of a method.
pub trait Rpc: Message {
    /// Its response, or one of its responses.
    type Response: Message + Default + 'static;
    /// Service and method, for example `oxtsdb.uid.v1.UidService/LookupUids`.
    const METHOD: &str;
}

include!(concat!(env!("OUT_DIR"), "/rpc.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uid::v1::{LookupUidsRequest, LookupUidsResponse};

    fn method_of<M: Rpc<Response = R>, R>() -> &'static str {
        M::METHOD
    }

    #[test]
    fn a_request_knows_its_method_and_its_response() {
        let method = method_of::<LookupUidsRequest, LookupUidsResponse>();
        assert_eq!(method, "oxtsdb.uid.v1.UidService/LookupUids");
    }
}
