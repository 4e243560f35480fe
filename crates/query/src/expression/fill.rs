//! Fill of expressions: the value that stands for a missing one.

/// The value that an operand has where it has no point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fill {
    /// 0.
    #[default]
    Zero,
    /// NaN: so are nearly all results.
    Nan,
    /// This number.
    Scalar(f64),
}

impl Fill {
    /// The value.
    pub const fn value(self) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Nan => f64::NAN,
            Self::Scalar(value) => value,
        }
    }

    /// A value, or this in place of NaN.
    pub const fn or(self, value: f64) -> f64 {
        if value.is_nan() { self.value() } else { value }
    }
}
