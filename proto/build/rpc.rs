//! Generates the method of each request.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;

use prost_reflect::DescriptorPool;

/// Implementations of `Rpc` for the requests of all methods of the contract.
///
/// # Errors
///
/// If a message is the request of two methods.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    let mut requests = BTreeSet::new();
    for service in pool
        .services()
        .filter(|service| service.package_name().starts_with("oxtsdb."))
    {
        for method in service.methods() {
            let (request, response) = (method.input(), method.output());
            if !requests.insert(request.full_name().to_owned()) {
                return Err(format!("{} is the request of two methods", request.full_name()).into());
            }
            writeln!(
                code,
                "impl Rpc for {} {{\n    type Response = {};\n    const METHOD: &str = \"{}/{}\";\n}}",
                rust_path(request.full_name()),
                rust_path(response.full_name()),
                service.full_name(),
                method.name()
            )?;
        }
    }
    Ok(code)
}

/// `oxtsdb.data.v1.WriteRequest` as `crate::data::v1::WriteRequest`.
fn rust_path(name: &str) -> String {
    format!("crate{}", name.trim_start_matches("oxtsdb").replace('.', "::"))
}
