//! The bounds of requests, from the options of the contract to tables for the codec.
//!
//! The tables have a node for each message that lies on the way from a request to a repeated field. A
//! repeated field of a request without `max_items` is an error of the build.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value};

const OPTION: &str = "oxtsdb.common.v1.max_items";

/// Repeated fields of messages that are not ours, which cannot have the option, with their bounds.
const IMPORTED: &[(&str, u32)] = &[("google.protobuf.FieldMask.paths", 10_000)];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Rust source of the tables that `bounds.rs` of the crate describes.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String> {
    let option = pool
        .get_extension_by_name(OPTION)
        .ok_or("the contract declares max_items")?;
    let mut tables = Tables {
        option,
        counters: Vec::new(),
        nodes: Vec::new(),
        known: BTreeMap::new(),
    };
    let mut requests = BTreeMap::new();
    for method in pool
        .services()
        .flat_map(|service| service.methods().collect::<Vec<_>>())
    {
        let input = method.input();
        let node = tables.message(&input, &mut Vec::new())?;
        requests.insert(input.full_name().to_owned(), node);
    }
    tables.source(&requests)
}

struct Tables {
    option: ExtensionDescriptor,
    counters: Vec<String>,
    nodes: Vec<String>,
    /// The node of each message that was visited; `None` for one without repeated fields.
    known: BTreeMap<String, Option<usize>>,
}

impl Tables {
    /// The node of a message, if anything in it is repeated.
    fn message(&mut self, message: &MessageDescriptor, path: &mut Vec<String>) -> Result<Option<usize>> {
        let name = message.full_name().to_owned();
        if let Some(node) = self.known.get(&name) {
            return Ok(*node);
        }
        if path.contains(&name) {
            return Err(format!("{name} contains itself, which the bounds of requests do not allow").into());
        }
        path.push(name.clone());
        let mut steps: BTreeMap<u32, String> = BTreeMap::new();
        for field in message.fields() {
            let counter = self.counter(&field)?;
            let shape = match field.kind() {
                Kind::Message(child) => match self.message(&child, path)? {
                    Some(node) => format!("Shape::Message({node})"),
                    None => "Shape::Bytes".to_owned(),
                },
                Kind::String | Kind::Bytes => "Shape::Bytes".to_owned(),
                Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => "Shape::Fixed(8)".to_owned(),
                Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => "Shape::Fixed(4)".to_owned(),
                _ => "Shape::Varint".to_owned(),
            };
            if counter.is_some() || shape.starts_with("Shape::Message") {
                steps.insert(
                    field.number(),
                    format!("Step {{ counter: {counter:?}, shape: {shape} }}"),
                );
            }
        }
        path.pop();
        let node = steps.last_key_value().map(|(last, _)| *last).map(|last| {
            let fields: Vec<String> = (0..=last)
                .map(|number| match steps.get(&number) {
                    Some(step) => format!("Some({step})"),
                    None => "None".to_owned(),
                })
                .collect();
            self.nodes.push(format!("&[{}]", fields.join(", ")));
            self.nodes.len() - 1
        });
        self.known.insert(name, node);
        Ok(node)
    }

    /// The number of the counter of a repeated field.
    fn counter(&mut self, field: &FieldDescriptor) -> Result<Option<usize>> {
        if !field.is_list() && !field.is_map() {
            return Ok(None);
        }
        let options = field.options();
        let name = field.full_name();
        let imported = IMPORTED.iter().find(|(imported, _)| *imported == name);
        let limit = match (options.get_extension(&self.option).as_ref(), imported) {
            (Value::U32(limit), _) if *limit > 0 => *limit,
            (_, Some((_, limit))) => *limit,
            _ => {
                return Err(
                    format!("{name}: a repeated field of a request needs the option {OPTION}").into(),
                );
            }
        };
        let bytes = element_bytes(&field.kind());
        self.counters.push(format!(
            "Bound {{ field: {name:?}, limit: {limit}, element_bytes: {bytes} }}"
        ));
        Ok(Some(self.counters.len() - 1))
    }

    fn source(&self, requests: &BTreeMap<String, Option<usize>>) -> Result<String> {
        let mut out = String::new();
        writeln!(
            out,
            "pub(super) static BOUNDS: [Bound; {}] = [",
            self.counters.len()
        )?;
        for counter in &self.counters {
            writeln!(out, "    {counter},")?;
        }
        writeln!(
            out,
            "];\n\nstatic NODES: [&[Option<Step>]; {}] = [",
            self.nodes.len()
        )?;
        for node in &self.nodes {
            writeln!(out, "    {node},")?;
        }
        writeln!(
            out,
            "];\n\nstatic REQUESTS: [(&str, Option<usize>); {}] = [",
            requests.len()
        )?;
        for (name, node) in requests {
            writeln!(out, "    ({name:?}, {node:?}),")?;
        }
        writeln!(out, "];")?;
        Ok(out)
    }
}

/// The memory of an element beside the bytes of its own texts: an upper bound of the size of the
/// generated type, and the smallest allocation.
fn element_bytes(kind: &Kind) -> usize {
    /// A vector, a text or a slice of shared bytes.
    const HANDLE: usize = 32;
    match kind {
        Kind::Message(message) => {
            let fields = message.fields().map(|field| {
                if field.is_list() || field.is_map() {
                    return HANDLE;
                }
                // Of an optional message, and the tag of a choice.
                element_bytes(&field.kind()) + 8
            });
            fields.sum::<usize>() + 8
        }
        Kind::String | Kind::Bytes => HANDLE + 8,
        Kind::Double | Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => 8,
        _ => 4,
    }
}
