//! Requests as the domain's types. Each refusal names its field.

use std::collections::HashSet;

use oxtsdb_proto::data::v1::QueryExpressionsRequest;
use oxtsdb_proto::data::v1::query_expressions_request::expression::Body as BodyMessage;
use oxtsdb_proto::data::v1::query_expressions_request::join::Operator;
use oxtsdb_proto::data::v1::query_expressions_request::{
    Arithmetic as ArithmeticMessage, Expression, Function as FunctionMessage, Input, Join as JoinMessage,
};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_query::expression::Arithmetic;
use oxtsdb_query::expression::fill::Fill;
use oxtsdb_query::expression::formulas::{self, Body, Formula};
use oxtsdb_query::expression::join::{Join, SetOperator};
use oxtsdb_query::{QuerySpec, Quirks, SubQuery};
use oxtsdb_schema::DuplicatePolicy;
use tonic::Status;

use super::function;
use crate::grpc::query::convert::{millis, plausible_range, sub_query};
use crate::grpc::query::field_error::{count, missing, no_such};

const MAX_INPUTS: usize = 50;
const MAX_EXPRESSIONS: usize = 50;
const MAX_OUTPUTS: usize = 100;
const MAX_OPERANDS: usize = 26;
const MAX_NAME: usize = 100;

/// A parsed request.
#[derive(Debug)]
pub(super) struct ExpressionsQuery {
    pub(super) start_ms: i64,
    /// Inside.
    pub(super) end_ms: i64,
    pub(super) inputs: Vec<QueryInput>,
    pub(super) formulas: Vec<Formula>,
    pub(super) outputs: Vec<String>,
    pub(super) max_scanned_points: Option<u64>,
    pub(super) quirks: Quirks,
    pub(super) skip_damaged_rows: bool,
}

impl ExpressionsQuery {
    /// The sub-queries of all inputs, without their time shifts.
    pub(super) fn spec(&self) -> QuerySpec {
        QuerySpec {
            start_ms: self.start_ms,
            end_ms: self.end_ms,
            sub_queries: self.inputs.iter().map(|input| input.query.clone()).collect(),
            duplicates: DuplicatePolicy::KeepNewest,
            max_scanned_points: self.max_scanned_points,
            quirks: self.quirks,
            skip_damaged_rows: self.skip_damaged_rows,
            with_surroundings: self.quirks.expressions_see_surroundings,
            with_infinities: false,
            annotations: oxtsdb_query::AnnotationSelection::default(),
        }
    }
}

/// An input.
#[derive(Debug)]
pub(super) struct QueryInput {
    pub(super) name: String,
    pub(super) query: SubQuery,
    pub(super) fill: Fill,
    pub(super) shift_ms: i64,
}

/// Parses a request.
pub(super) fn expressions_query(
    request: &QueryExpressionsRequest,
    now_ms: i64,
) -> Result<ExpressionsQuery, Status> {
    let (start_ms, stop_ms) = plausible_range(request.range.as_ref(), request.allow_any_time, now_ms)?;
    if request.inputs.is_empty() || request.inputs.len() > MAX_INPUTS {
        return Err(count("inputs", request.inputs.len(), MAX_INPUTS));
    }
    for (field, items, most) in [
        ("expressions", request.expressions.len(), MAX_EXPRESSIONS),
        ("outputs", request.outputs.len(), MAX_OUTPUTS),
    ] {
        if items > most {
            let rule = format!("has {items} items, at most {most} are allowed");
            return Err(invalid_field(field, rule));
        }
    }
    let mut names = HashSet::new();
    for (index, input) in request.inputs.iter().enumerate() {
        new_name(&format!("inputs[{index}].name"), &input.name, &mut names)?;
    }
    for (index, expression) in request.expressions.iter().enumerate() {
        new_name(
            &format!("expressions[{index}].name"),
            &expression.name,
            &mut names,
        )?;
    }
    for (index, output) in request.outputs.iter().enumerate() {
        known_name(&format!("outputs[{index}]"), output, &names)?;
    }
    let quirks = if request.opentsdb_quirks {
        Quirks::OPENTSDB
    } else {
        Quirks::NONE
    };
    let inputs = request.inputs.iter().enumerate();
    let inputs = inputs.map(|(index, message)| input(&format!("inputs[{index}]"), message, start_ms));
    let inputs = inputs.collect::<Result<_, _>>()?;
    let expressions = request.expressions.iter().enumerate();
    let formulas = expressions.map(|(index, expression)| {
        let field = format!("expressions[{index}]");
        formula(&field, expression, &names, quirks)
    });
    let formulas = formulas.collect::<Result<Vec<_>, _>>()?;
    if let Err(circle) = formulas::order(&formulas) {
        let rule = "uses itself, or expressions that do";
        return Err(invalid_field(&format!("expressions[{}]", circle.0), rule));
    }
    let outputs = if request.outputs.is_empty() {
        formulas.iter().map(|formula| formula.name.clone()).collect()
    } else {
        request.outputs.clone()
    };
    Ok(ExpressionsQuery {
        start_ms,
        end_ms: stop_ms - 1,
        inputs,
        formulas,
        outputs,
        max_scanned_points: Some(request.max_scanned_points).filter(|max| *max > 0),
        quirks,
        skip_damaged_rows: request.skip_damaged_rows,
    })
}

