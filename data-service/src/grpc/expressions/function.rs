//! Functions of expressions: one arm for each in both directions.

use oxtsdb_proto::data::v1::query_expressions_request::Function as FunctionMessage;
use oxtsdb_proto::data::v1::query_expressions_request::function::moving_average::Window as WindowMessage;
use oxtsdb_proto::data::v1::query_expressions_request::function::{
    Absolute, Function as Kind, MovingAverage,
};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_query::expression::function::Function;
use oxtsdb_query::expression::highest::Measure;
use oxtsdb_query::expression::moving_average::Window;
use tonic::Status;

use crate::grpc::query::convert::millis;

/// The function of a message.
pub(super) fn function_from_message(field: &str, message: &FunctionMessage) -> Result<Function, Status> {
    let at_least_1 = |name: &str, value: u32| {
        let field = format!("{field}.{name}");
        let positive = usize::try_from(value).ok().filter(|value| *value > 0);
        positive.ok_or_else(|| invalid_field(&field, format!("is {value}, expected at least 1")))
    };
    Ok(match &message.function {
        None => {
            return Err(invalid_field(field, "has no function, expected one of its kinds"));
        }
        Some(Kind::Absolute(_)) => Function::Absolute,
        Some(Kind::Scale(factor)) if factor.is_finite() => Function::Scale(*factor),
        Some(Kind::Scale(factor)) => {
            let rule = format!("is {factor}, expected a finite number");
            return Err(invalid_field(&format!("{field}.scale"), rule));
        }
        Some(Kind::Alias(alias)) if alias.is_empty() => {
            return Err(invalid_field(&format!("{field}.alias"), "is empty"));
        }
        Some(Kind::Alias(alias)) => Function::Alias(alias.clone()),
        Some(Kind::MovingAverage(average)) => {
            Function::MovingAverage(window(&format!("{field}.moving_average"), average)?)
        }
        Some(Kind::HighestMax(series)) => {
            Function::Highest(Measure::Max, at_least_1("highest_max", *series)?)
        }
        Some(Kind::HighestCurrent(series)) => {
            Function::Highest(Measure::Last, at_least_1("highest_current", *series)?)
        }
    })
}

/// The message of a function over the series of these names.
pub fn function_message(function: Function, of: Vec<String>) -> FunctionMessage {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let function = match function {
        Function::Scale(factor) => Kind::Scale(factor),
        Function::Absolute => Kind::Absolute(Absolute {}),
        Function::Alias(alias) => Kind::Alias(alias),
        Function::MovingAverage(window) => {
            let window = match window {
                Window::Values(values) => WindowMessage::Values(count(values)),
                Window::Millis(millis) => {
                    let length = jiff::SignedDuration::from_millis(millis);
                    WindowMessage::Time(prost_types::Duration {
                        seconds: length.as_secs(),
                        nanos: length.subsec_nanos(),
                    })
                }
            };
            Kind::MovingAverage(MovingAverage { window: Some(window) })
        }
        Function::Highest(Measure::Max, series) => Kind::HighestMax(count(series)),
        Function::Highest(Measure::Last, series) => Kind::HighestCurrent(count(series)),
    };
    FunctionMessage {
        of,
        function: Some(function),
    }
}

fn window(field: &str, average: &MovingAverage) -> Result<Window, Status> {
    match &average.window {
        None => Err(invalid_field(field, "has no window, expected values or time")),
        Some(WindowMessage::Values(0)) => Err(invalid_field(
            &format!("{field}.values"),
            "is 0, expected at least 1",
        )),
        Some(WindowMessage::Values(values)) => Ok(Window::Values(*values as usize)),
        Some(WindowMessage::Time(time)) => Ok(Window::Millis(millis(&format!("{field}.time"), time, 1)?)),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_query::expression::call::{StepBody, parse, steps};
    use oxtsdb_query::expression::function::NamedFunction;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// The fields of the contract's oneof, as OpenTSDB spells names.
    fn functions_of_the_contract() -> Vec<String> {
        let set = FileDescriptorSet::decode(oxtsdb_proto::FILE_DESCRIPTOR_SET).unwrap();
        let messages = set.file.into_iter().flat_map(|file| file.message_type);
        let request = messages
            .filter(|message| message.name() == "QueryExpressionsRequest")
            .flat_map(|message| message.nested_type)
            .find(|message| message.name() == "Function")
            .unwrap();
        let members = request.field.iter().filter(|field| field.oneof_index.is_some());
        members.map(|field| field.json_name().to_owned()).collect()
    }

    #[test]
    fn every_function_is_in_the_contract_and_every_function_of_the_contract_has_a_name() {
        let mut names = Vec::new();
        for named in NamedFunction::all() {
            let call = parse(named.example(), &mut Vec::new()).unwrap();
            // Combining is arithmetic in the contract, and `shift` is always an error.
            let Ok((steps, _)) = steps(&[call]) else {
                assert!(named.names().contains(&"shift"), "{named:?}");
                continue;
            };
            if let StepBody::Function(function) = &steps[0].body {
                let message = function_message(function.clone(), steps[0].of.clone());
                assert_eq!(function_from_message("f", &message).unwrap(), *function);
                names.push(named.names()[0].to_owned());
            }
        }
        let mut expected = functions_of_the_contract();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
}
