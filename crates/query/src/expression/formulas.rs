//! Named expressions over named series: `e = a + b`, `g = e * 2`.
//!
//! Expressions may be in any order and name each other, but not in a circle. Named expressions are computed before the
//! expressions that name them.

use std::collections::{BTreeSet, HashMap};

use oxtsdb_schema::Uid;

use super::arithmetic::Arithmetic;
use super::combine::{Term, Work, by_time};
use super::error::ExpressionError;
use super::fill::Fill;
use super::function::Function;
use super::join::{Join, Operand, SetOperator};
use super::lockstep::{Kind, lockstep};
use super::series::Series;

/// Series of a query under a name.
#[derive(Clone, Debug)]
pub struct Input {
    /// The name.
    pub name: String,
    /// The value that stands for a missing one.
    pub fill: Fill,
    /// UIDs of the tag keys of its filters.
    pub query_tags: BTreeSet<Uid>,
    /// The series.
    pub series: Vec<Series>,
}

/// An expression under a name.
#[derive(Clone, Debug)]
pub struct Formula {
    /// The name.
    pub name: String,
    /// The computation.
    pub body: Body,
    /// The value that stands for a missing one, for the expressions that name it.
    pub fill: Fill,
}

/// The computation of a formula.
#[derive(Clone, Debug)]
pub enum Body {
    /// Arithmetic over names; their series are joined.
    Arithmetic(Arithmetic, Join),
    /// A function over the series of names.
    Function(Function, Vec<String>),
}

impl Body {
    /// The names in it.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Arithmetic(arithmetic, _) => arithmetic.names(),
            Self::Function(_, names) => names,
        }
    }
}

/// Error of expressions that name each other in a circle: the last that is in it, or refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle(pub usize);

/// Returns the places of expressions in an order in which each comes after all expressions that it names.
///
/// # Errors
///
/// [`Circle`].
pub fn order(formulas: &[Formula]) -> Result<Vec<usize>, Circle> {
    let places: HashMap<&str, usize> = formulas
        .iter()
        .enumerate()
        .map(|(place, formula)| (formula.name.as_str(), place))
        .collect();
    let (mut order, mut placed) = (Vec::with_capacity(formulas.len()), vec![false; formulas.len()]);
    while order.len() < formulas.len() {
        let before = order.len();
        for (place, formula) in formulas.iter().enumerate() {
            let mut named = formula
                .body
                .names()
                .iter()
                .filter_map(|name| places.get(name.as_str()));
            if !placed[place] && named.all(|named| placed[*named]) {
                placed[place] = true;
                order.push(place);
            }
        }
        if order.len() == before {
            return Err(Circle(placed.iter().rposition(|placed| !placed).unwrap_or(0)));
        }
    }
    Ok(order)
}

/// The series of an expression, or its error. OpenTSDB evaluates only outputs, so the error is returned only if the
/// expression, or one that refers to it, is an output.
pub type Outcome = Result<Vec<Series>, ExpressionError>;

/// The series of an expression. Series whose values fail have no points, so that they can still be joined: OpenTSDB
/// joins the series of all expressions before it computes a value.
struct Computed {
    series: Vec<Series>,
    /// An error of values; see [`ExpressionError::is_of_values`].
    error: Option<ExpressionError>,
}

impl Computed {
    /// Series whose values are computed, or failed. Other errors than errors of values stay errors.
    fn new(series: Vec<Series>, computed: Result<(), ExpressionError>) -> Result<Self, ExpressionError> {
        let error = computed.err();
        match error {
            Some(error) if !error.is_of_values() => Err(error),
            error => Ok(Self { series, error }),
        }
    }

    fn from_outcome(outcome: Outcome) -> Result<Self, ExpressionError> {
        match outcome {
            Ok(series) => Self::new(series, Ok(())),
            Err(error) => Self::new(Vec::new(), Err(error)),
        }
    }

    fn outcome(self) -> Outcome {
        self.error.map_or(Ok(self.series), Err)
    }
}

