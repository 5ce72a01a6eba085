//! Lowers the operators and methods of integers and bools.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use skep_core::operation::OperationError;

use super::{Form, Lowering, Stop, scalar_type};
use crate::tree::{Binary, Expr, Kind, Method};
use crate::types::Number;

/// Instructions that a division takes the time of.
const DIVISION_WORK: u32 = 20;

impl<'a> Lowering<'a, '_> {
    /// Computes an operator of integers that is no shift.
    pub(super) fn integer_operator(
        &mut self,
        op: Binary,
        number: Number,
        one: Value,
        two: Value,
    ) -> Result<Value, Stop> {
        self.type_of(number)?;
        Ok(match op {
            Binary::Add => self.ins().iadd(one, two),
            Binary::Subtract => self.ins().isub(one, two),
            Binary::Multiply => {
                // Vectors of bytes have no product.
                if number.width() == 1 {
                    self.scalar_only()?;
                }
                self.ins().imul(one, two)
            }
            Binary::Divide => self.divide(number, one, two, false)?,
            Binary::Remainder => self.divide(number, one, two, true)?,
            Binary::And => self.ins().band(one, two),
            Binary::Or => self.ins().bor(one, two),
            Binary::Xor => self.ins().bxor(one, two),
            Binary::ShiftLeft | Binary::ShiftRight => unreachable!("shifts are lowered by `shift`"),
            comparison => self.ins().icmp(condition(comparison, number.is_signed()), one, two),
        })
    }

    pub(super) fn bool_operator(&mut self, op: Binary, one: Value, two: Value) -> Value {
        match op {
            Binary::And => self.ins().band(one, two),
            Binary::Or => self.ins().bor(one, two),
            Binary::Xor | Binary::NotEqual => self.ins().bxor(one, two),
            Binary::Equal => {
                let differs = self.ins().bxor(one, two);
                self.not(differs)
            }
            // False is less than true. Masks are compared by their bits, so the operators are written out.
            Binary::Less => {
                let not_one = self.not(one);
                self.ins().band(not_one, two)
            }
            Binary::LessEqual => {
                let not_one = self.not(one);
                self.ins().bor(not_one, two)
            }
            Binary::Greater => {
                let not_two = self.not(two);
                self.ins().band(one, not_two)
            }
            Binary::GreaterEqual => {
                let not_two = self.not(two);
                self.ins().bor(one, not_two)
            }
            other => unreachable!("{other:?} is no operator of bools"),
        }
    }

    /// Divides. Fails if the divisor is zero. The smallest number divided by -1 wraps.
    fn divide(&mut self, number: Number, one: Value, two: Value, is_remainder: bool) -> Result<Value, Stop> {
        self.scalar_only()?;
        self.spend(DIVISION_WORK);
        let known = self.known_int(two);
        if known.is_none_or(|divisor| divisor == 0) {
            let is_zero = self.ins().icmp_imm_u(IntCC::Equal, two, 0);
            self.fail_if(is_zero, OperationError::DivisionByZero)?;
        }
        if !number.is_signed() {
            return Ok(if is_remainder { self.ins().urem(one, two) } else { self.ins().udiv(one, two) });
        }
        if known.is_some_and(|divisor| divisor != -1) {
            return Ok(if is_remainder { self.ins().srem(one, two) } else { self.ins().sdiv(one, two) });
        }
        let minus_one = self.int(number, -1)?;
        let is_minus_one = self.ins().icmp(IntCC::Equal, two, minus_one);
        let plain = self.int(number, 1)?;
        let divisor = self.select(is_minus_one, plain, two);
        if is_remainder {
            let remainder = self.ins().srem(one, divisor);
            let zero = self.int(number, 0)?;
            return Ok(self.select(is_minus_one, zero, remainder));
        }
        let quotient = self.ins().sdiv(one, divisor);
        let negated = self.ins().ineg(one);
        Ok(self.select(is_minus_one, negated, quotient))
    }

    /// Divides so that the remainder is not negative.
    fn divide_euclid(&mut self, number: Number, one: Value, two: Value, is_remainder: bool) -> Result<Value, Stop> {
        let remainder = self.divide(number, one, two, true)?;
        if !number.is_signed() {
            return if is_remainder { Ok(remainder) } else { self.divide(number, one, two, false) };
        }
        let zero = self.int(number, 0)?;
        let is_negative = self.ins().icmp(IntCC::SignedLessThan, remainder, zero);
        let is_positive_divisor = self.ins().icmp(IntCC::SignedGreaterThan, two, zero);
        if is_remainder {
            let (more, less) = (self.ins().iadd(remainder, two), self.ins().isub(remainder, two));
            let raised = self.select(is_positive_divisor, more, less);
            return Ok(self.select(is_negative, raised, remainder));
        }
        let quotient = self.divide(number, one, two, false)?;
        let unit = self.int(number, 1)?;
        let (less, more) = (self.ins().isub(quotient, unit), self.ins().iadd(quotient, unit));
        let moved = self.select(is_positive_divisor, less, more);
        Ok(self.select(is_negative, moved, quotient))
    }

    /// Lowers a shift whose amount is an expression.
    pub(super) fn shift(&mut self, op: Binary, number: Number, one: Value, two: &'a Expr) -> Result<Value, Stop> {
        let amount = self.amount(two)?;
        self.shift_by(op, number, one, amount)
    }

    /// Lowers the amount of a shift. In lanes it must be a literal.
    pub(super) fn amount(&mut self, expr: &'a Expr) -> Result<Value, Stop> {
        match (self.form, &expr.kind) {
            (Form::Scalar, _) => self.single(expr),
            (Form::Lanes(_), Kind::Int(value)) => Ok(self.ins().iconst(types::I32, *value as i64 & 63)),
            _ => Err(Stop::NoLanes),
        }
    }

    /// Shifts by an amount of any integer type, modulo the bits of the number.
    pub(super) fn shift_by(&mut self, op: Binary, number: Number, one: Value, amount: Value) -> Result<Value, Stop> {
        self.type_of(number)?;
        let amount = self.ins().band_imm_u(amount, i64::from(number.bits()) - 1);
        Ok(match op {
            Binary::ShiftLeft => self.ins().ishl(one, amount),
            _ if number.is_signed() => self.ins().sshr(one, amount),
            _ => self.ins().ushr(one, amount),
        })
    }

    /// Lowers a method of integers.
    pub(super) fn integer_method(
        &mut self,
        method: Method,
        number: Number,
        values: &[Value],
        operands: &'a [Expr],
    ) -> Result<Value, Stop> {
        let one = values[0];
        let two = values.get(1).copied();
        let second = || two.expect("a method of two operands");
        match method {
            Method::Min => self.smaller(number, one, second(), Binary::Less),
            Method::Max => self.smaller(number, one, second(), Binary::Greater),
            Method::Clamp => {
                let raised = self.smaller(number, one, second(), Binary::Greater)?;
                self.smaller(number, raised, values[2], Binary::Less)
            }
            Method::Abs => {
                let zero = self.int(number, 0)?;
                let is_negative = self.ins().icmp(IntCC::SignedLessThan, one, zero);
                let negated = self.ins().ineg(one);
                Ok(self.select(is_negative, negated, one))
            }
            Method::AbsDiff => {
                let is_greater = self.integer_operator(Binary::Greater, number, one, second())?;
                let (down, up) = (self.ins().isub(one, second()), self.ins().isub(second(), one));
                Ok(self.select(is_greater, down, up))
            }
            Method::Signum => {
                let zero = self.int(number, 0)?;
                let (unit, minus) = (self.int(number, 1)?, self.int(number, -1)?);
                let is_positive = self.ins().icmp(IntCC::SignedGreaterThan, one, zero);
                let is_negative = self.ins().icmp(IntCC::SignedLessThan, one, zero);
                let sign = self.select(is_negative, minus, zero);
                Ok(self.select(is_positive, unit, sign))
            }
            Method::SaturatingAdd => self.saturating_add(number, one, second()),
            Method::SaturatingSubtract => self.saturating_subtract(number, one, second()),
            Method::SaturatingMultiply => self.saturating_multiply(number, one, second()),
            Method::DivideEuclid => self.divide_euclid(number, one, second(), false),
            Method::RemainderEuclid => self.divide_euclid(number, one, second(), true),
            Method::RotateLeft | Method::RotateRight => self.rotate(method, number, one, &operands[1]),
            _ => self.count_bits(method, number, one),
        }
    }

    /// Returns `two` if it is less than `one`, or greater, by the comparison; else `one`.
    fn smaller(&mut self, number: Number, one: Value, two: Value, comparison: Binary) -> Result<Value, Stop> {
        let is_two = self.integer_operator(comparison, number, two, one)?;
        Ok(self.select(is_two, two, one))
    }

    fn saturating_add(&mut self, number: Number, one: Value, two: Value) -> Result<Value, Stop> {
        self.type_of(number)?;
        let sum = self.ins().iadd(one, two);
        if !number.is_signed() {
            let wrapped = self.integer_operator(Binary::Less, number, sum, one)?;
            let max = self.int(number, number.max())?;
            return Ok(self.select(wrapped, max, sum));
        }
        // The sum wrapped if its sign differs from the signs of both operands.
        let (differs, also) = (self.ins().bxor(one, sum), self.ins().bxor(two, sum));
        let wrapped = self.ins().band(differs, also);
        self.bound_if_negative(number, wrapped, one, sum)
    }

    fn saturating_subtract(&mut self, number: Number, one: Value, two: Value) -> Result<Value, Stop> {
        self.type_of(number)?;
        let difference = self.ins().isub(one, two);
        if !number.is_signed() {
            let wrapped = self.integer_operator(Binary::Less, number, one, two)?;
            let zero = self.int(number, 0)?;
            return Ok(self.select(wrapped, zero, difference));
        }
        let (differs, also) = (self.ins().bxor(one, two), self.ins().bxor(one, difference));
        let wrapped = self.ins().band(differs, also);
        self.bound_if_negative(number, wrapped, one, difference)
    }

    /// Returns the bound with the sign of `sign` where `wrapped` is negative, else `value`.
    fn bound_if_negative(&mut self, number: Number, wrapped: Value, sign: Value, value: Value) -> Result<Value, Stop> {
        let zero = self.int(number, 0)?;
        let is_wrapped = self.ins().icmp(IntCC::SignedLessThan, wrapped, zero);
        let (max, min) = (self.int(number, number.max())?, self.int(number, number.min())?);
        let is_negative = self.ins().icmp(IntCC::SignedLessThan, sign, zero);
        let bound = self.select(is_negative, min, max);
        Ok(self.select(is_wrapped, bound, value))
    }

    fn saturating_multiply(&mut self, number: Number, one: Value, two: Value) -> Result<Value, Stop> {
        self.scalar_only()?;
        let product = self.ins().imul(one, two);
        let max = self.int(number, number.max())?;
        if number.width() == 8 && !number.is_signed() {
            let high = self.ins().umulhi(one, two);
            let is_wrapped = self.ins().icmp_imm_u(IntCC::NotEqual, high, 0);
            return Ok(self.select(is_wrapped, max, product));
        }
        if number.width() == 8 {
            let high = self.ins().smulhi(one, two);
            let sign = self.ins().sshr_imm_u(product, 63);
            let is_wrapped = self.ins().icmp(IntCC::NotEqual, high, sign);
            let signs = self.ins().bxor(one, two);
            let is_negative = self.ins().icmp_imm_u(IntCC::SignedLessThan, signs, 0);
            let min = self.int(number, number.min())?;
            let bound = self.select(is_negative, min, max);
            return Ok(self.select(is_wrapped, bound, product));
        }
        // The product of two narrow numbers fits a wide one.
        let wide = if number.is_signed() { Number::I64 } else { Number::U64 };
        let (one, two) = (self.cast(one, number, wide)?, self.cast(two, number, wide)?);
        let product = self.ins().imul(one, two);
        self.clamp_wide(product, wide, number)
    }

    /// Returns a wide number, clamped to a narrower type.
    pub(super) fn clamp_wide(&mut self, value: Value, wide: Number, narrow: Number) -> Result<Value, Stop> {
        let (max, min) = (self.int(wide, narrow.max())?, self.int(wide, narrow.min())?);
        let low = self.smaller(wide, value, max, Binary::Less)?;
        let clamped = if wide.is_signed() { self.smaller(wide, low, min, Binary::Greater)? } else { low };
        Ok(self.ins().ireduce(scalar_type(narrow), clamped))
    }

    fn rotate(&mut self, method: Method, number: Number, one: Value, by: &'a Expr) -> Result<Value, Stop> {
        self.type_of(number)?;
        let bits = i64::from(number.bits());
        let amount = self.amount(by)?;
        let amount = self.ins().band_imm_u(amount, bits - 1);
        if self.form == Form::Scalar {
            return Ok(if method == Method::RotateLeft {
                self.ins().rotl(one, amount)
            } else {
                self.ins().rotr(one, amount)
            });
        }
        let opposite = self.ins().ineg(amount);
        let opposite = self.ins().band_imm_u(opposite, bits - 1);
        let (left, right) = if method == Method::RotateLeft { (amount, opposite) } else { (opposite, amount) };
        let (high, low) = (self.ins().ishl(one, left), self.ins().ushr(one, right));
        Ok(self.ins().bor(high, low))
    }

    /// Lowers the methods that count bits. The result is a u32.
    fn count_bits(&mut self, method: Method, number: Number, one: Value) -> Result<Value, Stop> {
        self.scalar_only()?;
        self.spend(8);
        let count = match method {
            Method::CountOnes => self.ins().popcnt(one),
            Method::CountZeros => {
                let flipped = self.ins().bnot(one);
                self.ins().popcnt(flipped)
            }
            Method::LeadingZeros => self.ins().clz(one),
            Method::TrailingZeros => self.ins().ctz(one),
            other => unreachable!("{other:?} is no method of integers"),
        };
        self.cast(count, number.unsigned(), Number::U32)
    }
}

fn condition(op: Binary, is_signed: bool) -> IntCC {
    let signed = match op {
        Binary::Equal => IntCC::Equal,
        Binary::NotEqual => IntCC::NotEqual,
        Binary::Less => IntCC::SignedLessThan,
        Binary::LessEqual => IntCC::SignedLessThanOrEqual,
        Binary::Greater => IntCC::SignedGreaterThan,
        _ => IntCC::SignedGreaterThanOrEqual,
    };
    if is_signed { signed } else { signed.unsigned() }
}
