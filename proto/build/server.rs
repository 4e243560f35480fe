//! Generates the servers of the contract: a trait for the handlers of each service, and which handler a method calls.
//!
//! tonic's own servers compile the reading of a request and the writing of a response once for each method. These pass
//! encoded messages on (`serve.rs` of the crate), so that one form serves them all.

use std::error::Error;
use std::fmt::{self, Write as _};

use prost_build::{Method, Service, ServiceGenerator};

/// Methods with handlers of encoded requests.
const ENCODED: &[&str] = &["oxtsdb.data.v1.DataService.Write"];

/// The servers of this module, with the clients of another generator.
pub(crate) struct Servers {
    pub(crate) clients: Box<dyn ServiceGenerator>,
}

impl ServiceGenerator for Servers {
    fn generate(&mut self, service: Service, code: &mut String) {
        generate(&service, code).unwrap_or_else(|error| panic!("{}: {error}", service.proto_name));
        self.clients.generate(service, code);
    }

    fn finalize(&mut self, code: &mut String) {
        self.clients.finalize(code);
    }

    fn finalize_package(&mut self, package: &str, code: &mut String) {
        self.clients.finalize_package(package, code);
    }
}

fn generate(service: &Service, code: &mut String) -> Result<(), Box<dyn Error>> {
    let (name, full_name) = (
        &service.name,
        format!("{}.{}", service.package, service.proto_name),
    );
    writeln!(code, "/// Server of `{full_name}`.")?;
    writeln!(code, "pub mod {}_server {{", snake_case(name))?;
    writeln!(code, "    use super::*;")?;
    service.comments.append_with_indent(1, code);
    writeln!(code, "    #[tonic::async_trait]")?;
    writeln!(code, "    pub trait {name}: Send + Sync + 'static {{")?;
    let methods: Vec<_> = service
        .methods
        .iter()
        .map(|method| ServerMethod::from_method(&full_name, method))
        .collect::<Result<_, _>>()?;
    for method in &methods {
        method.declare(code)?;
    }
    writeln!(code, "    }}")?;
    writeln!(code, "    /// The name of the service.")?;
    writeln!(code, "    pub const SERVICE_NAME: &str = \"{full_name}\";")?;
    writeln!(code, "    /// The service as tonic serves it.")?;
    writeln!(
        code,
        "    pub type {name}Server<T> = crate::serve::Server<{name}Methods<T>>;"
    )?;
    writeln!(code, "    /// The methods of the service.")?;
    writeln!(code, "    #[derive(Debug)]")?;
    writeln!(code, "    pub struct {name}Methods<T>(std::sync::Arc<T>);")?;
    writeln!(
        code,
        "    impl<T: {name}> crate::serve::Methods for {name}Methods<T> {{"
    )?;
    writeln!(code, "        type Handler = T;")?;
    writeln!(code, "        const SERVICE: &'static str = SERVICE_NAME;")?;
    writeln!(
        code,
        "        fn new(handler: T) -> Self {{ Self(std::sync::Arc::new(handler)) }}"
    )?;
    writeln!(
        code,
        "        fn call(&self, method: &str, call: crate::serve::Call) -> crate::serve::Answer {{"
    )?;
    writeln!(code, "            let handler = std::sync::Arc::clone(&self.0);")?;
    writeln!(code, "            match method {{")?;
    for method in &methods {
        method.dispatch(code)?;
    }
    writeln!(code, "                _ => call.unimplemented(),")?;
    writeln!(code, "            }}\n        }}\n    }}\n}}")?;
    Ok(())
}

struct ServerMethod<'a> {
    method: &'a Method,
    /// The function of [`crate::serve::Call`] that reads the request and writes the response.
    kind: &'static str,
    request: String,
    response: String,
}

impl<'a> ServerMethod<'a> {
    fn from_method(service: &str, method: &'a Method) -> Result<Self, Box<dyn Error>> {
        let is_encoded = ENCODED.contains(&format!("{service}.{}", method.proto_name).as_str());
        let kind = match (method.client_streaming, method.server_streaming) {
            (false, false) if is_encoded => "unary_encoded",
            (false, false) => "unary",
            (false, true) => "stream",
            (true, true) => "stream_both",
            (true, false) => return Err(format!("{} streams requests only", method.proto_name).into()),
        };
        let input = &method.input_type;
        Ok(Self {
            method,
            kind,
            request: match kind {
                "unary_encoded" => "bytes::Bytes".to_owned(),
                "stream_both" => format!("tonic::Streaming<{input}>"),
                _ => input.clone(),
            },
            response: if method.server_streaming {
                format!("crate::serve::MessageStream<{}>", method.output_type)
            } else {
                method.output_type.clone()
            },
        })
    }

    fn declare(&self, code: &mut String) -> fmt::Result {
        self.method.comments.append_with_indent(2, code);
        writeln!(
            code,
            "        async fn {}(&self, request: tonic::Request<{}>) -> Result<tonic::Response<{}>, tonic::Status>;",
            self.method.name, self.request, self.response
        )
    }

    fn dispatch(&self, code: &mut String) -> fmt::Result {
        writeln!(
            code,
            "                \"{}\" => call.{}(move |request| {{ let handler = handler.clone(); async move {{ handler.{}(request).await }} }}),",
            self.method.proto_name, self.kind, self.method.name
        )
    }
}

/// `UidAdminService` as `uid_admin_service`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (index, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