/// A name that can stand in arithmetic and is not taken.
fn new_name<'a>(field: &str, name: &'a str, names: &mut HashSet<&'a str>) -> Result<(), Status> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let rule = if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(letters) {
        format!("is `{name}`, expected 1 to {MAX_NAME} ASCII letters, digits and `_`")
    } else if Arithmetic::parse(name, Quirks::NONE).map_or(true, |parsed| parsed.names() != [name]) {
        format!("is `{name}`, which is a number or a word of arithmetic")
    } else if !names.insert(name) {
        format!("is `{name}`, which another one has")
    } else {
        return Ok(());
    };
    Err(invalid_field(field, rule))
}

fn known_name(field: &str, name: &str, names: &HashSet<&str>) -> Result<(), Status> {
    if names.contains(name) {
        return Ok(());
    }
    let rule = format!("is `{name}`, expected the name of an input or of an expression");
    Err(invalid_field(field, rule))
}

fn input(field: &str, input: &Input, start_ms: i64) -> Result<QueryInput, Status> {
    let query = input
        .query
        .as_ref()
        .ok_or_else(|| missing(&format!("{field}.query")))?;
    let shift_ms = match &input.shift {
        None => 0,
        Some(shift) => {
            let field = format!("{field}.shift");
            let shift_ms = millis(&field, shift, 1)?;
            if shift_ms > start_ms {
                let rule = format!("is {shift_ms} ms, which is before 1970 from a start at {start_ms} ms");
                return Err(invalid_field(&field, rule));
            }
            shift_ms
        }
    };
    Ok(QueryInput {
        name: input.name.clone(),
        query: sub_query(&format!("{field}.query"), query)?,
        fill: Fill::Scalar(input.fill),
        shift_ms,
    })
}

fn formula(
    field: &str,
    expression: &Expression,
    names: &HashSet<&str>,
    quirks: Quirks,
) -> Result<Formula, Status> {
    let body = match &expression.body {
        None => {
            return Err(invalid_field(
                field,
                "has no body, expected arithmetic or function",
            ));
        }
        Some(BodyMessage::Arithmetic(message)) => {
            let field = format!("{field}.arithmetic");
            arithmetic(&field, message, names, quirks)?
        }
        Some(BodyMessage::Function(message)) => function_body(&format!("{field}.function"), message, names)?,
    };
    Ok(Formula {
        name: expression.name.clone(),
        body,
        fill: Fill::Scalar(expression.fill),
    })
}

fn arithmetic(
    field: &str,
    message: &ArithmeticMessage,
    names: &HashSet<&str>,
    quirks: Quirks,
) -> Result<Body, Status> {
    let text = format!("{field}.text");
    let parsed =
        Arithmetic::parse(&message.text, quirks).map_err(|error| invalid_field(&text, error.to_string()))?;
    if parsed.names().is_empty() {
        return Err(invalid_field(
            &text,
            "has no name of an input or of an expression",
        ));
    }
    if let Some(name) = parsed.names().iter().find(|name| !names.contains(name.as_str())) {
        let rule = format!("has `{name}`, which is no name of an input or of an expression");
        return Err(invalid_field(&text, rule));
    }
    let join = match &message.join {
        None => Join::UNION,
        Some(join) => self::join(&format!("{field}.join"), join)?,
    };
    Ok(Body::Arithmetic(parsed, join))
}

fn join(field: &str, message: &JoinMessage) -> Result<Join, Status> {
    let operator = match Operator::try_from(message.operator) {
        Ok(Operator::Unspecified | Operator::Union) => SetOperator::Union,
        Ok(Operator::Intersection) => SetOperator::Intersection,
        Err(_) => return Err(no_such(&format!("{field}.operator"), message.operator)),
    };
    Ok(Join {
        operator,
        query_tags: message.query_tags,
        aggregate_tags: message.aggregate_tags,
    })
}

fn function_body(field: &str, message: &FunctionMessage, names: &HashSet<&str>) -> Result<Body, Status> {
    let of = format!("{field}.of");
    if message.of.is_empty() || message.of.len() > MAX_OPERANDS {
        return Err(count(&of, message.of.len(), MAX_OPERANDS));
    }
    for (index, name) in message.of.iter().enumerate() {
        known_name(&format!("{of}[{index}]"), name, names)?;
    }
    let function = function::function_from_message(field, message)?;
    Ok(Body::Function(function, message.of.clone()))
}