/// Returns the result of each expression, in the order of the expressions. Names refer to inputs or to expressions;
/// other names have no series.
///
/// # Errors
///
/// Errors of computing, except of single values; see [`ExpressionError::is_of_values`]. Expressions in a circle have no
/// series.
pub fn evaluate(
    inputs: &[Input],
    formulas: &[Formula],
    work: &mut Work<'_>,
) -> Result<Vec<Outcome>, ExpressionError> {
    let mut results: Vec<Option<Computed>> = formulas.iter().map(|_| None).collect();
    for place in order(formulas).unwrap_or_default() {
        let context = Context {
            inputs,
            formulas,
            results: &results,
        };
        results[place] = Some(context.computed(&formulas[place], work)?);
    }
    let outcome = |computed: Option<Computed>| computed.map_or_else(|| Ok(Vec::new()), Computed::outcome);
    Ok(results.into_iter().map(outcome).collect())
}

/// The inputs and expressions that names refer to.
struct Context<'a> {
    inputs: &'a [Input],
    formulas: &'a [Formula],
    results: &'a [Option<Computed>],
}

static NO_TAGS: BTreeSet<Uid> = BTreeSet::new();

impl<'a> Context<'a> {
    fn computed(&self, formula: &'a Formula, work: &mut Work<'_>) -> Result<Computed, ExpressionError> {
        match &formula.body {
            Body::Arithmetic(arithmetic, join) => compute(formula, arithmetic, join, self, work),
            Body::Function(function, names) => {
                let mut list = Vec::new();
                for name in names {
                    list.extend_from_slice(self.series(name));
                }
                if let Some(error) = self.error(names) {
                    return Computed::new(list, Err(error));
                }
                Computed::from_outcome(function.apply(list, work))
            }
        }
    }

    fn term(&self, name: &'a str) -> (Term<'a>, Kind) {
        let input = self.inputs.iter().find(|input| input.name == name);
        let nested = || self.formulas.iter().find(|formula| formula.name == name);
        let (fill, query_tags, kind) = match input {
            Some(input) => (input.fill, &input.query_tags, Kind::Input),
            None => (
                nested().map_or(Fill::Zero, |formula| formula.fill),
                &NO_TAGS,
                Kind::Nested,
            ),
        };
        let series = self.series(name);
        let operand = Operand {
            name,
            series,
            query_tags,
        };
        (Term { operand, fill }, kind)
    }

    fn series(&self, name: &str) -> &'a [Series] {
        if let Some(input) = self.inputs.iter().find(|input| input.name == name) {
            return &input.series;
        }
        self.nested(name).map_or(&[], |nested| &nested.series)
    }

    /// The result of an expression.
    fn nested(&self, name: &str) -> Option<&'a Computed> {
        let place = self.formulas.iter().position(|formula| formula.name == name)?;
        self.results.get(place)?.as_ref()
    }

    /// The first error of the values of these expressions.
    fn error(&self, names: &[String]) -> Option<ExpressionError> {
        names.iter().find_map(|name| self.nested(name)?.error.clone())
    }
}

fn compute(
    formula: &Formula,
    arithmetic: &Arithmetic,
    join: &Join,
    context: &Context<'_>,
    work: &mut Work<'_>,
) -> Result<Computed, ExpressionError> {
    let quirks = work.quirks();
    let terms = arithmetic.names().iter().map(|name| context.term(name));
    let terms: Vec<(Term<'_>, Kind)> = terms.collect();
    let operands: Vec<Operand<'_>> = terms.iter().map(|(term, _)| term.operand.clone()).collect();
    let mut joined = join.join(&operands, quirks);
    let anything = operands.iter().any(|operand| !operand.series.is_empty());
    let intersects = quirks.expressions_in_rows && join.operator == SetOperator::Intersection;
    if intersects && joined.is_empty() && anything {
        let expression = formula.name.clone();
        return Err(ExpressionError::NoIntersection { expression });
    }
    let failed = context.error(arithmetic.names());
    if failed.is_none() && !quirks.expressions_in_rows {
        let terms: Vec<Term<'_>> = terms.into_iter().map(|(term, _)| term).collect();
        return Computed::from_outcome(by_time(arithmetic, &terms, joined, work));
    }
    let computed = match failed {
        Some(error) => Err(error),
        None => lockstep(arithmetic, &terms, &mut joined, join.operator, work),
    };
    Computed::new(joined.into_iter().map(|joined| joined.series).collect(), computed)
}
