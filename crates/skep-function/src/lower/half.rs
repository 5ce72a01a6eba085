//! Lowers `f16` and `bf16`: their bits are converted to `f32` and back by arithmetic on integers and one multiplication, so
//! that all machines have them.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::Lowering;
use crate::types::Half;

/// 2^112 as the bits of an `f32`: the difference between the exponents' offsets of `f32` and `f16`.
const RESCALE: u32 = 0x7780_0000;
/// The bits of the `f32` above which an `f16` would be infinite: 65536.
const TOO_LARGE: u32 = 143 << 23;
/// The bits of the smallest `f32` that is a normal `f16`: 2^-14.
const NORMAL_MIN: u32 = 113 << 23;
/// The bits of 0.5. Added to a number below [`NORMAL_MIN`], it leaves the bits of the `f16` at the end, rounded.
const ROUND_SMALL: u32 = 126 << 23;
/// Moves the exponent of an `f32` to that of an `f16`, and adds almost a half of the last bit that is kept.
const ROUND_NORMAL: u32 = 0_u32.wrapping_sub(112 << 23).wrapping_add(0xfff);

impl Lowering<'_, '_> {
    /// Returns the `f32` with the value of a half.
    pub(super) fn half_value(&mut self, half: Half, bits: Value) -> Value {
        let wide = self.ins().uextend(types::I32, bits);
        if half == Half::BF16 {
            let moved = self.ins().ishl_imm_u(wide, 16);
            return self.cast_bits(moved, types::F32);
        }
        let sign = self.ins().band_imm_u(wide, 0x8000);
        let sign = self.ins().ishl_imm_u(sign, 16);
        let magnitude = self.ins().band_imm_u(wide, 0x7fff);
        let moved = self.ins().ishl_imm_u(magnitude, 13);
        let small = self.cast_bits(moved, types::F32);
        let factor = self.ins().f32const(f32::from_bits(RESCALE));
        let scaled = self.ins().fmul(small, factor);
        let finite = self.cast_bits(scaled, types::I32);
        let special = self.ins().bor_imm_u(moved, 0x7f80_0000);
        let is_special = self.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7c00);
        let value = self.ins().select(is_special, special, finite);
        let signed = self.ins().bor(value, sign);
        self.cast_bits(signed, types::F32)
    }

    /// Returns the bits of the half that is nearest to an `f32`. A NaN becomes the canonical one.
    pub(super) fn half_bits(&mut self, half: Half, value: Value) -> Value {
        let bits = self.cast_bits(value, types::I32);
        let (rounded, nan) = match half {
            Half::BF16 => (self.bfloat_bits(bits), 0x7fc0),
            Half::F16 => (self.float16_bits(bits), 0x7e00),
        };
        let narrow = self.ins().ireduce(types::I16, rounded);
        let is_nan = self.ins().fcmp(FloatCC::Unordered, value, value);
        let nan = self.ins().iconst(types::I16, nan);
        self.ins().select(is_nan, nan, narrow)
    }

    fn bfloat_bits(&mut self, bits: Value) -> Value {
        let last = self.ins().ushr_imm_u(bits, 16);
        let last = self.ins().band_imm_u(last, 1);
        let rounded = self.ins().iadd_imm_u(bits, 0x7fff);
        let rounded = self.ins().iadd(rounded, last);
        self.ins().ushr_imm_u(rounded, 16)
    }

    fn float16_bits(&mut self, bits: Value) -> Value {
        let sign = self.ins().band_imm_u(bits, 0x8000_0000);
        let magnitude = self.ins().bxor(bits, sign);
        let last = self.ins().ushr_imm_u(magnitude, 13);
        let last = self.ins().band_imm_u(last, 1);
        let normal = self.ins().iadd_imm_u(magnitude, i64::from(ROUND_NORMAL));
        let normal = self.ins().iadd(normal, last);
        let normal = self.ins().ushr_imm_u(normal, 13);
        let offset = self.ins().f32const(f32::from_bits(ROUND_SMALL));
        let float = self.cast_bits(magnitude, types::F32);
        let sum = self.ins().fadd(float, offset);
        let sum = self.cast_bits(sum, types::I32);
        let offset = self.ins().iconst(types::I32, i64::from(ROUND_SMALL));
        let small = self.ins().isub(sum, offset);
        let is_small = self.ins().icmp_imm_u(IntCC::UnsignedLessThan, magnitude, i64::from(NORMAL_MIN));
        let finite = self.ins().select(is_small, small, normal);
        let infinity = self.ins().iconst(types::I32, 0x7c00);
        let is_large = self.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, i64::from(TOO_LARGE));
        let value = self.ins().select(is_large, infinity, finite);
        let sign = self.ins().ushr_imm_u(sign, 16);
        self.ins().bor(value, sign)
    }
}
